// The findings of AddressSanitizer's own library: mostly on the host, in memcpy, free and the like.
//
// It writes pages of text. We drop these and write one finding in the author's lines to standard
// error.

#ifdef CUDA_ON_CPU_MEMORY
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include <cstring>

#include "../core.h"
#include "memory.h"

namespace cuda_on_cpu::memory {
namespace {

constexpr int most_calls = 64;

/// The first caller outside the sanitizer's library and this one.
const void* caller_in(void* const* calls, int count) {
  Dl_info here, found;
  if (!::dladdr(reinterpret_cast<void*>(&launch_fails), &here)) return nullptr;
  for (int i = 0; i < count; ++i) {
    if (!::dladdr(calls[i], &found) || found.dli_fbase == here.dli_fbase) continue;
    if (std::strstr(found.dli_fname, "libasan") || std::strstr(found.dli_fname, "libc.so"))
      continue;
    return calls[i];
  }
  return nullptr;
}

void report(const char*) {
  void* calls[most_calls];
  const int count = ::backtrace(calls, most_calls);
  Fault fault{
      .address = reinterpret_cast<uintptr_t>(__asan_get_report_address()),
      .bytes = __asan_get_report_access_size(),
      .write = __asan_get_report_access_type() == 1,
      .code = caller_in(calls, count),
  };
  if (fault.bytes == 0) {
    fault.what = std::string("frees memory that it must not: ") + __asan_get_report_description();
    fault.write = false;
  }
  note(fault);
}

struct Life {
  Life() {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    __sanitizer_set_report_fd(reinterpret_cast<void*>(intptr_t{nowhere}));
    __asan_set_error_report_callback(report);
  }
} life;

}  // namespace
}  // namespace cuda_on_cpu::memory
#endif
