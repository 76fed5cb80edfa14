/// CUTLASS, which the CPU has not: said at once, and how to do without.
#pragma once

#error "cutlass/cutlass.h: CUTLASS does not run on the CPU; guard its use with #ifndef CUDA_ON_CPU"
