/// the fp4 types, which the CPU has not: said at once, and how to do without.
#pragma once

#error "cuda_fp4.h: the fp4 types do not run on the CPU; guard its use with #ifndef CUDA_ON_CPU"
