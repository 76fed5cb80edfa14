/// The order in which the entries of a scatter are added: sorted by row, and in a row as they come.
#pragma once

#include "signature.h"

#include <vector>

namespace pullback {

struct EntryOrder {
  at::Tensor begin, end;            // of the segment of each row
  std::vector<at::Tensor> indices;  // of the entries, sorted
};

/// Returns the order of some entries, on a CPU.
///
/// `places` has the row of each, which is left out where there is no such row; the dimensions of
/// `batch` come first, each of whose values has rows of its own, then those of `shape`.
EntryOrder sort_entries(const at::Tensor& places, const Ints& batch, const Ints& shape,
                        int64_t rows);

/// The same as one tensor: where each row of all `many` values of a batch begins, where it ends,
/// and the indices of all entries, one after the other.
at::Tensor order_entries(const at::Tensor& places, int64_t many, const Ints& shape, int64_t rows);

/// The same by PyTorch's operations, where the entries are: bind/loops/order.py.
EntryOrder sort_entries_on_gpu(const at::Tensor& places, const Ints& batch, const Ints& shape,
                               int64_t rows);

}  // namespace pullback
