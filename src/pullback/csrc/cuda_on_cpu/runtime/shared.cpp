/// Shared memory: the arena of a worker, laid out again for each block.
#include "../shared.h"
#include "worker.h"

#ifdef CUDA_ON_CPU_RACE
#include "race.h"
#endif
#ifdef CUDA_ON_CPU_MEMORY
#include "memory.h"
#endif

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace cuda_on_cpu {
namespace {

// Room for the gaps between variables that the checks need.
constexpr size_t arena_bytes = 1 << 20, gap = checking ? 64 : 0, least_alignment = 16;

std::atomic<int> slots_made;

/// Keeps a pointer at namespace scope up to date; never freed, since libraries stay loaded.
struct DynamicPointer {
  void (*set)(void*);
  DynamicPointer* next;
};
std::atomic<DynamicPointer*> dynamic_pointers;

char* new_arena() {
  void* memory = ::mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) stop("cuda-fault [PB225]", "there is no memory left for shared memory");
  return static_cast<char*>(memory);
}

}  // namespace

void Worker::open_arena() {
  if (!arena) arena = new_arena();
#ifdef CUDA_ON_CPU_RACE
  race::block_begins(block, arena, arena_bytes);
#endif
#ifdef CUDA_ON_CPU_MEMORY
  memory::block_begins(arena, arena_bytes);
#endif
  arena_used = gap, static_used = 0;
  dynamic = lay_out(job->launch.shared, 1024, "dynamic shared memory");
  for (DynamicPointer* p = dynamic_pointers.load(std::memory_order_acquire); p; p = p->next) {
    p->set(dynamic);
  }
}

void* Worker::lay_out(size_t bytes, size_t alignment, const char* name) {
  alignment = std::max(alignment, least_alignment);
  const size_t at = (arena_used + alignment - 1) / alignment * alignment;
  arena_used = at + bytes + gap;
  if (arena_used > arena_bytes) {
    stop("cuda-misuse [PB230]", "the block has more shared memory than a GPU: '%s' does not fit",
         name);
  }
  char* const memory = arena + at;
#ifdef CUDA_ON_CPU_RACE
  if (bytes) race::shared_variable(memory, bytes, name);
#endif
#ifdef CUDA_ON_CPU_MEMORY
  if (bytes) memory::shared_variable(memory, bytes, name);
#endif
  // So unwritten memory shows: as NaN, or as an index that is out of bounds.
  if (checking || order != Order::forward) std::memset(memory, 0xff, bytes);
  return memory;
}

int new_shared_slot() { return slots_made.fetch_add(1, std::memory_order_relaxed); }

void* shared_slot(int slot, size_t bytes, size_t alignment, const char* name) {
  Worker* const worker = running;
  if (!worker) [[unlikely]] {
    stop("cuda-misuse [PB230]", "the shared variable '%s' is used outside a kernel", name);
  }
  if (slot >= worker->slot_room) [[unlikely]] {
    const int room = 2 * slot + 64;
    auto larger =
        static_cast<SharedSlot*>(std::realloc(worker->slots, sizeof(SharedSlot) * size_t(room)));
    if (!larger) stop("cuda-fault [PB225]", "there is no memory left for shared memory");
    std::fill(larger + worker->slot_room, larger + room, SharedSlot{nullptr, 0});
    worker->slots = larger, worker->slot_room = room;
  }
  SharedSlot& known = worker->slots[slot];
  if (known.block != worker->serial) {
    worker->static_used += bytes;
    if (worker->static_used > most_static_shared ||
        worker->static_used + worker->job->launch.shared > most_shared) {
      stop("cuda-misuse [PB230]",
           "'%s' brings the block to %zu bytes of static and %zu of dynamic shared memory\n"
           "    help: a GPU has 48 KB of static shared memory for a block, and 227 KB in all",
           name, worker->static_used, worker->job->launch.shared);
    }
    known = {worker->lay_out(bytes, alignment, name), worker->serial};
  }
  return known.address;
}

void* cuda_on_cpu_dynamic() {
  if (!running) stop("cuda-misuse [PB230]", "dynamic shared memory is used outside a kernel");
  return running->dynamic;
}

bool cuda_on_cpu_dynamic_at(void (*set)(void* memory)) {
  auto pointer = new DynamicPointer{set, dynamic_pointers.load()};
  while (!dynamic_pointers.compare_exchange_weak(pointer->next, pointer)) {
  }
  return true;
}

}  // namespace cuda_on_cpu
