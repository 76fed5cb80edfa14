#include "entry_order.h"

#include "../runtime/kernel.h"

#include <functional>
#include <numeric>

namespace pullback {

namespace {

int64_t product(const Ints& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

template <class Number>
void write_index(at::Tensor& to, const std::vector<int64_t>& entries, int64_t inner,
                 int64_t extent) {
  auto* const data = static_cast<Number*>(to.mutable_data_ptr());
  for (size_t k = 0; k < entries.size(); ++k)
    data[k] = static_cast<Number>(entries[k] / inner % extent);
}

}  // namespace

at::Tensor EntryOrder::index(size_t k, at::ScalarType dtype) const {
  const int64_t inner = product(Ints(shape.begin() + static_cast<int64_t>(k) + 1, shape.end()));
  at::Tensor found = allocate({static_cast<int64_t>(entries.size())}, dtype, at::kCPU);
  switch (dtype) {
    case at::kFloat: write_index<float>(found, entries, inner, shape[k]); break;
    case at::kDouble: write_index<double>(found, entries, inner, shape[k]); break;
    default: write_index<int64_t>(found, entries, inner, shape[k]);
  }
  return found;
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
  // What is left out comes last, and nobody reads it.
  EntryOrder order{allocate(ends, at::kLong, at::kCPU), allocate(ends, at::kLong, at::kCPU),
                   std::vector<int64_t>(static_cast<size_t>(many * each)), shape};
  auto* const begin = static_cast<int64_t*>(order.begin.mutable_data_ptr());
  auto* const end = static_cast<int64_t*>(order.end.mutable_data_ptr());
  int64_t seen = 0;
  for (size_t row = 0; row < next.size(); ++row) {
    begin[row] = seen;
    seen += next[row];
    end[row] = seen;
    next[row] = begin[row];
  }
  each_inside(
      [&](size_t row, int64_t entry) { order.entries[static_cast<size_t>(next[row]++)] = entry; });
  return order;
}

}  // namespace pullback
