/// Accesses out of bounds, for the check "memory".
///
/// AddressSanitizer's own library keeps the shadow memory: the process's heap, stacks and
/// variables. The author's units call it for each access; their calls are linked to entry points
/// here (`--wrap`), which look at the shadow memory, collect the faults of a launch, and know which
/// shared memory of a block was written. So there is one report at the end of a launch, in the
/// author's lines. Units that were compiled without those options never call these.
#pragma once

#ifdef CUDA_ON_CPU_MEMORY
#include <stddef.h>
#include <stdint.h>

#include <string>

namespace cuda_on_cpu::memory {

/// Forgets the faults of earlier launches.
void launch_begins();
inline void launch_begins(const char*) { launch_begins(); }
/// Stops ("cuda-memory [PB223]") if the launch that ends had a fault.
void launch_ends();
/// Ends a launch that will raise something else; stops too if it had a fault before.
void launch_fails();

/// From now on this OS thread runs a block with that shared memory, none of which may be accessed
/// yet.
void block_begins(char* shared, size_t bytes);
/// Lays out a variable in the shared memory of this OS thread's block.
void shared_variable(const void* address, size_t bytes, const char* name);

// Between the parts of the check.

/// One forbidden access.
struct Fault {
  uintptr_t address;
  size_t bytes;
  bool write;
  const void* code;        // within the instruction that accesses
  std::string what = {};   // "reads 4 bytes past the end of ..."; empty: found from the address
  std::string place = {};  // "file:line"; empty: found from the code
  const char* help = "compare the index with the size before the access";
};

/// Keeps a fault of a kernel for the end of the launch; reports one of the host at once.
void note(const Fault& fault);

/// A description of the memory around an address, for a message.
struct Around {
  std::string relation;        // "past the end of memory of 1024 bytes"
  std::string details;         // "0 bytes after its end, allocated by cudaMalloc at add.cu:50"
  const char* help = nullptr;  // if it is not the usual one
};
Around around(uintptr_t address);

/// A variable in the shared memory of the running block.
struct Variable {
  const char* name;
  uintptr_t low;
  size_t bytes;
};
const Variable* shared_variable_near(uintptr_t address);
/// Whether none of these bytes was written; known only for the running block's shared memory.
bool is_unwritten(uintptr_t address, size_t bytes);
void is_written(uintptr_t address, size_t bytes);

/// "file:line" of the first return address that is in the author's code, or "".
std::string author_line(void* const* returns, int count);

}  // namespace cuda_on_cpu::memory
#endif
