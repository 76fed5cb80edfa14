/// Barriers of a block, fences, clocks.
#pragma once

#include "core.h"

#include <time.h>

namespace cuda_on_cpu {

#pragma GCC visibility push(default)
/// Waits until every thread of the block that has not exited is here. Returns for how many of them
/// the predicate holds, with bit 32 set if for all of them, and bit 33 if for any.
[[gnu::noplt]] uint64_t barrier(const char* name, bool predicate, Place place);
/// A memory fence by the running thread.
void fence();
/// Lets other threads run once, and returns.
void sleep_here();
#pragma GCC visibility pop

}  // namespace cuda_on_cpu

inline void __syncthreads(CUDA_ON_CPU_PLACE) {
  ::cuda_on_cpu::barrier("__syncthreads", false, CUDA_ON_CPU_HERE);
}
inline int __syncthreads_count(int predicate, CUDA_ON_CPU_PLACE) {
  return int(::cuda_on_cpu::barrier("__syncthreads_count", predicate, CUDA_ON_CPU_HERE));
}
inline int __syncthreads_and(int predicate, CUDA_ON_CPU_PLACE) {
  return ::cuda_on_cpu::barrier("__syncthreads_and", predicate, CUDA_ON_CPU_HERE) >> 32 & 1;
}
inline int __syncthreads_or(int predicate, CUDA_ON_CPU_PLACE) {
  return ::cuda_on_cpu::barrier("__syncthreads_or", predicate, CUDA_ON_CPU_HERE) >> 33 & 1;
}

inline void __threadfence() { ::cuda_on_cpu::fence(); }
inline void __threadfence_block() { ::cuda_on_cpu::fence(); }
inline void __threadfence_system() { ::cuda_on_cpu::fence(); }
inline void __nanosleep(unsigned) { ::cuda_on_cpu::sleep_here(); }

/// In nanoseconds: a GPU of 1 GHz.
inline long long clock64() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}
inline unsigned long long __globaltimer() { return static_cast<unsigned long long>(clock64()); }
// `clock()` is the C library's, which also counts up.

[[noreturn]] inline void __trap() {
  ::cuda_on_cpu::stop("cuda-assert [PB227]", "the kernel reached __trap()");
}
inline void __brkpt() {}
