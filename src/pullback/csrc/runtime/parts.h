/// Parts of a space that a cache holds: what is summed over the space is written for one at a time.
#pragma once

#include "operator.h"

#include <ATen/ops/as_strided_native.h>

#include <algorithm>

namespace pullback {

/// Where a part begins in each dimension of the space, and how far it goes.
struct Part {
  Ints first, extent;
};

/// Returns a part of a tensor that lines up with the space from the right.
inline at::Tensor part_of(const at::Tensor& tensor, const Part& part) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const size_t missing = part.extent.size() - sizes.size();
  Ints shape(sizes.begin(), sizes.end());
  int64_t offset = tensor.storage_offset();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    shape[d] = part.extent[missing + d];
    offset += part.first[missing + d] * strides[d];
  }
  return at::native::as_strided_tensorimpl(tensor, shape, strides, offset);
}

/// Calls `visit` for parts of at most `most` elements, in the order of the space, which has some.
template <class Visit>
void each_part(const Ints& space, int64_t most, Visit visit) {
  int64_t inner = 1;
  for (const int64_t size : space) inner *= size;
  // The dimensions before `split` are gone through one by one, and this one by several.
  size_t split = 0;
  while ((inner /= space[split]) > most) ++split;
  const int64_t step = std::max<int64_t>(1, most / inner);
  Part part{Ints(space.size(), 0), space};
  std::fill(part.extent.begin(), part.extent.begin() + static_cast<int64_t>(split), 1);
  for (bool left = true; left;) {
    for (int64_t first = 0; first < space[split]; first += step) {
      part.first[split] = first;
      part.extent[split] = std::min(step, space[split] - first);
      visit(part);
    }
    left = false;
    for (size_t d = split; d-- > 0 && !left;) {
      left = ++part.first[d] < space[d];
      if (!left) part.first[d] = 0;
    }
  }
}

}  // namespace pullback
