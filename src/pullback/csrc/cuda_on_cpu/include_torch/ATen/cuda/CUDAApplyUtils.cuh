#pragma once

#include <ATen/ceil_div.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cuda/ApplyGridUtils.cuh>
#include <ATen/cuda/detail/IndexUtils.cuh>
#include <ATen/cuda/detail/TensorInfo.cuh>

#include "../../../torch/atomic.h"
#include "../../../torch/context.h"

// The part that extensions use. Its own kernels (CUDA_tensor_apply2 and the like) are not here:
// PyTorch's headers are not translated, and their launches are not C++.
