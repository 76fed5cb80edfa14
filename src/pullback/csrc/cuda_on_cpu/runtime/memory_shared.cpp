// The shared memory of a block: its variables, and which bytes of it were written.
//
// AddressSanitizer itself does not track what was written. A read is a fault only if none of its
// bytes was written: a copy of a structure also reads its padding.

#ifdef CUDA_ON_CPU_MEMORY
#include "memory.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <vector>

namespace cuda_on_cpu::memory {
namespace {

struct Arena {
  uintptr_t low = 0;
  size_t bytes = 0;
  std::vector<uint8_t> written;
  std::vector<Variable> variables;
};

// Separate, since every access of a kernel reads it: a pointer costs them no call.
__thread Arena* arena __attribute__((tls_model("initial-exec")));

bool is_shared(uintptr_t address) { return arena && address - arena->low < arena->bytes; }

}  // namespace

void block_begins(char* shared, size_t bytes) {
  static thread_local Arena own;
  const auto low = reinterpret_cast<uintptr_t>(shared);
  if (own.low != low || own.bytes != bytes) {
    own = {low, bytes, std::vector<uint8_t>(bytes, 0), {}};
    __asan_poison_memory_region(shared, bytes);
  }
  // The arena is large, but only the variables of the last block have changed.
  for (const Variable& last : own.variables) {
    __asan_poison_memory_region(reinterpret_cast<void*>(last.low), last.bytes);
    const auto first = own.written.begin() + ptrdiff_t(last.low - low);
    std::fill(first, first + ptrdiff_t(last.bytes), 0);
  }
  own.variables.clear();
  arena = &own;
}

void shared_variable(const void* address, size_t bytes, const char* name) {
  __asan_unpoison_memory_region(address, bytes);
  if (!arena) return;
  const auto low = reinterpret_cast<uintptr_t>(address);
  for (const Variable& known : arena->variables) {
    if (known.low == low) return;
  }
  arena->variables.push_back({name, low, bytes});
}

const Variable* shared_variable_near(uintptr_t address) {
  if (!is_shared(address)) return nullptr;
  const Variable* nearest = nullptr;
  uintptr_t least = ~uintptr_t{0};
  for (const Variable& each : arena->variables) {
    const uintptr_t end = each.low + each.bytes;
    const uintptr_t distance = address < each.low ? each.low - address
                               : address < end    ? 0
                                                  : address - end + 1;
    if (distance < least) least = distance, nearest = &each;
  }
  return nearest;
}

bool is_unwritten(uintptr_t address, size_t bytes) {
  if (!is_shared(address)) return false;
  const auto first = arena->written.begin() + ptrdiff_t(address - arena->low);
  return std::none_of(first,
                      first + ptrdiff_t(std::min(bytes, arena->low + arena->bytes - address)),
                      [](uint8_t each) { return each != 0; });
}

void is_written(uintptr_t address, size_t bytes) {
  if (!is_shared(address)) return;
  const auto first = arena->written.begin() + ptrdiff_t(address - arena->low);
  std::fill(first, first + ptrdiff_t(std::min(bytes, arena->low + arena->bytes - address)), 1);
}

}  // namespace cuda_on_cpu::memory
#endif
