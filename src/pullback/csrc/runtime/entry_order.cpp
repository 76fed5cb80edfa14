#include "entry_order.h"

#include "kernel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace pullback {

namespace {

int64_t product(at::IntArrayRef shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

/// The dimensions of what each row has.
Ints shape_of_rows(const Ints& batch, int64_t rows) {
  Ints shape(batch);
  shape.push_back(rows);
  return shape;
}

}  // namespace

at::Tensor order_entries(const at::Tensor& places, int64_t many, const Ints& shape, int64_t rows) {
  const int64_t each = product(shape), all = many * rows, entries = many * each;
  const auto dimensions = static_cast<int64_t>(shape.size());
  const at::Tensor lying = places.scalar_type() == at::kLong && places.is_contiguous()
                               ? places
                               : places.to(at::kLong).contiguous();
  const auto* const keys = static_cast<const int64_t*>(lying.const_data_ptr());
  at::Tensor order = allocate({2 * all + dimensions * entries}, at::kLong, at::kCPU);
  auto* const begin = static_cast<int64_t*>(order.mutable_data_ptr());
  auto* const end = begin + all;
  auto* const first = end + all;
  const auto each_inside = [&](auto visit) {
    for (int64_t own = 0; own < many; ++own) {
      for (int64_t entry = 0; entry < each; ++entry) {
        const int64_t row = keys[own * each + entry];
        if (row >= 0 && row < rows) visit(own * rows + row, entry);
      }
    }
  };
  std::fill(begin, end, 0);
  each_inside([&](int64_t row, int64_t) { ++begin[row]; });
  int64_t seen = 0;
  for (int64_t row = 0; row < all; ++row) {
    const int64_t count = begin[row];
    begin[row] = end[row] = seen;
    seen += count;
  }
  // Where a row ends moves on with each entry. What is left out comes last, and nobody reads it.
  each_inside([&](int64_t row, int64_t entry) { first[end[row]++] = entry; });
  std::fill(first + seen, first + entries, 0);
  // The number of an entry becomes its indices, the outermost last: the numbers are there.
  for (int64_t entry = 0; entry < entries && dimensions > 1; ++entry) {
    int64_t number = first[entry];
    for (int64_t k = dimensions; k-- > 0;) {
      const int64_t size = shape[static_cast<size_t>(k)];
      first[k * entries + entry] = number % size;
      number /= size;
    }
  }
  return order;
}

EntryOrder sort_entries(const at::Tensor& places, const Ints& batch, const Ints& shape,
                        int64_t rows) {
  const int64_t many = product(batch), all = many * rows, entries = many * product(shape);
  const Ints ends = shape_of_rows(batch, rows);
  const at::Tensor packed = order_entries(places, many, shape, rows);
  EntryOrder order{packed.narrow(0, 0, all).view(ends), packed.narrow(0, all, all).view(ends), {}};
  for (size_t k = 0; k < shape.size(); ++k) {
    const int64_t first = 2 * all + static_cast<int64_t>(k) * entries;
    order.indices.push_back(packed.narrow(0, first, entries));
  }
  return order;
}

EntryOrder sort_entries_on_gpu(const at::Tensor& places, const Ints& batch, const Ints& shape,
                               int64_t rows) {
  const int64_t many = product(batch), each = product(shape), beyond = many * rows;
  at::Tensor keys = places.reshape({many, each});
  const at::Tensor inside = keys.ge(0).logical_and(keys.lt(rows));
  if (many > 1) keys = keys + at::arange(many, keys.options()).unsqueeze(1) * rows;
  keys = keys.masked_fill(inside.logical_not(), beyond).reshape(-1);
  if (beyond < INT32_MAX) keys = keys.to(at::kInt);
  auto [ordered, entries] = keys.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor starts = at::searchsorted(ordered, at::arange(beyond + 1, keys.options()));
  const Ints ends = shape_of_rows(batch, rows);
  if (many > 1) entries = entries.remainder(each);
  EntryOrder order{
      starts.narrow(0, 0, beyond).reshape(ends), starts.narrow(0, 1, beyond).reshape(ends), {}};
  for (size_t k = 0; k < shape.size(); ++k) {
    const int64_t inner = product(at::IntArrayRef(shape).slice(k + 1));
    at::Tensor index = inner == 1 ? entries : entries.div(inner, "floor");
    order.indices.push_back(k ? index.remainder(shape[k]) : index);
  }
  return order;
}

}  // namespace pullback
