// The author's units call these for each access, in place of AddressSanitizer's own entry points.
//
// The sanitizer's shadow memory says for every 8 bytes whether they may be accessed: 0, all; 1 to
// 7, that many from the start; negative, none.

#ifdef CUDA_ON_CPU_MEMORY
#include "memory.h"

#include <sanitizer/asan_interface.h>

#include <cstring>

#include "../core.h"

extern "C" void __asan_get_shadow_mapping(size_t* scale, size_t* offset);

namespace cuda_on_cpu::memory {
namespace {

// Below are null pointers, above are addresses that no process has: both raise a signal at the
// access itself, and have no shadow memory that could be read.
constexpr uintptr_t lowest = 0x10000, past_highest = uintptr_t{1} << 47;

size_t map() {
  size_t scale = 0, offset = 0;
  __asan_get_shadow_mapping(&scale, &offset);
  return offset;
}
const size_t offset = map();

bool may_access(uintptr_t byte) {
  const int8_t entry = *reinterpret_cast<const int8_t*>((byte >> 3) + offset);
  return entry == 0 || (entry > 0 && int8_t(byte & 7) < entry);
}

/// The first byte that may not be accessed, or 0.
uintptr_t first_bad(uintptr_t address, size_t bytes) {
  if (address < lowest || address >= past_highest || bytes == 0) return 0;
  if (bytes <= 16) {
    if (!may_access(address)) return address;
    const uintptr_t last = address + bytes - 1;
    if (may_access(last) && may_access(address + bytes / 2)) return 0;
  }
  return reinterpret_cast<uintptr_t>(
      __asan_region_is_poisoned(reinterpret_cast<void*>(address), bytes));
}

template <bool write>
[[gnu::always_inline]] inline void access(uintptr_t address, size_t bytes, const void* code) {
  if (const uintptr_t bad = first_bad(address, bytes)) [[unlikely]] {
    note({.address = bad, .bytes = bytes, .write = write, .code = code});
  } else if (write) {
    is_written(address, bytes);
  } else if (is_unwritten(address, bytes)) {
    note({.address = address,
          .bytes = bytes,
          .write = false,
          .code = code,
          .what = "reads " + std::to_string(bytes) +
                  " bytes of shared memory that no thread has written",
          .help = "write all of it first, then __syncthreads()"});
  }
}

}  // namespace
}  // namespace cuda_on_cpu::memory

using cuda_on_cpu::memory::access;

#define CUDA_ON_CPU_ENTRY extern "C" [[gnu::visibility("default")]]
#define CUDA_ON_CPU_ACCESS(N)                                             \
  CUDA_ON_CPU_ENTRY void __wrap___asan_load##N##_noabort(uintptr_t at) {  \
    access<false>(at, N, __builtin_return_address(0));                    \
  }                                                                       \
  CUDA_ON_CPU_ENTRY void __wrap___asan_store##N##_noabort(uintptr_t at) { \
    access<true>(at, N, __builtin_return_address(0));                     \
  }
CUDA_ON_CPU_ACCESS(1)
CUDA_ON_CPU_ACCESS(2)
CUDA_ON_CPU_ACCESS(4)
CUDA_ON_CPU_ACCESS(8)
CUDA_ON_CPU_ACCESS(16)

CUDA_ON_CPU_ENTRY void __wrap___asan_loadN_noabort(uintptr_t at, size_t bytes) {
  access<false>(at, bytes, __builtin_return_address(0));
}
CUDA_ON_CPU_ENTRY void __wrap___asan_storeN_noabort(uintptr_t at, size_t bytes) {
  access<true>(at, bytes, __builtin_return_address(0));
}

// The sanitizer's own versions would report a fault of a kernel again, in their own words.
CUDA_ON_CPU_ENTRY void* __wrap_memset(void* to, int value, size_t bytes) {
  if (!cuda_on_cpu::in_kernel()) return ::memset(to, value, bytes);
  access<true>(uintptr_t(to), bytes, __builtin_return_address(0));
  for (size_t i = 0; i < bytes; ++i) static_cast<volatile char*>(to)[i] = char(value);
  return to;
}

CUDA_ON_CPU_ENTRY void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  if (!cuda_on_cpu::in_kernel()) return ::memmove(to, from, bytes);
  access<false>(uintptr_t(from), bytes, __builtin_return_address(0));
  access<true>(uintptr_t(to), bytes, __builtin_return_address(0));
  volatile char* out = static_cast<volatile char*>(to);
  const volatile char* in = static_cast<const volatile char*>(from);
  if (out < in) {
    for (size_t i = 0; i < bytes; ++i) out[i] = in[i];
  } else {
    for (size_t i = bytes; i-- > 0;) out[i] = in[i];
  }
  return to;
}

CUDA_ON_CPU_ENTRY void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  if (!cuda_on_cpu::in_kernel()) return ::memcpy(to, from, bytes);
  return __wrap_memmove(to, from, bytes);
}
#endif
