/// The order in which the entries of a scatter are added: sorted by row, and in a row as they come.
#pragma once

#include "../runtime/signature.h"

namespace pullback {

struct EntryOrder {
  at::Tensor begin, end;  // of the segment of each row
  at::Tensor entries;     // their numbers, sorted
  Ints shape;             // of an entry's indices

  /// Returns index `k` of all entries.
  at::Tensor index(size_t k, at::ScalarType dtype) const;
};

/// Returns the order of some entries, on a CPU.
///
/// `places` has the row of each, which is left out where there is no such row; the dimensions of
/// `batch` come first, each of whose values has rows of its own.
EntryOrder sort_entries(const at::Tensor& places, const Ints& batch, const Ints& shape,
                        int64_t rows);

/// The same by PyTorch's operations, where the entries are: bind/loops/order.py.
EntryOrder sort_entries_on_gpu(const at::Tensor& places, const Ints& batch, const Ints& shape,
                               int64_t rows);

}  // namespace pullback
