/// The runtime library's interface for the headers around it.
///
/// The threads of a block run one after the other as a plain loop on one stack. Only when a thread
/// has to wait do it and the threads after it become fibers, each with a stack of its own. A worker
/// (an OS thread) runs one block at a time; so `threadIdx` and the like are thread-local variables.
///
/// All of this is in every author's unit: no header of the C++ library, as few lines as possible.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "types.h"

#define CUDA_ON_CPU_TLS extern __thread __attribute__((tls_model("initial-exec")))
/// Default arguments that name the author's line.
#define CUDA_ON_CPU_PLACE \
  const char *cuda_on_cpu_file = __builtin_FILE(), int cuda_on_cpu_line = __builtin_LINE()
#define CUDA_ON_CPU_HERE \
  ::cuda_on_cpu::Place { cuda_on_cpu_file, cuda_on_cpu_line }

#pragma GCC visibility push(default)

CUDA_ON_CPU_TLS uint3 threadIdx;
CUDA_ON_CPU_TLS uint3 blockIdx;
CUDA_ON_CPU_TLS dim3 blockDim;
CUDA_ON_CPU_TLS dim3 gridDim;
constexpr int warpSize = 32;

namespace cuda_on_cpu {

/// A line of the author's code.
struct Place {
  const char* file;
  int line;
};

/// A type of its own for the variables of the loop over a block's threads: so the compiler knows
/// that no array of the kernel, of whatever element type, aliases them, and vectorises.
enum class Word : unsigned {};

/// Set once a thread of the running block has had to wait: the loop over threads then ends.
CUDA_ON_CPU_TLS Word loop_is_over;

/// How many atomics in a row changed nothing: many mean a thread that spins. See atomics.h.
CUDA_ON_CPU_TLS unsigned idle_atomics;

/// Stops the kernel, or throws on the host. `rule` is "NAME [CODE]"; the text of `format` may have
/// further lines, indented by four spaces as "    help: ...". In a kernel nothing is unwound: the
/// block is abandoned, and the launch throws with rows for kernel, block and thread.
[[noreturn, gnu::format(printf, 2, 3), gnu::cold]] void stop(const char* rule, const char* format,
                                                             ...);

/// Whether a CUDA thread runs on this OS thread.
bool in_kernel();
/// The linear index of the running thread in its block.
unsigned thread_rank();
inline unsigned cuda_on_cpu_rank() { return thread_rank(); }

/// The error that cudaGetLastError() returns next.
int& last_error();

[[noreturn]] void assert_failed(const char* expression, const char* file, unsigned line,
                                const char* function);
/// Reached where the author's code has instructions of a GPU.
[[noreturn]] void cuda_on_cpu_ptx(const char* instruction, const char* file, int line);

/// Yields to the other threads of the block, and to other OS threads. For a thread that spins.
void spin();

/// Sets the size of the stack of each CUDA thread that has to wait.
void set_stack_bytes(uint64_t bytes);
uint64_t stack_bytes();

/// The most dynamic shared memory that a launch may ask for: 48 KB, more by cudaFuncSetAttribute.
size_t& dynamic_shared_limit();

/// While the object lives, launches of this OS thread run their threads in this order:
/// 0 forward, 1 reverse, 2 random.
struct OrderOfThreads {
  explicit OrderOfThreads(int order);
  ~OrderOfThreads();
  OrderOfThreads(const OrderOfThreads&) = delete;
  OrderOfThreads& operator=(const OrderOfThreads&) = delete;

 private:
  int before_;
};

#ifdef CUDA_ON_CPU_RACE
/// Reports an atomic to the race detector, and counts it: under it, the count alone detects a spin.
void atomic_begins(const void* address, unsigned size);
#else
/// Called by every atomic before it acts. Spinning is detected in atomic_ended().
inline void atomic_begins(const void*, unsigned) {}
#endif

/// Called by every atomic after it acted: if atomics change nothing, again and again, the thread
/// spins.
inline void atomic_ended(bool changed) {
  if (changed) {
    idle_atomics = 0;
  } else if (++idle_atomics > 32) [[unlikely]] {
    spin();
  }
}

}  // namespace cuda_on_cpu

/// How threads are ordered and limited; a negative or ~0 value leaves an option as it is. A time
/// limit of NaN is the default.
extern "C" void cuda_on_cpu_options(int order, uint64_t seed, int workers, double timeout_seconds,
                                    uint64_t stack_bytes);

#pragma GCC visibility pop
