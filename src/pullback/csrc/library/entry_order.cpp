#include "entry_order.h"

#include "../runtime/kernel.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <numeric>
#include <vector>

namespace pullback {

namespace {

int64_t product(const Ints& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

}  // namespace

at::Tensor EntryOrder::index(size_t k, at::ScalarType dtype) const {
  const int64_t inner = product(Ints(shape.begin() + static_cast<int64_t>(k) + 1, shape.end()));
  at::Tensor found = inner == 1 ? entries : entries.div(inner, "floor");
  if (k) found = found.remainder(shape[k]);
  return found.to(dtype);
}

EntryOrder sort_entries(const at::Tensor& places, const Ints& batch, const Ints& shape,
                        int64_t rows) {
  const int64_t many = product(batch), each = product(shape);
  const auto* const keys = static_cast<const int64_t*>(places.const_data_ptr());
  std::vector<int64_t> next(static_cast<size_t>(many * rows));
  const auto each_inside = [&](auto visit) {
    for (int64_t own = 0; own < many; ++own) {
      for (int64_t entry = 0; entry < each; ++entry) {
        const int64_t row = keys[own * each + entry];
        if (row >= 0 && row < rows) visit(static_cast<size_t>(own * rows + row), entry);
      }
    }
  };
  each_inside([&](size_t row, int64_t) { ++next[row]; });
  Ints ends(batch);
  ends.push_back(rows);
  EntryOrder order{allocate(ends, at::kLong, at::kCPU), allocate(ends, at::kLong, at::kCPU),
                   at::zeros({many * each}, at::kLong), shape};
  auto* const begin = static_cast<int64_t*>(order.begin.mutable_data_ptr());
  auto* const end = static_cast<int64_t*>(order.end.mutable_data_ptr());
  int64_t seen = 0;
  for (size_t row = 0; row < next.size(); ++row) {
    begin[row] = seen;
    seen += next[row];
    end[row] = seen;
    next[row] = begin[row];
  }
  // What is left out comes last, and nobody reads it.
  auto* const entries = static_cast<int64_t*>(order.entries.mutable_data_ptr());
  each_inside([&](size_t row, int64_t entry) { entries[next[row]++] = entry; });
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
  Ints ends(batch);
  ends.push_back(rows);
  if (many > 1) entries = entries.remainder(each);
  return {starts.narrow(0, 0, beyond).reshape(ends), starts.narrow(0, 1, beyond).reshape(ends),
          entries, shape};
}

}  // namespace pullback
