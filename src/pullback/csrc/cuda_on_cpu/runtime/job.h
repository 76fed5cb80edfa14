/// One launch under way: its blocks, handed out to workers, and what went wrong.
#pragma once

#include "../launch.h"
#include "blocks.h"
#include "gate.h"
#include "options.h"

#include <atomic>
#include <mutex>
#include <string>

namespace cuda_on_cpu {

struct Worker;

/// Why a launch is cancelled from outside.
enum class Cancel : int { no, failed, timeout, interrupted };

struct Job {
  const Launch& launch;
  Order order;
  bool one_by_one;  // each thread is started by the scheduler, none by a loop
  bool fast;        // the index over the grid fits an int
  Blocks blocks;
  Gate gate;
  std::atomic<Cancel> cancel{Cancel::no};
  uint64_t began;  // ticks
  std::atomic<bool> helped{false};

  std::mutex mutex;
  std::string failure;                    // the first; rendered
  Worker* workers = nullptr;              // those that run blocks of it; by Worker::next_of_job
  Job* next_job = nullptr;                // in the list of the watchdog
  uint64_t cancelled_at = 0;              // the watchdog's
  uintptr_t code_low = 0, code_high = 0;  // where threads may be interrupted

  explicit Job(const Launch& launch);

  /// Records the first failure, and makes all workers stop.
  void fail(std::string text);
  bool is_cancelled() const { return cancel.load(std::memory_order_relaxed) != Cancel::no; }
};

/// Time in the processor's cheapest unit, and how many of them are a microsecond (about).
uint64_t ticks();
uint64_t ticks_per_microsecond();

/// A random number of high quality from any seed.
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace cuda_on_cpu
