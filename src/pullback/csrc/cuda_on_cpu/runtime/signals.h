/// Faults of kernels, as signals.
#pragma once

namespace cuda_on_cpu::signals {

/// The signal by which a launch is broken off on the OS threads that run it.
extern const int break_off;

/// Sees to it that our handlers are installed: others may have put theirs in front of them.
void be_ready();
/// Sees to it that this OS thread has a stack for them, since a fiber's may be full.
void be_ready_on_this_thread();
/// Gives that stack back before the OS thread ends.
void done_on_this_thread();

}  // namespace cuda_on_cpu::signals
