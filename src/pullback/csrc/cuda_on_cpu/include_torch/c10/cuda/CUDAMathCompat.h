#pragma once

#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

// PyTorch's own copysign stops the program where it is not compiled for a GPU.
#define __CUDA_ARCH__ CUDA_ON_CPU_ARCH
#include_next <c10/cuda/CUDAMathCompat.h>
#undef __CUDA_ARCH__
