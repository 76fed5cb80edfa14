/// A launch: its limits, its job, and this OS thread's worker.
#include "../launch.h"

#include "../core.h"
#include "findings.h"
#include "report.h"
#include "schedule.h"
#include "signals.h"
#include "watchdog.h"
#include "workers.h"

#ifdef CUDA_ON_CPU_RACE
#include "race.h"
#endif
#ifdef CUDA_ON_CPU_MEMORY
#include "memory.h"
#endif

#include <algorithm>

namespace cuda_on_cpu {
namespace {

// What cudaGetLastError() returns for a launch that a GPU refuses.
constexpr int invalid_value = 1, invalid_configuration = 9;

void checks_begin([[maybe_unused]] const Launch& launch) {
#ifdef CUDA_ON_CPU_RACE
  race::launch_begins(launch.name, launch.place.file, launch.place.line, launch.grid, launch.block);
#endif
#ifdef CUDA_ON_CPU_MEMORY
  memory::launch_begins(launch.name);
#endif
}

void checks_end([[maybe_unused]] bool failed) {
#ifdef CUDA_ON_CPU_RACE
  if (failed) race::launch_fails();
  else race::launch_ends();
#endif
#ifdef CUDA_ON_CPU_MEMORY
  if (failed) memory::launch_fails();
  else memory::launch_ends();
#endif
}

}  // namespace

bool can_launch(const dim3& grid, const dim3& block, size_t shared) {
  const bool grid_fits =
      grid.x && grid.y && grid.z && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535;
  const bool block_fits = block.x && block.y && block.z && block.x <= 1024 && block.y <= 1024 &&
                          block.z <= 64 && uint64_t{block.x} * block.y * block.z <= most_threads;
  if (!grid_fits || !block_fits) {
    last_error() = invalid_configuration;
  } else if (shared > std::min(dynamic_shared_limit(), most_shared)) {
    last_error() = invalid_value;
  } else {
    return true;
  }
  return false;
}

/// The order of blocks. The race detector does not depend on the order, and runs one block at a
/// time, to the end. So under it lower blocks run first, since others may wait for them.
[[maybe_unused]] constexpr Order order_of_blocks([[maybe_unused]] Order order) {
#ifdef CUDA_ON_CPU_RACE
  return Order::forward;
#else
  return order;
#endif
}

Job::Job(const Launch& launch)
    : launch(launch),
      order(order_here()),
      blocks(uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z, order_of_blocks(order)),
      gate(*this),
      began(ticks()) {
  one_by_one = order != Order::forward;
  fast = uint64_t{launch.grid.x} * launch.block.x < 0x7fffffffu - 1024;
#ifdef CUDA_ON_CPU_RACE
  one_by_one = true, fast = false;  // the detector has to know each thread, so none shares a loop
#endif
}

void Job::fail(std::string text) {
  const std::lock_guard lock(mutex);
  if (failure.empty()) failure = std::move(text);
  Cancel none = Cancel::no;
  cancel.compare_exchange_strong(none, Cancel::failed);
}

void launch(const Launch& what) {
  if (running) {
    stop("cuda-unsupported [PB228]",
         "the kernel launches '%s': kernels cannot launch kernels on the CPU\n    at: %s:%d",
         what.name, what.place.file, what.place.line);
  }
  findings::launched();
  signals::be_ready();
  checks_begin(what);
  Job job(what);
  watchdog::begin(job);
  Worker::mine().run(job);
  wait_for_helpers(job);
  watchdog::end(job);
  if (job.failure.empty()) {
    checks_end(false);
    return;
  }
  checks_end(true);
  findings::record(job.failure.c_str());
  throw Error(job.failure);
}

// The worker of an OS thread.

namespace {

std::mutex spare_mutex;
Worker* spare;  // workers of OS threads that have ended; linked by next_of_job

/// Passes the worker of an OS thread that ends to another.
struct Owner {
  Worker* worker = nullptr;
  ~Owner() {
    if (!worker) return;
    const std::lock_guard lock(spare_mutex);
    worker->next_of_job = spare, spare = worker;
  }
};

Worker* new_worker() {
  const std::lock_guard lock(spare_mutex);
  if (!spare) return new Worker;
  Worker* worker = spare;
  spare = worker->next_of_job;
  return worker;
}

void enter_fiber() {
  Worker& worker = Worker::mine();
  Fiber* const fiber = worker.started;
  sanitizer::begin_fiber(worker);
  worker.live_on_fiber(*fiber);
}

}  // namespace

Worker& Worker::mine() {
  static __thread Worker* mine;
  if (!mine) [[unlikely]] {
    static thread_local Owner owner;
    mine = owner.worker = new_worker();
    mine->os_thread = ::pthread_self();
  }
  return *mine;
}

void Worker::run(Job& its, bool begun_for_others) {
  job = &its;
  order = its.order;
  const dim3 block_shape = its.launch.block;
  threads = block_shape.x * block_shape.y * block_shape.z;
  const dim3 host_block = blockDim, host_grid = gridDim;
  blockDim = block_shape, gridDim = its.launch.grid;
  taken = {};
  takes_lowest = begun_for_others;
  trouble.kind = Trouble::none;
  signals::be_ready_on_this_thread();
  if (fiber_bytes != stack_bytes()) drop_fibers();
  watchdog::joins(its, *this);
  its.gate.joins(*this);
  if (open_block()) {
    running = this;
    Fiber& fiber = take_fiber();
    {
      sanitizer::Switch note(*this, fiber);
      switch_stacks(&main, fiber.resume);
    }
    running = nullptr;
    if (trouble.kind != Trouble::none) {
      if (its.cancel != Cancel::failed || trouble.kind != Trouble::cancelled)
        its.fail(describe(*this));
      renew_fibers();
    }
  }
  its.gate.leaves(*this);
  watchdog::leaves(its, *this);
  blockDim = host_block, gridDim = host_grid;
  threadIdx = blockIdx = {0, 0, 0};
}

void Worker::give_up() {
  void* nowhere;
  sanitizer::Switch note(*this);
  switch_stacks(&nowhere, main);
  __builtin_unreachable();
}

Fiber& Worker::take_fiber() {
  Fiber* fiber = idle;
  if (fiber) {
    idle = fiber->next_idle;
  } else {
    fiber =
        fiber_count <= most_threads ? new_fiber(stack_bytes(), fiber_count, enter_fiber) : nullptr;
    if (!fiber) {
      stop("cuda-fault [PB225]",
           "there is no memory left for the stacks of a block's threads\n"
           "    help: CUDA_ON_CPU_WORKERS=N and CUDA_ON_CPU_STACK=BYTES make do with less");
    }
    fibers[fiber_count++] = fiber;
    fiber_bytes = stack_bytes();
#ifdef CUDA_ON_CPU_RACE
    race::private_memory(fiber->low, fiber->low + fiber->bytes);
#endif
  }
  started = fiber;
  return *fiber;
}

/// After a block was abandoned: nothing on the stacks will continue.
void Worker::renew_fibers() {
  idle = nullptr;
  for (unsigned i = fiber_count; i-- > 0;) {
    sanitizer::forget(*fibers[i]);
    renew(*fibers[i], enter_fiber);
    fibers[i]->next_idle = idle, idle = fibers[i];
  }
}

void Worker::drop_fibers() {
  for (unsigned i = 0; i < fiber_count; ++i) unmap(fibers[i]);
  fiber_count = 0;
  idle = nullptr;
  fiber_bytes = stack_bytes();
}

}  // namespace cuda_on_cpu
