#include "worker.h"

#include "schedule.h"
#include "workers.h"

#include <cstring>

#define CUDA_ON_CPU_DEFINE_TLS __thread __attribute__((tls_model("initial-exec")))

CUDA_ON_CPU_DEFINE_TLS uint3 threadIdx;
CUDA_ON_CPU_DEFINE_TLS uint3 blockIdx;
CUDA_ON_CPU_DEFINE_TLS dim3 blockDim;
CUDA_ON_CPU_DEFINE_TLS dim3 gridDim;

namespace cuda_on_cpu {

CUDA_ON_CPU_DEFINE_TLS Word loop_is_over;
CUDA_ON_CPU_DEFINE_TLS unsigned idle_atomics;
CUDA_ON_CPU_DEFINE_TLS Worker* running;

bool in_kernel() { return running != nullptr; }

unsigned rank_here(const Worker& worker) {
  if (!worker.looping) return worker.current;
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

unsigned thread_rank() { return running ? rank_here(*running) : 0; }

void set_thread(unsigned x, unsigned y, unsigned z) { threadIdx = {x, y, z}; }

// How a block begins.

/// Claims the next block, and prepares everything for its first thread.
bool Worker::open_block() {
  job->gate.block_ends(*this);
  if (taken.is_empty()) {
    if (job->is_cancelled()) return false;
    taken = takes_lowest ? job->blocks.take_lowest() : job->blocks.take();
    if (taken.is_empty()) return false;
    if (!job->helped && taken.next > 0) help_if_long(*job);
  }
  block = job->blocks.index_at(taken.next++);
  const dim3 grid = job->launch.grid;
  if (grid.y == 1 && grid.z == 1) {
    blockIdx = {unsigned(block), 0, 0};
  } else {
    const uint64_t row = block / grid.x;
    blockIdx = {unsigned(block % grid.x), unsigned(row % grid.y), unsigned(row / grid.y)};
  }
  ++serial;
  idle_atomics = 0;
  open_arena();
  if (job->one_by_one) {
    begin_block_of_fibers();
  } else {
    looping = true, sweeping = false;
    threadIdx.x = no_index;
    loop_is_over = Word(0);
  }
  return true;
}

void Worker::begin_block_of_fibers() {
  looping = true, threadIdx = {0, 0, 0};
  become_fibers();
  if (order == Order::random) random = mix(options().seed ^ mix(block));
  current = unsigned(first_ready());
  threadIdx = index[current];
}

/// From here on, this thread of the block and those after it are scheduled.
///
/// Those before it ran to their ends in the loop.
void Worker::become_fibers() {
  const unsigned rank = rank_here(*this);
  const dim3 shape = job->launch.block;
  if (std::memcmp(&shape, &index_shape, sizeof shape) != 0) {
    index_shape = shape;
    unsigned i = 0;
    for (unsigned z = 0; z < shape.z; ++z)
      for (unsigned y = 0; y < shape.y; ++y)
        for (unsigned x = 0; x < shape.x; ++x) index[i++] = {x, y, z};
  }
  ready_warps = 0;
  for (unsigned w = 0; w < most_warps; ++w) {
    alive[w] = ready[w] = lanes_between(w, rank, threads);
    spinning[w] = 0;
    warp[w].groups = converging[w] = 0;
    if (ready[w]) ready_warps |= 1u << w;
  }
  for (unsigned i = 0; i < threads; ++i) thread[i].resume = nullptr;
  live = threads - rank;
  at_barrier = 0;
  yes = 0;
  fruitless = 0;
  current = rank;
#ifdef CUDA_ON_CPU_MEMORY
  fiber_of[rank] = loop_fiber;
#endif
  looping = sweeping = false;
  loop_is_over = Word(1);
}

// Which thread runs next: schedule.h.

int Worker::pick_random() {
  unsigned count = 0;
  for (unsigned w = 0; w < most_warps; ++w) count += unsigned(__builtin_popcount(ready[w]));
  random = mix(random);
  unsigned skip = unsigned((random >> 32) * count >> 32);
  for (unsigned w = 0;; ++w) {
    const auto here = unsigned(__builtin_popcount(ready[w]));
    if (skip < here) {
      unsigned lanes = ready[w];
      while (skip--) lanes &= lanes - 1;
      return int(w * 32) + __builtin_ctz(lanes);
    }
    skip -= here;
  }
}

// How threads begin, wait and end.

/// Runs threads, each to its end, and blocks. Each fiber is here when it is not in a kernel.
void Worker::live_on_fiber(Fiber& fiber) {
  for (;;) {
#ifdef CUDA_ON_CPU_MEMORY
    if (looping) {
      loop_fiber = &fiber;
    } else {
      fiber_of[current] = &fiber;
    }
#endif
    Span span{0, blockDim.x, 0, blockDim.y, 0, blockDim.z};
    if (!looping) {
      const uint3 i = index[current];
      span = {i.x, i.x + 1, i.y, i.y + 1, i.z, i.z + 1};
#ifdef CUDA_ON_CPU_RACE
      race::thread_runs(current);
#endif
    }
    try {
      job->launch.run(job->launch.call, span, job->fast);
    } catch (...) {
      raise_trouble(*this, of_exception());
    }
    if (looping || (thread_ends(fiber), live == 0)) {
      if (open_block()) continue;
      fiber.next_idle = idle, idle = &fiber;
      sanitizer::Switch note(*this);
      switch_stacks(&fiber.resume, main);
    }
  }
}

/// Removes the thread that has ended from the block. Then `current` is the next thread to start on
/// this fiber, or the block is done.
void Worker::thread_ends(Fiber& fiber) {
#ifdef CUDA_ON_CPU_RACE
  race::thread_ends(current);
#endif
  leave_sweep();
  const unsigned w = current / 32, bit = 1u << current % 32;
  not_ready(current);
  alive[w] &= ~bit, spinning[w] &= ~bit;
  fruitless = 0;
  if (--live == 0) return;
  if (at_barrier == live) {
    release_barrier();
  } else {
    if (warp[w].groups) complete_groups_after_exit(w);
  }
  const int next = next_ready(current);
  if (next < 0) deadlock();
  current = unsigned(next);
  threadIdx = index[current];
  if (!thread[current].resume) {
    thread[current].resume = &fiber;  // marks it as started; it sets this before it waits
    return;
  }
#ifdef CUDA_ON_CPU_RACE
  race::thread_runs(current);
#endif
  fiber.next_idle = idle, idle = &fiber;
  sanitizer::Switch note(*this, current);
  switch_stacks(&fiber.resume, thread[current].resume);
  // This fiber was taken for `current`.
}

}  // namespace cuda_on_cpu
