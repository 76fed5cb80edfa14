#include "gate.h"

#include "../core.h"
#include "schedule.h"
#include "workers.h"

#include <algorithm>
#include <chrono>

namespace cuda_on_cpu {
namespace {

using std::chrono::microseconds;

// A lock may be released soon or late: a sleeper tries again after a fraction of the time for which
// it has waited.
constexpr uint64_t part_of_wait = 4, longest_sleep = 20000, until_failure = 1000000;
// Rounds in which all try in vain: before another block begins, and before it counts as a deadlock.
constexpr unsigned rounds_to_begin = 2, rounds_to_fail = 8;
// Each stack of a thread is two mappings of the 65,530 that Linux allows a process.
constexpr uint64_t most_stacks = 24 << 10, most_workers_at_all = 256;

}  // namespace

void Gate::joins(Worker& worker) {
  const std::lock_guard lock(mutex_);
  places_ = cuda_on_cpu::workers();
  worker.waiting.sleeps = false, worker.waiting.has_place = true;
  worker.waiting.seen = worker.waiting.since = 0;
  workers_.push_back(&worker);
  one_begins_ = false;
  ++running_;
}

void Gate::wait_for_begun() {
  for (std::unique_lock lock(mutex_); !begun_.empty();) {
    std::thread one = std::move(begun_.back());
    begun_.pop_back();
    lock.unlock();
    one.join();
    lock.lock();
  }
}

void Gate::leaves(Worker& worker) {
  const std::lock_guard lock(mutex_);
  workers_.erase(std::find(workers_.begin(), workers_.end(), &worker));
  changes_.fetch_add(1, std::memory_order_relaxed);
  if (worker.waiting.has_place) --running_;
  wake_one(nullptr);
}

void Gate::goes_on(Worker& worker) {
  const std::lock_guard lock(mutex_);
  worker.waiting.since = 0;
  changes_.fetch_add(1, std::memory_order_relaxed);
  rounds_ = 0;
  wake_one(nullptr);
}

/// Wakes the lowest block that has not tried since the last change, if there is a place.
void Gate::wake_one(const Worker* but) {
  if (running_ >= places_) return;
  Worker* lowest = nullptr;
  for (Worker* each : workers_) {
    if (each == but || !each->waiting.sleeps || each->waiting.seen == changes()) continue;
    if (!lowest || each->block < lowest->block) lowest = each;
  }
  if (!lowest) return;
  lowest->waiting.sleeps = false, lowest->waiting.has_place = true;
  ++running_;
  lowest->waiting.wake.notify_one();
}

bool Gate::all_have_tried() const {
  return std::all_of(workers_.begin(), workers_.end(), [&](const Worker* each) {
    return each->waiting.sleeps && each->waiting.seen == changes();
  });
}

/// Decides what to do now that one more sleeps.
Gate::Verdict Gate::judge(uint64_t now) {
  if (one_begins_ || !all_have_tried()) return Verdict::go_on;
  if (!rounds_) stuck_since_ = now;
  ++rounds_;
  // A plain write, which nobody reports, may have released one: all try again.
  changes_.fetch_add(1, std::memory_order_relaxed);
  if (rounds_ < rounds_to_begin) return Verdict::go_on;
  const uint64_t threads = workers_.front()->threads, many = workers_.size() + 1;
  full_ = full_ || many > most_workers_at_all || many * threads > most_stacks;
  if (!full_ && !job_.blocks.is_empty()) return Verdict::begin_another;
  const bool long_enough = now - stuck_since_ > until_failure * ticks_per_microsecond();
  return rounds_ > rounds_to_fail && long_enough ? Verdict::none_can : Verdict::go_on;
}

void Gate::give_way(Worker& worker, uint64_t seen) {
  worker.stop_if_cancelled();
  help(job_);
  Waiting& waiting = worker.waiting;
  anyone_waited_ = true;
  const uint64_t now = ticks();
  std::unique_lock lock(mutex_);
  if (!waiting.since) waiting.since = now;
  waiting.seen = seen;
  waiting.sleeps = true;
  if (waiting.has_place) --running_;
  waiting.has_place = false;
  // Others may begin the blocks that this worker has taken and cannot begin.
  job_.blocks.give_back(worker.taken);
  worker.taken = {};
  switch (judge(now)) {
    case Verdict::none_can:
      waiting.sleeps = false;
      lock.unlock();
      report(worker);
    case Verdict::begin_another:
      rounds_ = 0;
      one_begins_ = begin_another(job_, begun_);
      full_ = !one_begins_;
      break;
    case Verdict::go_on: wake_one(&worker);
  }
  sleep(worker, lock, now);
  lock.unlock();
  worker.stop_if_cancelled();
}

/// Sleeps until it is woken, or until it is time to try again and there is a place; in the end
/// without a place, since the block that has it may wait in a way that nobody sees.
void Gate::sleep(Worker& worker, std::unique_lock<std::mutex>& lock, uint64_t now) {
  Waiting& waiting = worker.waiting;
  const uint64_t waited = (now - waiting.since) / ticks_per_microsecond();
  const microseconds pause(std::clamp<uint64_t>(waited / part_of_wait, 1, longest_sleep));
  const auto woken = [&] { return !waiting.sleeps || job_.is_cancelled(); };
  if (!waiting.wake.wait_for(lock, pause, woken) && running_ >= places_)
    waiting.wake.wait_for(lock, microseconds(longest_sleep), woken);
  if (!waiting.sleeps) return;  // with a place
  waiting.sleeps = false;
  if (running_ < places_) {
    waiting.has_place = true;
    ++running_;
  }
}

void Gate::report(Worker&) {
  if (full_ && !job_.blocks.is_empty()) {
    stop("cuda-timeout [PB224]",
         "every block that runs waits for a change of memory that none will make, and no more "
         "blocks can begin\n"
         "    help: %zu blocks wait, and others have not begun: a barrier over the grid needs a "
         "smaller grid, or smaller blocks",
         workers_.size());
  }
  stop("cuda-timeout [PB224]",
       "every thread that runs waits for a change of memory that none will make\n"
       "    help: the threads spin on an atomic or a fence; look for the lock or flag that is "
       "never set, or for a barrier over more blocks than can run at once");
}

}  // namespace cuda_on_cpu
