/// The C and C++ libraries' functions on memory, in the author's code.
///
/// The compiler does not instrument calls of memcpy() and the like. So authors' units are linked
/// with
/// -Wl,--wrap=memcpy and so on, which redirects `memcpy` to `__wrap_memcpy`.
#ifdef CUDA_ON_CPU_RACE

#include <cstdlib>
#include <cstring>
#include <new>

#include "race_detector.h"

using namespace cuda_on_cpu::race;

#pragma GCC visibility push(default)

namespace {

uintptr_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

void* copy(void* to, const void* from, size_t bytes, const void* pc) {
  if (!running || !bytes) return std::memmove(to, from, bytes);
  running->read(number(from), bytes, is_read, pc);
  const bool same = std::memcmp(to, from, bytes) == 0;
  std::memmove(to, from, bytes);
  running->wrote(number(to), bytes, pc, same);
  return to;
}

/// Memory that another CUDA thread may have used, and freed, before.
void* fresh(void* memory, size_t bytes) {
  if (running && memory) running->shadow().forget(number(memory), bytes);
  return memory;
}

}  // namespace

extern "C" {

void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  return copy(to, from, bytes, __builtin_return_address(0));
}
void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  return copy(to, from, bytes, __builtin_return_address(0));
}
void* __wrap_memset(void* to, int value, size_t bytes) {
  if (!running || !bytes) return std::memset(to, value, bytes);
  const auto* first = static_cast<const unsigned char*>(to);
  const bool same =
      *first == static_cast<unsigned char>(value) && std::memcmp(first, first + 1, bytes - 1) == 0;
  std::memset(to, value, bytes);
  running->wrote(number(to), bytes, __builtin_return_address(0), same);
  return to;
}

// clang's names for the same.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  return copy(to, from, bytes, __builtin_return_address(0));
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  return copy(to, from, bytes, __builtin_return_address(0));
}
void* __tsan_memset(void* to, int value, size_t bytes) { return __wrap_memset(to, value, bytes); }

void* __wrap_malloc(size_t bytes) { return fresh(std::malloc(bytes), bytes); }
void* __wrap_calloc(size_t count, size_t bytes) {
  return fresh(std::calloc(count, bytes), count * bytes);
}
void* __wrap__Znwm(size_t bytes) { return fresh(operator new(bytes), bytes); }
void* __wrap__Znam(size_t bytes) { return fresh(operator new[](bytes), bytes); }

// The first thread constructs a function's static variable; its guard publishes it.
void __cxa_guard_release(void* guard);
void __wrap___cxa_guard_release(void* guard) {
  if (running) {
    running->own_atomic(number(guard), 1, is_write, __ATOMIC_RELEASE, __builtin_return_address(0));
  }
  __cxa_guard_release(guard);
}

}  // extern "C"

#pragma GCC visibility pop

#endif
