/// The instructions that the kernels of a library were compiled for.
///
/// Includes no PyTorch header: instructions.cpp is compiled with the kernels' flags, and the linker
/// could take a PyTorch inline function compiled with them for the whole library.
#pragma once

namespace pullback {

/// Their names for `__builtin_cpu_supports`, then null.
extern const char* const needed_instructions[];

}  // namespace pullback
