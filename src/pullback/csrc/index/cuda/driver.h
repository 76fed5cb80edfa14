/// Launches kernels that NVRTC compiled. It uses only the driver and needs no CUDA toolkit.
///
/// Included after `pullback_cubin`, the compiled kernels.
#pragma once

#include "../../formula/cuda/module.h"
#include "launch.h"
// The host's half of an NVRTC build includes this too, so that the cache knows that it was read.
#include "index.cuh"

namespace pullback::index {

/// All kernels, loaded once; tried again at the next call if that throws.
inline const Module& loaded() {
  static const Module module(pullback_cubin);
  return module;
}

}  // namespace pullback::index

/// The entry point of a kernel.
#define PULLBACK_INDEX_LAUNCHER(name, operands, strides, sizes, scalars)                      \
  extern "C" __attribute__((visibility("default"))) int name(                                 \
      const pullback::IndexLaunch* launch, char* message, uint64_t capacity) {                \
    using namespace pullback::index;                                                          \
    return run(*launch, operands, strides, sizes, scalars, message, capacity,                 \
               [&](unsigned blocks, unsigned shared, Call& call, int64_t tasks) -> const char* { \
                 try {                                                                        \
                   static void* const kernel = loaded().find(#name "_kernel");                \
                   loaded().driver.require_context(call.data[0]);                             \
                   if (shared > usual_shared) loaded().allow_shared(kernel, shared);          \
                   void* parameters[] = {&call, &tasks};                                      \
                   loaded().launch(kernel, blocks, threads, shared, launch->stream, parameters); \
                   return nullptr;                                                            \
                 } catch (const char* error) {                                                \
                   return error;                                                              \
                 }                                                                            \
               });                                                                            \
  }
