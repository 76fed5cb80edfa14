#pragma once

#include <ATen/ATen.h>

#include "../../torch/context.h"
#include "../../torch/event.h"

// The headers that PyTorch had before ATen, which old extensions still include.

struct THCState;

template <class T>
inline T THCCeilDiv(T a, T b) {
  return (a + b - 1) / b;
}
inline cudaStream_t THCState_getCurrentStream(THCState*) { return nullptr; }
inline void* THCudaMalloc(THCState*, size_t bytes) {
  return c10::cuda::CUDACachingAllocator::raw_alloc(bytes);
}
inline void THCudaFree(THCState*, void* memory) {
  c10::cuda::CUDACachingAllocator::raw_delete(memory);
}
