#pragma once

#include <cublas_v2.h>
#include <cusolver_common.h>
#include <cusparse.h>

#include "../../../torch/check.h"

/// The same of NVIDIA's libraries, each of which numbers its errors itself.
#define CUDA_ON_CPU_CHECK_LIBRARY(EXPR, SUCCESS)                                                \
  do {                                                                                          \
    const auto __err = EXPR;                                                                    \
    TORCH_CHECK(__err == SUCCESS, "CUDA error: ", int(__err), " when calling `" #EXPR "`");     \
  } while (0)
#define TORCH_CUDABLAS_CHECK(EXPR) CUDA_ON_CPU_CHECK_LIBRARY(EXPR, CUBLAS_STATUS_SUCCESS)
#define TORCH_CUDASPARSE_CHECK(EXPR) CUDA_ON_CPU_CHECK_LIBRARY(EXPR, CUSPARSE_STATUS_SUCCESS)
#define TORCH_CUSOLVER_CHECK(EXPR) CUDA_ON_CPU_CHECK_LIBRARY(EXPR, CUSOLVER_STATUS_SUCCESS)
