/// Stacks, and the switch from one to another.
#pragma once

#include <cstddef>

namespace cuda_on_cpu {

/// A stack with a guard below it, on which CUDA threads run.
struct Fiber {
  char* low;  // above the guard
  size_t bytes;
  void* resume;  // where it continues when switched to; not valid while it runs a CUDA thread
  Fiber* next_idle;
  unsigned colour;
};

/// Maps a stack that begins with `entry`, which never returns; nullptr if there is no memory.
Fiber* new_fiber(size_t bytes, unsigned colour, void (*entry)());
/// Resets it to its beginning, whatever was on it.
void renew(Fiber& fiber, void (*entry)());
void unmap(Fiber* fiber);
/// Whether an address is in the guard, that is, the stack has overflowed.
bool in_guard(const Fiber& fiber, const void* address);

/// Leaves the running stack, notes in `save` where it will continue, and continues at `resume`.
#if defined(__x86_64__) && !defined(CUDA_ON_CPU_UCONTEXT)
/// The compiler saves what it needs (all registers are clobbered); the control words of the
/// floating-point units are left alone. Inline, and it continues by a jump: the processor predicts
/// returns from earlier calls, and a call without a return would put its predictions out of step.
/// It pushes, so only functions that call others may use it: they have no red zone.
[[gnu::always_inline]] inline void switch_stacks(void** save, void* resume) {
  asm volatile(
      "pushq %%rbp\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%0)\n\t"
      "movq %1, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmp *%%rax\n"
      "1:\n\t"
      "popq %%rbp"
      : "+D"(save), "+S"(resume)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc",
        "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
#else
void switch_stacks(void** save, void* resume);
#endif

}  // namespace cuda_on_cpu
