/// The OS threads that help with a launch.
#pragma once

#include "job.h"

#include <thread>
#include <vector>

namespace cuda_on_cpu {

/// Makes other OS threads take blocks of the job, unless they are busy with another launch.
void help(Job& job);
/// The same, once the job has run for so long that waking them pays.
void help_if_long(Job& job);
/// Starts an OS thread beyond the requested number, since the running blocks wait for ones that
/// have not begun; false if there can be none.
bool begin_another(Job& job, std::vector<std::thread>& begun);
/// Waits until no other OS thread runs blocks of the job.
void wait_for_helpers(Job& job);

}  // namespace cuda_on_cpu
