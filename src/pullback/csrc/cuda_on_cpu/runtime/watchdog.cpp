#include "watchdog.h"

#include "signals.h"
#include "worker.h"

#include <link.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <new>
#include <thread>

namespace cuda_on_cpu::watchdog {
namespace {

// In microseconds. Once a launch has to end, tries often: a thread may spend much of its time in a
// library, where it must not be interrupted.
constexpr uint64_t period = 20000, period_of_tries = 1000, until_ctrl_c = 50000,
                   until_forced = 700000;
constexpr int idle_rounds = 250;  // then the watchdog's OS thread ends

struct Watch {
  std::mutex mutex;
  Job* jobs = nullptr;
  bool lives = false;
  bool has_ctrl_c = false;  // our handler of SIGINT is installed
  struct sigaction before = {};
};

alignas(Watch) unsigned char memory[sizeof(Watch)];
std::atomic<bool> interrupted;

Watch& watch() {
  static Watch* const made = [] {
    ::pthread_atfork(nullptr, nullptr, [] { new (memory) Watch; });
    return new (memory) Watch;
  }();
  return *made;
}

/// Python's handler notes the signal, and raises KeyboardInterrupt once the launch has returned.
void on_ctrl_c(int number, siginfo_t* info, void* context) {
  interrupted = true;
  const struct sigaction& other = reinterpret_cast<Watch*>(memory)->before;
  if (other.sa_flags & SA_SIGINFO) {
    other.sa_sigaction(number, info, context);
  } else {
    other.sa_handler(number);
  }
}

/// If nobody handles Ctrl-C, it ends the program, which is right.
void take_ctrl_c(Watch& w) {
  struct sigaction current;
  ::sigaction(SIGINT, nullptr, &current);
  if (current.sa_handler == SIG_DFL || current.sa_handler == SIG_IGN) return;
  if (current.sa_sigaction == on_ctrl_c) return;
  w.before = current;
  struct sigaction ours = {};
  ours.sa_sigaction = on_ctrl_c;
  ours.sa_flags = (current.sa_flags & (SA_RESTART | SA_ONSTACK | SA_NODEFER)) | SA_SIGINFO;
  ours.sa_mask = current.sa_mask;
  ::sigaction(SIGINT, &ours, nullptr);
  w.has_ctrl_c = true;
}

void give_back_ctrl_c(Watch& w) {
  struct sigaction current;
  ::sigaction(SIGINT, nullptr, &current);
  if (current.sa_sigaction == on_ctrl_c) ::sigaction(SIGINT, &w.before, nullptr);
  w.has_ctrl_c = false;
}

/// Finds the code of the kernel's library: only there may a thread be interrupted.
void find_code(Job& job) {
  struct Search {
    uintptr_t kernel, low = 0, high = 0;
  } search{reinterpret_cast<uintptr_t>(job.launch.run)};
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* raw) {
        auto& found = *static_cast<Search*>(raw);
        for (int i = 0; i < library->dlpi_phnum; ++i) {
          const auto& part = library->dlpi_phdr[i];
          const uintptr_t low = library->dlpi_addr + part.p_vaddr, high = low + part.p_memsz;
          if (part.p_type != PT_LOAD || found.kernel < low || found.kernel >= high) continue;
          found.low = low, found.high = high;
          return 1;
        }
        return 0;
      },
      &search);
  job.code_low = search.low, job.code_high = search.high;
}

/// Returns whether the job has to end.
bool look_at(Watch& w, Job& job) {
  const uint64_t age = (ticks() - job.began) / ticks_per_microsecond();
  if (age > until_ctrl_c && !w.has_ctrl_c) take_ctrl_c(w);
  Cancel none = Cancel::no;
  if (interrupted) job.cancel.compare_exchange_strong(none, Cancel::interrupted);
  none = Cancel::no;
  const double limit = options().timeout_seconds;
  if (limit > 0 && double(age) > limit * 1e6)
    job.cancel.compare_exchange_strong(none, Cancel::timeout);
  if (!job.is_cancelled()) return false;
  if (!job.cancelled_at) {
    job.cancelled_at = ticks();
    find_code(job);
  } else if ((ticks() - job.cancelled_at) / ticks_per_microsecond() > until_forced) {
    job.code_low = 0, job.code_high = ~uintptr_t{0};  // anywhere
  }
  for (Worker* worker = job.workers; worker; worker = worker->next_of_job) {
    ::pthread_kill(worker->os_thread, signals::break_off);
  }
  return true;
}

void live() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  Watch& w = watch();
  bool trying = false;
  for (int idle = 0;;) {
    const timespec pause{0, long((trying ? period_of_tries : period) * 1000)};
    ::nanosleep(&pause, nullptr);
    const std::lock_guard lock(w.mutex);
    idle = w.jobs ? 0 : idle + 1;
    if (idle > idle_rounds) {
      w.lives = false;
      return;
    }
    trying = false;
    for (Job* job = w.jobs; job; job = job->next_job) trying |= look_at(w, *job);
  }
}

}  // namespace

void begin(Job& job) {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  job.next_job = w.jobs, w.jobs = &job;
  if (!w.lives) {
    w.lives = true;
    std::thread(live).detach();
  }
}

void end(Job& job) {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  Job** at = &w.jobs;
  while (*at != &job) at = &(*at)->next_job;
  *at = job.next_job;
  if (w.jobs) return;
  interrupted = false;
  if (w.has_ctrl_c) give_back_ctrl_c(w);
}

void joins(Job& job, Worker& worker) {
  const std::lock_guard lock(watch().mutex);
  worker.next_of_job = job.workers, job.workers = &worker;
}

void leaves(Job& job, Worker& worker) {
  const std::lock_guard lock(watch().mutex);
  Worker** at = &job.workers;
  while (*at != &worker) at = &(*at)->next_of_job;
  *at = worker.next_of_job;
}

}  // namespace cuda_on_cpu::watchdog
