/// Tells AddressSanitizer, in its mode, that the stack changes; in other modes does nothing.
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

/// Lives around a switch: reports it before, and again when this stack continues.
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

/// On a new stack: notes the bounds of the OS thread's own, from which we switched to it.
inline void begin_fiber(Worker& worker, bool from_main) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* low;
  size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &low, &bytes);
  if (from_main) worker.main_low = low, worker.main_bytes = bytes;
}

/// Unpoisons the frames of a stack that is abandoned.
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
