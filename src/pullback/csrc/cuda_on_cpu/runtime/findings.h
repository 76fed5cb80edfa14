/// The findings of launches, for whoever started the process: a count, and a file of texts.
#pragma once

#include <stdint.h>

#pragma GCC visibility push(default)

namespace cuda_on_cpu::findings {

/// Counts a launch that runs.
void launched();
/// Appends the text of an error to the file that CUDA_ON_CPU_FINDINGS names, if it names one.
void record(const char* text);
/// The same for an error that is not thrown; without a file it goes to standard error.
void show(const char* text);
/// Launches so far in this process.
uint64_t so_far();

}  // namespace cuda_on_cpu::findings

/// Launches so far in this process.
extern "C" uint64_t cuda_on_cpu_launches();

#pragma GCC visibility pop
