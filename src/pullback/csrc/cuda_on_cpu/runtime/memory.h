/// Accesses out of bounds, for the check "memory".
///
/// AddressSanitizer's own library keeps the map of what may be accessed: it has the process's heap,
/// stacks and variables. The author's units call it for each access; their calls are linked to
/// entry points here (`--wrap`), which ask that map, keep the faults of a launch, and know the
/// memory shared by a block: what of it was written. So one report comes at the end of a launch, in
/// the author's lines. Where units were compiled without those options nothing calls in here.
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
/// Ends a launch that is to raise something else; stops as well if it had a fault before.
void launch_fails();

/// From now on this OS thread runs a block with that shared memory: none may be accessed yet.
void block_begins(char* shared, size_t bytes);
/// Lays out a variable in the shared memory of this OS thread's block.
void shared_variable(const void* address, size_t bytes, const char* name);

// Between the parts of the check.

/// One access that must not be.
struct Fault {
  uintptr_t address;
  size_t bytes;
  bool write;
  const void* code;        // within the instruction that accesses
  std::string what = {};   // "reads 4 bytes past the end of ..."; empty: found from the address
  std::string place = {};  // "file:line"; empty: found from the code
  const char* help = "compare the index with the size before the access";
};

/// Notes a fault of a kernel for the end of the launch; reports one of the host at once.
void note(const Fault& fault);

/// What is around an address, for a message.
struct Around {
  std::string relation;        // "past the end of memory of 1024 bytes"
  std::string details;         // "0 bytes after its end, allocated by cudaMalloc at add.cu:50"
  const char* help = nullptr;  // if another than the usual
};
Around around(uintptr_t address);

/// The memory that the running block shares.
struct Variable {
  const char* name;
  uintptr_t low;
  size_t bytes;
};
const Variable* shared_variable_near(uintptr_t address);
/// Whether no byte of it was written; shared memory of the running block alone is known.
bool is_unwritten(uintptr_t address, size_t bytes);
void is_written(uintptr_t address, size_t bytes);

/// "file:line" of the first return address that is in the author's code, or "".
std::string author_line(void* const* returns, int count);

}  // namespace cuda_on_cpu::memory
#endif
