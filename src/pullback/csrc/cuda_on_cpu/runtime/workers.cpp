#include "workers.h"

#include "signals.h"
#include "worker.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <new>
#include <system_error>

#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <time.h>
#endif

namespace cuda_on_cpu {
namespace {

constexpr uint64_t microseconds_worth_help = 20;

struct Pool {
  std::mutex mutex;
  std::condition_variable wake, done;
  Job* job = nullptr;
  int wanted = 0;   // OS threads that should run it at once
  int active = 0;   // those that do
  int threads = 0;  // those that exist
};

alignas(Pool) unsigned char pool_memory[sizeof(Pool)];

/// Never destroyed: its threads outlive main(). Made again in a forked child, which has none.
Pool& pool() {
  static Pool* const made = [] {
    ::pthread_atfork(nullptr, nullptr, [] { new (pool_memory) Pool; });
    return new (pool_memory) Pool;
  }();
  return *made;
}

/// Blocks the process's signals in this OS thread: they are for the program's own threads.
void leave_signals_to_others() {
  sigset_t ours;
  sigfillset(&ours);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGURG})
    sigdelset(&ours, number);
  ::pthread_sigmask(SIG_SETMASK, &ours, nullptr);
}

void help_for_ever() {
  leave_signals_to_others();
  Pool& p = pool();
  std::unique_lock lock(p.mutex);
  for (;;) {
    p.wake.wait(lock, [&] { return p.job && p.wanted > p.active; });
    Job& job = *p.job;
    ++p.active;
    lock.unlock();
    Worker::mine().run(job);
    lock.lock();
    // It found no block left, so no other need look.
    --p.active, p.wanted = p.active;
    if (p.active == 0) p.done.notify_all();
  }
}

/// Takes the pool for the job; false if another launch has it.
bool claim(Pool& p, Job& job) {
  if (!p.job) p.job = &job;
  return p.job == &job;
}

void add_threads(Pool& p, int count) {
  for (; p.threads < count; ++p.threads) std::thread(help_for_ever).detach();
}

}  // namespace

uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
#endif
}

uint64_t ticks_per_microsecond() {
  static const uint64_t known = [] {
#if defined(__x86_64__)
    const auto nanoseconds = [] {
      timespec now;
      ::clock_gettime(CLOCK_MONOTONIC, &now);
      return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
    };
    const uint64_t from = nanoseconds(), first = ticks();
    while (nanoseconds() < from + 100000) {
    }
    const uint64_t last = ticks(), to = nanoseconds();
    return std::max<uint64_t>((last - first) * 1000 / (to - from), 1);
#else
    return uint64_t{1000};
#endif
  }();
  return known;
}

void help(Job& job) {
  if (job.helped.exchange(true, std::memory_order_relaxed)) return;
  const int helpers = workers() - 1;
  if (helpers <= 0) return;
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  if (!claim(p, job)) return;
  add_threads(p, helpers);
  p.wanted = helpers;
  p.wake.notify_all();
}

void help_if_long(Job& job) {
  if (ticks() - job.began > microseconds_worth_help * ticks_per_microsecond()) help(job);
}

bool begin_another([[maybe_unused]] Job& job, [[maybe_unused]] std::vector<std::thread>& begun) {
#ifndef CUDA_ON_CPU_RACE  // the detector follows one OS thread at a time
  try {
    begun.emplace_back([&job] {
      leave_signals_to_others();
      Worker::mine().run(job, true);
      signals::done_on_this_thread();
    });
    return true;
  } catch (const std::system_error&) {
  }
#endif
  return false;
}

void wait_for_helpers(Job& job) {
  job.gate.wait_for_begun();
  if (!job.helped) return;
  Pool& p = pool();
  std::unique_lock lock(p.mutex);
  if (p.job != &job) return;
  p.job = nullptr, p.wanted = 0;
  p.done.wait(lock, [&] { return p.active == 0; });
  lock.unlock();
  job.gate.wait_for_begun();  // by one of the helpers
}

}  // namespace cuda_on_cpu
