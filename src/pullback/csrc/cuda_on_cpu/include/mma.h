/// Tensor cores do not run on the CPU: a file may include this, and only a use of nvcuda::wmma does
/// not compile: guard it with #ifndef CUDA_ON_CPU.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {}
