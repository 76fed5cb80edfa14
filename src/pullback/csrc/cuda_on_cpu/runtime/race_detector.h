/// The race detector itself: compares each access with those before it. The rules are in race.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "race_clocks.h"
#include "race_findings.h"
#include "race_shadow.h"

namespace cuda_on_cpu::race {

class Detector {
 public:
  void launch_begins(const char* kernel, const char* file, int line, uint3 grid, uint3 block);
  Report launch_ends();
  void block_begins(uint64_t block, Span shared);
  void thread_runs(unsigned thread);
  void no_thread_runs();
  void thread_ends(unsigned thread);
  void barrier();
  void collective(unsigned warp, uint32_t lanes);
  void fence();

  /// The running thread is about to read. `kind` has Kind's bits.
  void read(uintptr_t address, size_t bytes, unsigned kind, const void* pc);
  /// The running thread is about to write.
  void write(uintptr_t address, size_t bytes, unsigned kind, const void* pc);
  /// The running thread has written; `same`: the value that was there before.
  void wrote(uintptr_t address, size_t bytes, const void* pc, bool same);
  void atomic(uintptr_t address, size_t bytes, const void* pc);
  /// An atomic in the author's code that does not go through a function of CUDA's.
  void own_atomic(uintptr_t address, size_t bytes, unsigned kind, int order, const void* pc);

  const void* looking() const { return looking_; }
  Shadow& shadow() { return shadow_; }
  Findings& findings() { return findings_; }

 private:
  /// A write that has not happened yet, so it is not known whether it changes the value.
  struct Pending {
    uintptr_t address;
    size_t bytes = 0;  // 0: there is none
    unsigned kind, reads;
    const void* pc;
    unsigned char before[64];
  };

  void settle() {
    if (pending_.bytes) settle_pending();
  }
  void settle_pending();
  void add_writes(uintptr_t address, size_t bytes, unsigned kind, const void* pc, bool same);
  Access access(unsigned kind, unsigned bytes, const void* pc) const;
  bool races(const Access& then, const Access& now, bool shared) const;
  bool agreed(const Cell& cell, const Access& now) const;
  void add_read(Cell& cell, const Access& now, uintptr_t address, bool shared);
  void add_write(Cell& cell, const Access& now, uintptr_t address, bool shared);
  void remember(Cell& cell, const Access& now);

  Clocks clocks_;
  Shadow shadow_;
  Findings findings_;
  Pending pending_;
  const void* looking_ = nullptr;  // the code whose memory is being read here
  unsigned threads_ = 0;           // of a block
  unsigned thread_ = 0;            // the running one
  uintptr_t atomic_ = 0;           // the last one's address, until another thread runs
  unsigned victim_ = 0;            // the next access to be forgotten where there is no room
  bool too_large_ = false;         // more blocks than can be numbered: the rest is not watched
};

/// The only one: one launch runs at a time.
Detector& detector();

/// The detector, while a CUDA thread runs on this OS thread; otherwise null.
extern __thread Detector* running __attribute__((tls_model("initial-exec")));

}  // namespace cuda_on_cpu::race
