/// The entry points by which a kernel waits: the prologue and epilogue of barrier() and meet().
///
/// They are in assembly where possible. As in switch_stacks(), the continuing thread is entered by
/// a jump, and so is the kernel, not by a return. The processor predicts that a `ret` goes where
/// the last call came from. That is the barrier at which this thread arrives, but the continuing
/// thread arrived at the one before: each of these returns would be mispredicted, which costs more
/// than the rest of the switch.
#pragma once

#include "schedule.h"

namespace cuda_on_cpu {

inline Worker& worker_for(const char* name) {
  if (!running) [[unlikely]]
    stop("cuda-misuse [PB230]", "%s() outside a kernel", name);
  return *running;
}

#if defined(__x86_64__) && !defined(CUDA_ON_CPU_UCONTEXT) && !defined(CUDA_ON_CPU_MEMORY)
#define CUDA_ON_CPU_ENTRY_IN_ASSEMBLY

#define CUDA_ON_CPU_PUSH(what) "pushq " what "\n.cfi_adjust_cfa_offset 8\n"
#define CUDA_ON_CPU_KEEP(what) CUDA_ON_CPU_PUSH(what) ".cfi_rel_offset " what ", 0\n"

/// Saves the callee-saved registers, lays out a Wait below them, and below that the resume point of
/// a switch; calls `function`, which returns where to continue.
#define CUDA_ON_CPU_ENTRY(name, file, line, wait, function)                                      \
  asm(CUDA_ON_CPU_KEEP("%rbp") CUDA_ON_CPU_KEEP("%rbx") CUDA_ON_CPU_KEEP("%r12")                 \
          CUDA_ON_CPU_KEEP("%r13") CUDA_ON_CPU_KEEP("%r14") CUDA_ON_CPU_KEEP("%r15")             \
              CUDA_ON_CPU_PUSH(name) CUDA_ON_CPU_PUSH(file) CUDA_ON_CPU_PUSH(line)               \
                  CUDA_ON_CPU_PUSH("$0") "movq %rsp, " wait                                      \
                                         "\n"                                                    \
                                         "leaq 1f(%rip), %rax\n" CUDA_ON_CPU_PUSH(               \
                                             "%rax") "call " function                            \
                                                     "\n"                                        \
                                                     "movq %rax, %rsp\n"                         \
                                                     "popq %rax\n"                               \
                                                     "jmp *%rax\n"                               \
                                                     "1:\n"                                      \
                                                     "popq %rax\n"                               \
                                                     "movq (%rax), %rax\n"                       \
                                                     "addq $24, %rsp\n"                          \
                                                     "popq %r15\n popq %r14\n popq %r13\n popq " \
                                                     "%r12\n popq %rbx\n popq %rbp\n"            \
                                                     "popq %rcx\n"                               \
                                                     "jmp *%rcx\n")

/// Notes where the waiting thread will continue: in the entry's assembly.
[[gnu::always_inline]] inline void* note_resume(Worker& worker, Wait& wait) {
  return worker.thread[worker.current].resume = reinterpret_cast<void**>(&wait) - 1;
}

/// Where the thread `next`, which may be the running one, continues.
[[gnu::always_inline]] inline void* go_on(Worker& worker, Wait& wait, unsigned next) {
  void* const here = note_resume(worker, wait);
  return next == worker.current ? here : worker.turn_to(next);
}

#endif

}  // namespace cuda_on_cpu
