/// The instructions that the kernels of a library were compiled for.
///
/// No header of PyTorch's is read: instructions.cpp is compiled with the kernels' flags, and an inline
/// function of PyTorch's compiled with them could be taken for the whole library.
#pragma once

namespace pullback {

/// Their names for `__builtin_cpu_supports`, then null.
extern const char* const needed_instructions[];

}  // namespace pullback
