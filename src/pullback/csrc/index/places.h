/// Places in a dimension, for CPUs and GPUs. Included where PULLBACK_INLINE is defined.
#pragma once

namespace pullback::index {

PULLBACK_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
PULLBACK_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
PULLBACK_INLINE int64_t clamped(int64_t place, int64_t size) {
  return most(least(place, size - 1), 0);
}
PULLBACK_INLINE bool inside(int64_t place, int64_t size) {
  return uint64_t(place) < uint64_t(size);
}

}  // namespace pullback::index
