/// Which of a launch's blocks run, where some wait for others.
///
/// A block whose threads all spin yields: its worker sleeps, and the next block in order continues
/// that may have got what it waits for. So no more blocks run than there should be workers, and
/// another one begins only if all that have begun wait. A GPU treats a grid that is larger than it
/// can hold in the same way: blocks begin in order, and a program may rely on a lower one having
/// begun.
///
/// It is not known what a block waits for, so each sleeper tries again from time to time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace cuda_on_cpu {

struct Job;
struct Worker;

/// The gate's state for a worker.
struct Waiting {
  std::condition_variable wake;
  bool sleeps = false;
  bool has_place = true;  // it counts among those that run
  uint64_t seen = 0;      // the count of changes when its last fruitless round began
  uint64_t since = 0;     // when it began to wait, ticks; 0: it does not wait
};

class Gate {
 public:
  explicit Gate(Job& job) : job_(job) {}

  /// A worker begins, or ends, to run blocks.
  void joins(Worker& worker);
  void leaves(Worker& worker);
  /// A worker's block ends, or a waiting thread of it continues: others may wait for that.
  void block_ends(Worker& worker) {
    if (anyone_waited_.load(std::memory_order_relaxed)) goes_on(worker);
  }
  void goes_on(Worker& worker);
  uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }
  /// All threads of the worker's block have spun since `seen` changes: sleeps until it may try again.
  /// Stops the launch once this holds for all running blocks, repeatedly.
  void give_way(Worker& worker, uint64_t seen);
  /// Waits for the OS threads that were started because all others waited.
  void wait_for_begun();

 private:
  enum class Verdict { go_on, begin_another, none_can };
  Verdict judge(uint64_t now);
  bool all_have_tried() const;
  void wake_one(const Worker* but);
  void sleep(Worker& worker, std::unique_lock<std::mutex>& lock, uint64_t now);
  [[noreturn]] void report(Worker& worker);

  Job& job_;
  std::mutex mutex_;
  std::atomic<uint64_t> changes_{1};
  std::vector<Worker*> workers_;  // those that run blocks
  std::vector<std::thread> begun_;
  std::atomic<bool> anyone_waited_{false};
  int places_ = 0;  // how many may run at once
  int running_ = 0;
  bool one_begins_ = false;  // a worker was asked for and has not joined
  bool full_ = false;        // there can be no more
  unsigned rounds_ = 0;      // in a row in which no block could continue
  uint64_t stuck_since_ = 0;
};

}  // namespace cuda_on_cpu
