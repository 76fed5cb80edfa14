/// Faults of kernels, as signals.
#pragma once

namespace cuda_on_cpu::signals {

/// The signal that interrupts a launch on the OS threads that run it.
extern const int break_off;

/// Makes sure that our handlers are installed: others may have replaced them.
void be_ready();
/// Makes sure that this OS thread has a signal stack, since a fiber's may be full.
void be_ready_on_this_thread();
/// Gives that stack back before the OS thread ends.
void done_on_this_thread();

}  // namespace cuda_on_cpu::signals
