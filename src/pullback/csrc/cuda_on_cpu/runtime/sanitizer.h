/// Tells AddressSanitizer, in its mode, that the stack changes; elsewhere nothing.
#pragma once

#include "worker.h"

#ifdef CUDA_ON_CPU_MEMORY
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake, const void* low, size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake, const void** low, size_t* bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* address, size_t bytes);
}
#endif

namespace cuda_on_cpu::sanitizer {

#ifdef CUDA_ON_CPU_MEMORY

/// Lives around a switch: told before it, and after it when this stack runs again.
class Switch {
 public:
  /// To a CUDA thread's stack.
  Switch(Worker& worker, unsigned next) {
    begin(worker.fiber_of[next]->low, worker.fiber_of[next]->bytes);
  }
  Switch(const Fiber& fiber) { begin(fiber.low, fiber.bytes); }
  /// To the OS thread's own.
  explicit Switch(Worker& worker) { begin(worker.main_low, worker.main_bytes); }
  ~Switch() {
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake_, nullptr, nullptr);
  }

 private:
  void begin(const void* low, size_t bytes) {
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake_, low, bytes);
  }
  void* fake_ = nullptr;
};

/// On a new stack: notes where the OS thread's own is, from which it was switched to.
inline void begin_fiber(Worker& worker, bool from_main) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* low;
  size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &low, &bytes);
  if (from_main) worker.main_low = low, worker.main_bytes = bytes;
}

/// What frames on a stack that is given up have poisoned.
inline void forget(const Fiber& fiber) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(fiber.low, fiber.bytes);
}

#else

struct [[maybe_unused]] Switch {
  Switch(Worker&, unsigned) {}
  explicit Switch(const Fiber&) {}
  explicit Switch(Worker&) {}
};
inline void begin_fiber(Worker&, bool) {}
inline void forget(const Fiber&) {}

#endif

}  // namespace cuda_on_cpu::sanitizer
