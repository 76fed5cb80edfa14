/// The part of scheduling that every wait goes through, inline: choosing the next thread, and the
/// switch.
#pragma once

#ifdef CUDA_ON_CPU_RACE
#include "race.h"
#endif
#include "sanitizer.h"
#include "worker.h"

namespace cuda_on_cpu {

inline int Worker::first_ready() {
  if (!ready_warps) return -1;
  if (order == Order::forward) {
    const unsigned w = unsigned(__builtin_ctz(ready_warps));
    return int(w * 32) + __builtin_ctz(ready[w]);
  }
  if (order == Order::random) return pick_random();
  const unsigned w = 31 - unsigned(__builtin_clz(ready_warps));
  return int(w * 32 + 31) - __builtin_clz(ready[w]);
}

/// Bits of the threads [from, to) within a warp.
inline unsigned lanes_between(unsigned warp, unsigned from, unsigned to) {
  const unsigned base = warp * 32;
  if (to <= base || from >= base + 32) return 0;
  unsigned lanes = ~0u;
  if (from > base) lanes &= ~0u << (from - base);
  if (to < base + 32) lanes &= ~0u >> (base + 32 - to);
  return lanes;
}

inline bool same_place(const Place& a, const Place& b) {
  return a.line == b.line && (a.file == b.file || __builtin_strcmp(a.file, b.file) == 0);
}

/// A cancelled launch ends here without a signal, for example at a barrier in an endless loop.
[[gnu::always_inline]] inline void Worker::stop_if_cancelled() {
  if (!job->is_cancelled()) [[likely]]
    return;
  Trouble trouble;
  trouble.kind = Trouble::cancelled;
  find_author_code(*job, trouble.code, 4);
  raise_trouble(*this, static_cast<Trouble&&>(trouble));
}

/// The next thread after `after` that can run, around the block, in the order of the launch.
inline int Worker::next_ready(unsigned after) {
  const unsigned w = after / 32, lane = after % 32;
  if (order == Order::forward) [[likely]] {
    const unsigned rest = ready[w] & (~1u << lane);
    if (rest) [[likely]]
      return int(w * 32) + __builtin_ctz(rest);
    unsigned warps = ready_warps & (~1u << w);
    if (!warps) warps = ready_warps;
    if (!warps) return -1;
    const unsigned to = unsigned(__builtin_ctz(warps));
    return int(to * 32) + __builtin_ctz(ready[to]);
  }
  if (order == Order::random) return ready_warps ? pick_random() : -1;
  const unsigned rest = ready[w] & ~(~0u << lane);
  if (rest) return int(w * 32 + 31) - __builtin_clz(rest);
  unsigned warps = ready_warps & ~(~0u << w);
  if (!warps) warps = ready_warps;
  if (!warps) return -1;
  const unsigned to = 31 - unsigned(__builtin_clz(warps));
  return int(to * 32 + 31) - __builtin_clz(ready[to]);
}

/// From now on `next`, which has started, runs. Returns where it continues.
[[gnu::always_inline]] inline void* Worker::turn_to_started(unsigned next) {
  current = next;
  threadIdx = index[next];
#ifdef CUDA_ON_CPU_RACE
  race::thread_runs(next);
#endif
  return thread[next].resume;
}

/// The same for any thread; one that has not started begins.
[[gnu::always_inline]] inline void* Worker::turn_to(unsigned next) {
  if (!thread[next].resume) [[unlikely]] {
    Fiber& fiber = take_fiber();
    thread[next].resume = fiber.resume;
#ifdef CUDA_ON_CPU_MEMORY
    fiber_of[next] = &fiber;
#endif
  }
  return turn_to_started(next);
}

/// Switches to another thread; returns when this one continues.
[[gnu::always_inline]] inline void Worker::switch_to(unsigned next) {
  const unsigned self = current;
  if (next == self) return;
  void* const resume = turn_to(next);
  sanitizer::Switch note(*this, next);
  switch_stacks(&thread[self].resume, resume);
}

/// The running thread waits: returns the one to continue with.
[[gnu::always_inline]] inline unsigned Worker::next_while_waiting() {
  const unsigned self = current, w = self / 32, lane = self % 32;
  const unsigned left = ready[w] & ~(1u << lane);
  ready[w] = left;
  if (!left) ready_warps &= ~(1u << w);
  if (converging[w]) [[unlikely]]
    check_convergence(w);
  // Most often it is the next thread. A branch, which the processor predicts: so it need not wait
  // for the bits to know which stack comes next.
  if (order == Order::forward && (left >> lane & 2)) [[likely]]
    return self + 1;
  const int next = next_ready(self);
  if (next < 0) [[unlikely]]
    deadlock();
  return unsigned(next);
}

/// After a meeting its lanes run first.
inline unsigned Worker::first_in_warp(unsigned w, unsigned lanes) {
  if (order == Order::forward) [[likely]]
    return w * 32 + unsigned(__builtin_ctz(lanes));
  if (order == Order::reverse) return w * 32 + 31 - unsigned(__builtin_clz(lanes));
  return unsigned(pick_random());
}

}  // namespace cuda_on_cpu
