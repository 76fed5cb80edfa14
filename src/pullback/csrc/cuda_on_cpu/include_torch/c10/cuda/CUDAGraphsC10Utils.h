#pragma once

#include "../../ATen/cuda/CUDAGraphsUtils.cuh"
