/// Everything that a generated loop over indices includes.
#pragma once

#if !defined(__clang__) && !defined(__CUDACC__)
// By default g++ spills what an inner loop reads, a tile of sums, while registers are free.
#pragma GCC optimize("ira-region=all")
#endif

#include "../formula/polygamma.h"
#include "phases.h"
#include "reduce.h"

namespace pullback::index {

using Call = IndexCall;

/// What a kernel says: bits, since its threads may say different things.
enum Status : int { ok = 0, no_memory = 1, index_outside = 2 };

/// Memory of one thread for the rows of a kernel.
struct Scratch {
  char* memory;
  char* next;
  PULLBACK_INLINE explicit Scratch(int64_t bytes)
      : memory(static_cast<char*>(bytes ? __builtin_malloc(size_t(bytes) + 64) : nullptr)),
        next(memory + (-uintptr_t(memory) & 63)) {}
  PULLBACK_INLINE ~Scratch() { __builtin_free(memory); }
  Scratch(const Scratch&) = delete;
  PULLBACK_INLINE char* take(int64_t bytes) {
    char* const here = next;
    next += (bytes + 63) / 64 * 64;
    return here;
  }
};

}  // namespace pullback::index
