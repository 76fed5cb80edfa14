/// A worker: an OS thread that runs blocks, one at a time, and schedules the threads of the block.
///
/// The threads that can run are a set of bits, 32 for each warp. A thread that has to wait switches
/// directly to the next of them, in the requested order, without a queue or a scheduler between.
#pragma once

#include "../launch.h"
#include "../warp.h"
#include "fiber.h"
#include "job.h"

#include <pthread.h>

namespace cuda_on_cpu {

constexpr unsigned most_threads = 1024, most_warps = 32;
constexpr size_t most_shared = 227 << 10, most_static_shared = 48 << 10;

/// A thread's wait, on its own stack; laid out by the code in entry.h.
struct Wait {
  const uint64_t* result;  // what it gets when it continues
  int line;
  unsigned mask;  // of a warp's meeting; 0: converged lanes, or a barrier
  const char* file;
  const char* name;
  bool at_barrier() const { return __builtin_strncmp(name, "__syncthreads", 13) == 0; }
  Place place() const { return {file, line}; }
};

struct Thread {
  void* resume;      // nullptr: not started
  const Wait* wait;  // meaningless while it can run
};

/// Lanes of a warp that have met so far.
struct Group {
  uint64_t meeting_and_mask;
  unsigned arrived;
  const char* name;
  Place place;
  unsigned mask() const { return unsigned(meeting_and_mask); }
  Meeting meeting() const { return Meeting(meeting_and_mask >> 32); }
};

/// The state of a warp while some of its lanes meet.
struct Warp {
  unsigned groups;  // bits: those of `group` in use
  Group group[32];
  uint64_t value[32];  // given by each lane, then its result
  unsigned argument[32];
};

/// What happened to a thread, from where it is noticed to where it can be reported.
struct Trouble {
  enum Kind { none, told, memory_fault, division, trap, stack, cancelled } kind = none;
  const void* code[4] = {};       // the place and its callers; the first that has a line counts
  const void* address = nullptr;  // what was accessed
  bool write = false;
  bool of_block = false;  // not of a single thread
  const char* rule = nullptr;
  std::string text;   // of `told`
  std::string place;  // if known better than by `code`
};

struct SharedSlot {
  void* address;
  uint64_t block;
};

struct Worker {
  // The block's threads, as bits for each warp.
  unsigned ready[most_warps], alive[most_warps], spinning[most_warps];
  unsigned converging[most_warps];  // groups without a mask
  unsigned ready_warps;
  unsigned threads, live, at_barrier;
  unsigned current;  // rank of the running thread; not kept in the loop over threads
  bool looping;      // threads run in the loop: none has waited yet
  bool sweeping;     // from barrier to barrier, in order: see barrier.cpp; `ready` is not kept
  Order order;
  unsigned yes;                     // predicates that hold so far at the current barrier
  uint64_t tally;                   // of the last barrier
  Thread thread[most_threads + 4];  // 4 more, for prefetching
  uint3 index[most_threads];        // of each rank
  dim3 index_shape{0, 0, 0};
  Warp warp[most_warps];
  uint64_t random;

  // The job.
  Job* job = nullptr;
  Worker* next_of_job = nullptr;
  pthread_t os_thread;
  uint64_t block = 0;
  Range taken;                // blocks that this one is to run
  bool takes_lowest = false;  // it was started because all others wait
  uint64_t serial = 0;        // counts blocks: shared memory of another serial is stale
  uint64_t fruitless = 0, seen_changes = 0;  // see spin.cpp
  Waiting waiting;
  Trouble trouble;

  // Stacks.
  void* main = nullptr;      // the OS thread's own
  Fiber* started = nullptr;  // the one last taken
  Fiber* idle = nullptr;
  Fiber* fibers[most_threads + 1];
  unsigned fiber_count = 0;
  uint64_t fiber_bytes = 0;
#ifdef CUDA_ON_CPU_MEMORY
  Fiber* fiber_of[most_threads];
  Fiber* loop_fiber;
  const void* main_low = nullptr;
  size_t main_bytes = 0;
  bool from_main = false;  // whether the switch that is being made comes from there
#endif

  // Shared memory.
  char* arena = nullptr;
  size_t arena_used = 0, static_used = 0;
  void* dynamic = nullptr;
  SharedSlot* slots = nullptr;
  int slot_room = 0;

  /// The worker of this OS thread.
  static Worker& mine();

  /// Runs blocks of a job until none is left or it is cancelled.
  void run(Job& job, bool takes_lowest = false);

  // Scheduling; the running thread calls these.
  [[gnu::always_inline]] void leave_loop() {
    if (looping) [[unlikely]]
      become_fibers();
  }
  [[gnu::always_inline]] void leave_sweep() {
    if (sweeping) end_sweep();
  }
  void end_sweep();
  void become_fibers();
  void begin_block_of_fibers();
  bool open_block();
  [[noreturn]] void live_on_fiber(Fiber& fiber);
  void thread_ends(Fiber& fiber);
  int first_ready();
  int next_ready(unsigned after);
  int pick_random();
  void* turn_to(unsigned next);
  void* turn_to_started(unsigned next);
  void switch_to(unsigned next);
  unsigned first_in_warp(unsigned warp, unsigned lanes);
  unsigned next_while_waiting();
  void release_barrier();
  void note_release();
  unsigned sweep_on(Wait& wait);
  void stop_if_cancelled();
  void check_convergence(unsigned warp);
  void complete(unsigned warp, unsigned group);
  void complete_groups_after_exit(unsigned warp);
  void yield_to_others();
  [[noreturn]] void deadlock();
  [[noreturn]] void give_up();

  // Stacks.
  Fiber& take_fiber();
  void renew_fibers();
  void drop_fibers();

  // Shared memory.
  void open_arena();
  void* lay_out(size_t bytes, size_t alignment, const char* name);

  [[gnu::always_inline]] void not_ready(unsigned rank) {
    const unsigned w = rank / 32;
    ready[w] &= ~(1u << rank % 32);
    if (!ready[w]) ready_warps &= ~(1u << w);
  }
  [[gnu::always_inline]] void make_ready(unsigned w, unsigned lanes) {
    ready[w] |= lanes;
    if (lanes) ready_warps |= 1u << w;
  }
};

/// The worker whose CUDA thread runs on this OS thread; nullptr on the host.
extern __thread Worker* running __attribute__((tls_model("initial-exec")));

/// The rank of the running thread, also in the loop.
unsigned rank_here(const Worker& worker);

/// Stops the thread, and with it the launch.
[[noreturn]] void raise_trouble(Worker& worker, Trouble trouble);
/// In check modes: all threads of the block wait in one and the same __syncthreads.
void check_one_place(Worker& worker);
/// Collects the first return addresses of this stack that are in the library of the kernel.
void find_author_code(const Job& job, const void** code, int count);
/// Text of the worker's trouble, with rows for kernel, block and thread.
std::string describe(Worker& worker);
/// Text of an exception that left a kernel; call it in a catch block.
Trouble of_exception();

}  // namespace cuda_on_cpu
