/// The device's assert: it stops the kernel with a finding that names the thread. On the host it
/// ends the process, as the C library's does.
///
/// <cassert> finds this file as well. No guard: each inclusion looks at NDEBUG again.
#include "../core.h"

// Code that calls it by name, as PyTorch's CUDA_KERNEL_ASSERT does, calls the same function: the
// name in the object file is ours.
extern "C" [[noreturn]] void __assert_fail(const char* expression, const char* file, unsigned line,
                                           const char* function) noexcept
    __asm__("cuda_on_cpu_assert_fail");

#undef assert
#if defined(NDEBUG)
#define assert(expression) (static_cast<void>(0))
#else
#define assert(...)                                                                    \
  (static_cast<bool>(__VA_ARGS__) ? static_cast<void>(0)                               \
                                  : ::cuda_on_cpu::assert_failed(#__VA_ARGS__, __FILE__, __LINE__, \
                                                                 __PRETTY_FUNCTION__))
#endif
