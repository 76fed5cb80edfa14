/// Kernels in steps, told to the detector without a scheduler: all threads do a step, then meet.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "runtime/race.h"

namespace race = cuda_on_cpu::race;

/// A launch of blocks of `threads` threads. Its memory must not be on the stack, which is private.
class Launch {
 public:
  explicit Launch(unsigned threads, unsigned blocks = 1) : threads_(threads) {
    race::launch_begins("kernel", "rules.cu", 1, {blocks, 1, 1}, {threads, 1, 1});
  }
  /// The next block, with these bytes as its shared memory.
  template <class Shared>
  void block(unsigned index, Shared& shared) {
    race::block_begins(index, reinterpret_cast<const char*>(&shared), sizeof shared);
    race::shared_variable(&shared, sizeof shared, "s");
  }
  template <class F>
  void thread(unsigned index, F f) {
    race::thread_runs(index);
    f();
    race::no_thread_runs();
  }
  template <class F>
  void threads(F f) {
    for (unsigned t = 0; t < threads_; ++t) {
      thread(t, [&] { f(t); });
    }
  }
  void barrier() { race::barrier(threads_); }
  void warps_meet(uint32_t lanes = ~0u) {
    for (unsigned warp = 0; warp < (threads_ + 31) / 32; ++warp) race::collective(warp, lanes);
  }
  /// What the detector says: "" or its report.
  std::string end() {
    try {
      race::launch_ends();
      return {};
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }

 private:
  unsigned threads_;
};
