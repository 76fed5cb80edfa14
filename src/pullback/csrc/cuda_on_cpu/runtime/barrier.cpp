/// Barriers of a block.
///
/// Most blocks of fibers go from barrier to barrier, each thread after the other: they sweep. Then
/// no bookkeeping is needed: the threads before the running one wait, and the next one is next.
#include "../sync.h"
#include "entry.h"

namespace cuda_on_cpu {

/// Hands the threads that have met their result.
void Worker::note_release() {
  stop_if_cancelled();
#ifdef CUDA_ON_CPU_RACE
  race::barrier(live);
#endif
  if (checking) check_one_place(*this);
  tally = yes | uint64_t{yes == live} << 32 | uint64_t{yes != 0} << 33;
  yes = 0;
}

void Worker::release_barrier() {
  note_release();
  at_barrier = 0;
  fruitless = 0;
  for (unsigned w = 0; w < most_warps; ++w) {
    ready[w] = alive[w];  // at_barrier was live: none waits for anything else
    if (ready[w]) ready_warps |= 1u << w;
    spinning[w] = 0;
  }
  sweeping = order == Order::forward && live == threads;
}

/// Something other than the next barrier happens: notes who waits, as for any other block.
void Worker::end_sweep() {
  sweeping = false;
  at_barrier = current;
  ready_warps = 0;
  for (unsigned w = 0; w < most_warps; ++w) {
    ready[w] = lanes_between(w, current, threads);
    if (ready[w]) ready_warps |= 1u << w;
  }
}

/// Returns the next thread in order, which may be one too far.
[[gnu::always_inline]] inline unsigned Worker::sweep_on(Wait& wait) {
  wait.result = &tally;
  thread[current].wait = &wait;
  // Since its last turn a thread's stack has left the nearest cache; fetch those to come.
  const char* ahead = static_cast<const char*>(thread[current + 3].resume);
  __builtin_prefetch(ahead);
  __builtin_prefetch(ahead + 64);
  __builtin_prefetch(ahead + 128);
  return current + 1;
}

namespace {

/// Returns the thread to continue with, which may be the same.
[[gnu::always_inline]] inline unsigned come_to_barrier(Worker& w, Wait& wait, bool predicate) {
#ifdef CUDA_ON_CPU_RACE
  race::barrier_at(wait.file, wait.line);
#endif
  if (w.sweeping) {
    if (predicate) ++w.yes;
    const unsigned next = w.sweep_on(wait);
    if (next != w.threads) return next;
    w.note_release();
    return 0;
  }
  w.leave_loop();
  wait.result = &w.tally;
  w.thread[w.current].wait = &wait;
  if (predicate) ++w.yes;
  if (++w.at_barrier != w.live) return w.next_while_waiting();
  w.release_barrier();
  return unsigned(w.first_ready());
}

}  // namespace

#ifdef CUDA_ON_CPU_ENTRY_IN_ASSEMBLY

namespace {

[[gnu::noinline]] void* come_to_barrier_otherwise(Wait* wait, bool predicate) {
  Worker& worker = worker_for(wait->name);
  return go_on(worker, *wait, come_to_barrier(worker, *wait, predicate));
}

}  // namespace

/// Continues a sweep; the rest is out of line, so that this needs few registers.
extern "C" [[gnu::visibility("hidden"), gnu::used]] void* cuda_on_cpu_at_barrier(Wait* wait,
                                                                                 bool predicate) {
  Worker* const worker = running;
  if (!worker || !worker->sweeping || predicate || worker->current + 1 == worker->threads)
      [[unlikely]] {
    return come_to_barrier_otherwise(wait, predicate);
  }
  note_resume(*worker, *wait);
  return worker->turn_to_started(worker->sweep_on(*wait));
}

[[gnu::naked]] uint64_t barrier(const char*, bool, Place) {
  CUDA_ON_CPU_ENTRY("%rdi", "%rdx", "%rcx", "%rdi", "cuda_on_cpu_at_barrier");
}

#else

uint64_t barrier(const char* name, bool predicate, Place place) {
  Worker& worker = worker_for(name);
  Wait wait{nullptr, place.line, 0, place.file, name};
  worker.switch_to(come_to_barrier(worker, wait, predicate));
  return *wait.result;
}

#endif

}  // namespace cuda_on_cpu
