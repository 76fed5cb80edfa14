/// cuBLASLt's handles alone, as in cublas_v2.h: a call of another function does not compile.
#pragma once

#include "cublas_v2.h"

typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct cublasLtMatrixLayoutOpaque_t* cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulDescOpaque_t* cublasLtMatmulDesc_t;
typedef struct cublasLtMatmulPreferenceOpaque_t* cublasLtMatmulPreference_t;
typedef struct cublasLtMatrixTransformDescOpaque_t* cublasLtMatrixTransformDesc_t;

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static char one;
  return *handle = reinterpret_cast<cublasLtHandle_t>(&one), CUBLAS_STATUS_SUCCESS;
}
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasLtDestroy)
