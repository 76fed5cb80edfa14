/// Watches launches from outside: the time limit, Ctrl-C, workers that do not return.
#pragma once

#include "job.h"

namespace cuda_on_cpu::watchdog {

void begin(Job& job);
void end(Job& job);
/// A worker begins, or ends, to run blocks of the job.
void joins(Job& job, Worker& worker);
void leaves(Job& job, Worker& worker);

}  // namespace cuda_on_cpu::watchdog
