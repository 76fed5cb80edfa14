/// The race detector: its interface to the scheduler, and its rules.
///
/// Authors' units are compiled with -fsanitize=thread, but not linked to the sanitizer's library:
/// race_tsan.cpp defines the functions that such code calls before each access to memory. So only
/// the author's code is watched, in an ordinary process, and by CUDA's rules of order. (The
/// linker's
/// --wrap sends memcpy() and the like to race_memory.cpp; --param=tsan-distinguish-volatile=1 marks
/// volatile accesses.)
///
/// Two accesses to a byte by different threads of one launch race if one of them writes, not both
/// are atomic, and nothing orders them. They are ordered by
/// - __syncthreads() between them, for threads of one block;
/// - a warp collective (__syncwarp, shuffles, votes) between them, for the lanes that took part;
/// - a fence by the first thread after its access, then an atomic (or a volatile write) by it,
///   then an atomic on the same address (or a volatile read of it) by the second thread. A thread
///   passes on what it has fenced, and what it has acquired, at barriers and collectives.
///
/// These do not count as races, although strictly they may be, because correct programs rely on
/// them:
/// - a write that leaves the value as it was, against reads and writes of that same value:
///   `found = true` by many threads;
/// - volatile accesses against each other or against atomics, except the idiom from before
///   __syncwarp(): volatile shared memory, within a warp, and no fence;
/// - a plain read on a line whose reads are followed by an atomic of the same thread on the same
///   address: `old = *p; do { ... atomicCAS(p, ...) }`, `if (x > *p) atomicMax(p, x)`.
///
/// Also found: reads of shared memory that no thread of the block has written.
///
/// It may miss races whose bytes happen to hold the value that is written; the second of several at
/// the same bytes; some where more than eight accesses to the same eight bytes matter.
///
/// Source: C. Flanagan, S. Freund, *FastTrack: efficient and precise dynamic race detection*, PLDI
/// 2009; *PTX ISA*, chapter "Memory Consistency Model"; *CUDA C++ Programming Guide*, sections
/// "Memory Fence Functions" and "Synchronization Functions".
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../types.h"

namespace cuda_on_cpu::race {

/// Forgets everything: every earlier access happens before. Call it on the launching OS thread, in
/// the function that calls the kernel: deeper frames of the stack are private to CUDA threads.
void launch_begins(const char* kernel, const char* file, int line, uint3 grid, uint3 block);
/// Throws by stop() if the launch had a race or read shared memory that was not written.
void launch_ends();
/// Ends a launch that failed for another reason: reports nothing.
void launch_fails();

/// From now on `block` runs; blocks run one after the other. `shared` is not written yet.
void block_begins(uint64_t block, const char* shared, size_t bytes);
/// From now on accesses of this OS thread are by this CUDA thread of the current block.
void thread_runs(unsigned thread);
/// Accesses belong to no thread until the next thread_runs(). For a scheduler in code that is
/// watched.
void no_thread_runs();
/// The same, and this thread has exited.
void thread_ends(unsigned thread);

/// All threads of the block that have not exited have met.
void barrier(unsigned alive);
/// These lanes of the warp have met; those of the warp that have exited count as well.
void collective(unsigned warp, uint32_t lanes);
/// The running thread has executed __threadfence() or the like.
void fence();
/// The running thread is about to execute an atomic. The default `pc` is the return address of the
/// calling function: in the author's code, if that function is atomic_begins().
void atomic(const void* address, unsigned size, const void* pc = __builtin_return_address(0));

/// Memory that belongs to one CUDA thread: the stacks of fibers.
void private_memory(const char* low, const char* high);
/// Memory that has just been allocated: earlier uses do not count.
void fresh_memory(const void* low, size_t bytes);

/// The author's code that is about to write, while the detector reads the old value, which faults
/// if the address is bad. Otherwise null.
const void* access_in_progress();

/// For reports: the running thread has come to a barrier at this line of the author's.
void barrier_at(const char* file, int line);
/// For reports: a variable in the shared memory of the current block.
void shared_variable(const void* address, size_t bytes, const char* name);
/// For reports: an argument of the next launches. (nullptr, 0, nullptr) forgets all names.
void named_memory(const void* low, size_t bytes, const char* name);

}  // namespace cuda_on_cpu::race
