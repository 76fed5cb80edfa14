/// The common parts of cub's block-wide classes.
#pragma once

#include "../shared.h"
#include "thread.h"

namespace cuda_on_cpu {

/// Storage, the running thread's number, and the author's line, where the object is made: threads
/// wait for each other "at" that line.
template <class TempStorage, int x, int y, int z>
class BlockWide {
 protected:
  static constexpr int threads = x * y * z;

  BlockWide(TempStorage& storage, Place place)
      : storage(storage),
        place(place),
        thread(static_cast<int>((threadIdx.z * y + threadIdx.y) * x + threadIdx.x)) {}

  void wait() const { __syncthreads(place.file, place.line); }

  TempStorage& storage;
  Place place;
  const int thread;
};

}  // namespace cuda_on_cpu

/// The two constructors of a block-wide class: without an argument it has storage of its own.
#define CUDA_ON_CPU_BLOCK_WIDE(Class)                                                          \
  explicit Class(TempStorage& storage, CUDA_ON_CPU_PLACE) : Base(storage, CUDA_ON_CPU_HERE) {} \
  explicit Class(CUDA_ON_CPU_PLACE)                                                            \
      : Base(::cuda_on_cpu::cuda_on_cpu_shared<TempStorage>([] {}, #Class), CUDA_ON_CPU_HERE) {}
