#pragma once

#include <ATen/ceil_div.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cuda/ApplyGridUtils.cuh>
#include <ATen/cuda/detail/IndexUtils.cuh>
#include <ATen/cuda/detail/TensorInfo.cuh>

#include "../../../torch/atomic.h"
#include "../../../torch/context.h"

// What extensions use of it. Its own kernels (CUDA_tensor_apply2 and kin) are not here: PyTorch's
// headers are read as they are, and their launches are no C++.
