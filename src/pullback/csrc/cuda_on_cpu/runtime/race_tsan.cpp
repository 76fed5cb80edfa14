/// The functions that code compiled with -fsanitize=thread calls, under the names that it expects.
///
/// Source: gcc/sanitizer.def of GCC 12 to 14; clang's are nearly the same.
#ifdef CUDA_ON_CPU_RACE

#include <cstring>

#include "race_detector.h"

using cuda_on_cpu::race::running;
using namespace cuda_on_cpu::race;

#pragma GCC visibility push(default)

namespace {

inline uintptr_t number(const volatile void* pointer) {
  return reinterpret_cast<uintptr_t>(const_cast<const void*>(pointer));
}

}  // namespace

#define CALLER __builtin_return_address(0)

#define ACCESS(name, function, size, kind)                                       \
  extern "C" void __tsan_##name(void* p) {                                       \
    if (running) [[unlikely]] running->function(number(p), size, kind, CALLER);  \
  }
#define ACCESSES(size)                                         \
  ACCESS(read##size, read, size, is_read)                      \
  ACCESS(write##size, write, size, is_read)                    \
  ACCESS(volatile_read##size, read, size, is_volatile)         \
  ACCESS(volatile_write##size, write, size, is_volatile)       \
  ACCESS(unaligned_read##size, read, size, is_read)            \
  ACCESS(unaligned_write##size, write, size, is_read)          \
  ACCESS(unaligned_volatile_read##size, read, size, is_volatile)   \
  ACCESS(unaligned_volatile_write##size, write, size, is_volatile)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
ACCESS(vptr_read, read, sizeof(void*), is_read)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}

void __tsan_vptr_update(void* p, void*) {
  if (running) running->write(number(p), sizeof p, is_read, CALLER);
}
void __tsan_read_range(void* p, size_t bytes) {
  if (running) running->read(number(p), bytes, is_read, CALLER);
}
void __tsan_write_range(void* p, size_t bytes) {
  if (running) running->write(number(p), bytes, is_read, CALLER);
}

void __tsan_atomic_thread_fence(int order) {
  if (running && order != __ATOMIC_RELAXED) running->fence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"

// Whatever memory order was asked for, the strongest is right.
#define UPDATE(bits, name, expression)                                                   \
  extern "C" U##bits __tsan_atomic##bits##_##name(volatile U##bits* p, U##bits v, int order) { \
    if (running) running->own_atomic(number(p), bits / 8, is_write, order, CALLER);      \
    return expression;                                                                   \
  }
#define EXCHANGE(bits, name)                                                                    \
  extern "C" int __tsan_atomic##bits##_compare_exchange_##name(                                 \
      volatile U##bits* p, U##bits* expected, U##bits desired, int order, int) {                \
    if (running) running->own_atomic(number(p), bits / 8, is_write, order, CALLER);             \
    return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST,           \
                                       __ATOMIC_SEQ_CST);                                       \
  }
#define ATOMICS(bits)                                                                          \
  extern "C" U##bits __tsan_atomic##bits##_load(const volatile U##bits* p, int order) {        \
    if (running) running->own_atomic(number(p), bits / 8, is_read, order, CALLER);             \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
  }                                                                                            \
  extern "C" void __tsan_atomic##bits##_store(volatile U##bits* p, U##bits v, int order) {     \
    if (running) running->own_atomic(number(p), bits / 8, is_write, order, CALLER);            \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                            \
  extern "C" U##bits __tsan_atomic##bits##_compare_exchange_val(                               \
      volatile U##bits* p, U##bits expected, U##bits desired, int order, int) {                \
    if (running) running->own_atomic(number(p), bits / 8, is_write, order, CALLER);            \
    __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_SEQ_CST,                \
                                __ATOMIC_SEQ_CST);                                             \
    return expected;                                                                           \
  }                                                                                            \
  EXCHANGE(bits, strong)                                                                       \
  EXCHANGE(bits, weak)                                                                         \
  UPDATE(bits, exchange, __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST))                          \
  UPDATE(bits, fetch_add, __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST))                          \
  UPDATE(bits, fetch_sub, __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST))                          \
  UPDATE(bits, fetch_and, __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST))                          \
  UPDATE(bits, fetch_or, __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST))                            \
  UPDATE(bits, fetch_xor, __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST))                          \
  UPDATE(bits, fetch_nand, __atomic_fetch_nand(p, v, __ATOMIC_SEQ_CST))

using U8 = uint8_t;
using U16 = uint16_t;
using U32 = uint32_t;
using U64 = uint64_t;
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

#pragma GCC visibility pop

#endif
