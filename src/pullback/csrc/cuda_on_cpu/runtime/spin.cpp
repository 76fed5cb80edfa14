/// Threads that wait without saying so: by atomics that change nothing, fences, sleeps.
#include "../core.h"
#include "schedule.h"
#include "workers.h"

#ifdef CUDA_ON_CPU_RACE
#include "race.h"
#endif

#include <sched.h>

namespace cuda_on_cpu {
namespace {

// What idle_atomics is set to by a thread that spins; the next atomic that changes something sets
// it to 0, so a spin that finds it below this has seen progress.
constexpr unsigned spinning_on = 1 << 16;
constexpr uint64_t microseconds_to_grow = 5000, microseconds_to_fail = 1000000,
                   microseconds_of_now = 50000;

uint64_t load(const uint64_t& value) { return __atomic_load_n(&value, __ATOMIC_RELAXED); }
void store(uint64_t& to, uint64_t value) { __atomic_store_n(&to, value, __ATOMIC_RELAXED); }

/// Whether every worker of the job has done nothing but spin for long.
bool all_are_stuck(Job& job, uint64_t now) {
  const uint64_t tick = ticks_per_microsecond();
  for (const Worker* worker = job.workers; worker; worker = worker->next_of_job) {
    if (load(worker->stuck_since) + microseconds_to_fail * tick > now) return false;
    if (load(worker->spun_at) + microseconds_of_now * tick < now) return false;
  }
  return true;
}

/// All threads of this block have had their turns and still spin: only others can help.
void spin_as_block(Worker& worker, bool first) {
  Job& job = *worker.job;
  const uint64_t now = ticks(), tick = ticks_per_microsecond();
  if (first) store(worker.stuck_since, now);
  store(worker.spun_at, now);
  worker.stop_if_cancelled();
  const uint64_t stuck = now - worker.stuck_since;
  help(job);
  if (stuck > microseconds_to_grow * tick) grow(job);
  if (stuck > microseconds_to_fail * tick) {
    std::unique_lock lock(job.mutex);
    if (all_are_stuck(job, now)) {
      lock.unlock();
      stop("cuda-timeout [PB224]",
           "every thread that runs waits for a change of memory that none will make\n"
           "    help: the threads spin on an atomic or a fence; look for the lock or flag that is "
           "never set, or for a barrier over more blocks than can run at once");
    }
  }
  ::sched_yield();
}

}  // namespace

/// The running thread can go on, but others first.
void Worker::yield_to_others() {
  leave_loop();
  leave_sweep();
  const unsigned self = current, w = self / 32;
  spinning[w] |= 1u << self % 32;
  if (idle_atomics < spinning_on) fruitless = 0;
  idle_atomics = spinning_on;
  if (converging[w]) check_convergence(w);
  const uint64_t turns = 2 * live + 64;
  if (++fruitless > turns) spin_as_block(*this, fruitless == turns + 1);
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
  // A loop that reads a volatile flag has one; so has much code that does not spin.
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
