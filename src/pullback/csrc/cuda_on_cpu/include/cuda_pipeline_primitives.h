/// The functions beneath cuda_pipeline.h.
#pragma once

#include "cuda_runtime.h"

/// Copies `bytes` (4, 8 or 16), of which the last `zeros` are not read but set to zero.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  memcpy(to, from, bytes - zeros);
  memset(static_cast<char*>(to) + (bytes - zeros), 0, zeros);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t) {}
