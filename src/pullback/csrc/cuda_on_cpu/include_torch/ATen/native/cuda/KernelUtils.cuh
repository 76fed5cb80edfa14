#pragma once

#include "../../../../torch/atomic.h"

namespace at::native {

inline size_t idx(const size_t nc, const size_t height, const size_t width, const size_t h,
                  const size_t w) {
  return (nc * height + h) * width + w;
}
inline size_t idx_cl(const size_t n, const size_t h, const size_t w, const size_t c,
                     const size_t height, const size_t width, const size_t channel) {
  return ((n * height + h) * width + w) * channel + c;
}

}  // namespace at::native
