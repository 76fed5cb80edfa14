#include "../core.h"

#pragma GCC visibility push(default)

/// The name of `__assert_fail` in an author's object files; see include/assert.h.
extern "C" [[noreturn]] void cuda_on_cpu_assert_fail(const char* expression, const char* file,
                                                     unsigned line, const char* function) {
  cuda_on_cpu::assert_failed(expression, file, line, function);
}

#pragma GCC visibility pop
