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

/// On a stack that begins or continues; if we came from the OS thread's own, notes the bounds of that.
/// Each launch does: a worker, and with it its stacks, passes from an OS thread to another.
inline void arrive(Worker& worker, void* fake) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* low;
  size_t bytes;
  __sanitizer_finish_switch_fiber(fake, &low, &bytes);
  if (worker.from_main) worker.main_low = low, worker.main_bytes = bytes;
  worker.from_main = false;
}

/// Lives around a switch: reports it before, and again when this stack continues.
class Switch {
 public:
  /// From the OS thread's own stack.
  Switch(Worker& worker, const Fiber& to) : Switch(worker, to.low, to.bytes) {
    worker.from_main = true;
  }
  /// From a CUDA thread's to another one's.
  Switch(Worker& worker, unsigned next)
      : Switch(worker, worker.fiber_of[next]->low, worker.fiber_of[next]->bytes) {}
  /// To the OS thread's own.
  explicit Switch(Worker& worker) : Switch(worker, worker.main_low, worker.main_bytes) {}
  ~Switch() { arrive(worker_, fake_); }

 private:
  Switch(Worker& worker, const void* low, size_t bytes) : worker_(worker) {
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake_, low, bytes);
  }
  Worker& worker_;
  void* fake_ = nullptr;
};

inline void begin_fiber(Worker& worker) { arrive(worker, nullptr); }

/// Unpoisons the frames of a stack that is abandoned.
inline void forget(const Fiber& fiber) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(fiber.low, fiber.bytes);
}

#else

struct [[maybe_unused]] Switch {
  Switch(Worker&, const Fiber&) {}
  Switch(Worker&, unsigned) {}
  explicit Switch(Worker&) {}
};
inline void begin_fiber(Worker&) {}
inline void forget(const Fiber&) {}

#endif

}  // namespace cuda_on_cpu::sanitizer
