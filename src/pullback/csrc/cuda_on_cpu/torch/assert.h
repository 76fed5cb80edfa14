#pragma once

#include <torch/headeronly/macros/Macros.h>

/// CUDA_KERNEL_ASSERT and the like: they stop the kernel with PB227, where PyTorch's would end the
/// process.

#undef CUDA_KERNEL_ASSERT
#undef CUDA_KERNEL_ASSERT_MSG
#undef CUDA_KERNEL_ASSERT_PRINTF
#define CUDA_KERNEL_ASSERT(cond)                                               \
  do {                                                                         \
    if (C10_UNLIKELY(!(cond)))                                                 \
      ::cuda_on_cpu::assert_failed(#cond, __FILE__, __LINE__, __func__);       \
  } while (0)
#define CUDA_KERNEL_ASSERT_MSG(cond, msg) CUDA_KERNEL_ASSERT((cond) && (msg))
#define CUDA_KERNEL_ASSERT_PRINTF(cond, msg, ...)                              \
  do {                                                                         \
    if (C10_UNLIKELY(!(cond))) {                                               \
      printf(msg "\n", ##__VA_ARGS__);                                         \
      ::cuda_on_cpu::assert_failed(#cond, __FILE__, __LINE__, __func__);       \
    }                                                                          \
  } while (0)

// The same for kernels that keep a list of failed assertions: the first one ends the launch.
#define CUDA_KERNEL_ASSERT2(cond) CUDA_KERNEL_ASSERT(cond)
#define TORCH_DSA_KERNEL_ARGS \
  [[maybe_unused]] void *const assertions_data, [[maybe_unused]] uint32_t assertion_caller_id
#define TORCH_DSA_KERNEL_ARGS_PASS assertions_data, assertion_caller_id
