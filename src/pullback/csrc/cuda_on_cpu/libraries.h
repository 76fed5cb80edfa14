/// NVIDIA's libraries (cuBLAS, cuRAND for the host): files include them and make their handles for
/// code that never runs here. So making a handle works, and a function that computes raises PB228.
#pragma once

#include "core.h"

/// A function that creates, changes or destroys a handle: there is nothing to do.
#define CUDA_ON_CPU_NOTHING_TO_DO(Status, function) \
  template <class... A>                             \
  inline Status function(const A&...) {             \
    return Status(0);                               \
  }

/// A function that computes.
#define CUDA_ON_CPU_RAISES(Status, function)                                        \
  template <class... A>                                                             \
  inline Status function(const A&...) {                                             \
    ::cuda_on_cpu::stop("cuda-unsupported [PB228]",                                 \
                        #function " does not run on the CPU\n"                      \
                        "    help: guard the call with #ifndef CUDA_ON_CPU");       \
  }
