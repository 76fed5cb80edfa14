/// Threads that wait implicitly: by atomics that change nothing, fences, sleeps.
#include "../core.h"
#include "schedule.h"

#ifdef CUDA_ON_CPU_RACE
#include "race.h"
#endif

namespace cuda_on_cpu {
namespace {

// A thread that spins sets idle_atomics to this; the next atomic that changes something sets it to
// 0, so a spin that finds it below this has seen progress.
constexpr unsigned spinning_on = 1 << 16;

}  // namespace

/// The running thread can continue, but lets others run first.
///
/// Once all threads of the block have had their turns and still spin, only other blocks can help.
void Worker::yield_to_others() {
  leave_loop();
  leave_sweep();
  const unsigned self = current, w = self / 32;
  spinning[w] |= 1u << self % 32;
  if (idle_atomics < spinning_on) fruitless = 0;
  idle_atomics = spinning_on;
  if (converging[w]) check_convergence(w);
  if (++fruitless == 1) {
    if (waiting.since) job->gate.goes_on(*this);
    seen_changes = job->gate.changes();
  } else if (fruitless > 2 * live + 64) {
    job->gate.give_way(*this, seen_changes);
    seen_changes = job->gate.changes();
    fruitless = 2;
  }
  switch_to(unsigned(next_ready(self)));
}

void spin() {
  if (running) {
    running->yield_to_others();
  } else {
    idle_atomics = 0;
  }
}

void fence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#ifdef CUDA_ON_CPU_RACE
  if (running) race::fence();
#endif
  // A loop that reads a volatile flag has fences; so does much code that does not spin.
  if (++idle_atomics > 1000) spin();
}

void sleep_here() {
  if (running) running->yield_to_others();
}

#ifdef CUDA_ON_CPU_RACE
void atomic_begins(const void* address, unsigned size) {
  if (running) race::atomic(address, size, __builtin_return_address(0));
}
#endif

}  // namespace cuda_on_cpu
