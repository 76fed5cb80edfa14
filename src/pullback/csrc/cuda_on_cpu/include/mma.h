/// Tensor cores, by nvcuda::wmma.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

#include "../wmma.h"
