#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#if !defined(__x86_64__) || defined(CUDA_ON_CPU_UCONTEXT)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {
namespace {

// Wide, so that a frame of many variables does not step over it.
constexpr size_t guard_bytes = 64 << 10;
// Tops of stacks at the same place of their pages would fall into the same sets of the cache.
constexpr unsigned colours = 16, colour_bytes = 256;

char* top_of(const Fiber& fiber) {
  return fiber.low + fiber.bytes - fiber.colour % colours * colour_bytes;
}

}  // namespace

#if defined(__x86_64__) && !defined(CUDA_ON_CPU_UCONTEXT)

void renew(Fiber& fiber, void (*entry)()) {
  auto top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top_of(fiber)) & ~uintptr_t{15});
  *--top = nullptr;  // the return address of `entry`: there is none, and unwinders stop
  *--top = reinterpret_cast<void*>(entry);
  fiber.resume = top;
}

#else

void switch_stacks(void** save, void* resume) {
  ucontext_t here;
  *save = &here;
  ::swapcontext(&here, static_cast<ucontext_t*>(resume));
}

void renew(Fiber& fiber, void (*entry)()) {
  char* top = top_of(fiber) - sizeof(ucontext_t);
  auto context =
      new (reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{63})) ucontext_t;
  ::getcontext(context);
  context->uc_stack.ss_sp = fiber.low;
  context->uc_stack.ss_size = size_t(reinterpret_cast<char*>(context) - fiber.low) & ~size_t{63};
  context->uc_link = nullptr;
  ::makecontext(context, entry, 0);
  fiber.resume = context;
}

#endif

Fiber* new_fiber(size_t bytes, unsigned colour, void (*entry)()) {
  const auto page = size_t(::sysconf(_SC_PAGESIZE));
  bytes = (bytes + colours * colour_bytes + page - 1) / page * page;
  void* memory = ::mmap(nullptr, guard_bytes + bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (::mprotect(memory, guard_bytes, PROT_NONE) != 0) {
    ::munmap(memory, guard_bytes + bytes);
    return nullptr;
  }
  auto fiber = new Fiber{static_cast<char*>(memory) + guard_bytes, bytes, nullptr, nullptr, colour};
  renew(*fiber, entry);
  return fiber;
}

void unmap(Fiber* fiber) {
  ::munmap(fiber->low - guard_bytes, guard_bytes + fiber->bytes);
  delete fiber;
}

bool in_guard(const Fiber& fiber, const void* address) {
  auto at = static_cast<const char*>(address);
  return at >= fiber.low - guard_bytes && at < fiber.low;
}

}  // namespace cuda_on_cpu
