/// cuBLAS's types and constants. A handle can be made, and passed on; the products raise PB228, and
/// a function that is not here does not compile: guard its use with #ifndef CUDA_ON_CPU.
#pragma once

#include "../libraries.h"
#include "cuda_runtime.h"
#include "library_types.h"

typedef struct cublasContext* cublasHandle_t;
typedef cudaDataType cublasDataType_t;

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11, CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER } cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT } cublasSideMode_t;
typedef enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED } cublasAtomicsMode_t;
typedef enum {
  CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2,
  CUBLAS_TF32_TENSOR_OP_MATH = 3, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
  CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC = 65, CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69, CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72, CUBLAS_COMPUTE_32I_PEDANTIC = 73, CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef enum {
  CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_ALGO0 = 0, CUBLAS_GEMM_ALGO1,
  CUBLAS_GEMM_ALGO2, CUBLAS_GEMM_ALGO3, CUBLAS_GEMM_ALGO4, CUBLAS_GEMM_ALGO5, CUBLAS_GEMM_ALGO6,
  CUBLAS_GEMM_ALGO7, CUBLAS_GEMM_ALGO8, CUBLAS_GEMM_ALGO9, CUBLAS_GEMM_ALGO10,
  CUBLAS_GEMM_ALGO11, CUBLAS_GEMM_ALGO12, CUBLAS_GEMM_ALGO13, CUBLAS_GEMM_ALGO14,
  CUBLAS_GEMM_ALGO15, CUBLAS_GEMM_ALGO16, CUBLAS_GEMM_ALGO17, CUBLAS_GEMM_ALGO18,
  CUBLAS_GEMM_ALGO19, CUBLAS_GEMM_ALGO20, CUBLAS_GEMM_ALGO21, CUBLAS_GEMM_ALGO22,
  CUBLAS_GEMM_ALGO23, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
  CUBLAS_GEMM_ALGO0_TENSOR_OP = 100, CUBLAS_GEMM_ALGO1_TENSOR_OP, CUBLAS_GEMM_ALGO2_TENSOR_OP,
  CUBLAS_GEMM_ALGO3_TENSOR_OP, CUBLAS_GEMM_ALGO4_TENSOR_OP, CUBLAS_GEMM_ALGO5_TENSOR_OP,
  CUBLAS_GEMM_ALGO6_TENSOR_OP, CUBLAS_GEMM_ALGO7_TENSOR_OP, CUBLAS_GEMM_ALGO8_TENSOR_OP,
  CUBLAS_GEMM_ALGO9_TENSOR_OP, CUBLAS_GEMM_ALGO10_TENSOR_OP, CUBLAS_GEMM_ALGO11_TENSOR_OP,
  CUBLAS_GEMM_ALGO12_TENSOR_OP, CUBLAS_GEMM_ALGO13_TENSOR_OP, CUBLAS_GEMM_ALGO14_TENSOR_OP,
  CUBLAS_GEMM_ALGO15_TENSOR_OP
} cublasGemmAlgo_t;

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  return *handle = nullptr, CUBLAS_STATUS_SUCCESS;
}

CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasDestroy)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetStream)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetWorkspace)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetMathMode)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetPointerMode)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetAtomicsMode)

CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSgemm)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDgemm)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasCgemm)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasZgemm)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasHgemm)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasGemmEx)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSgemmEx)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSgemmBatched)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDgemmBatched)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasHgemmBatched)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasGemmBatchedEx)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSgemmStridedBatched)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDgemmStridedBatched)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasHgemmStridedBatched)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasGemmStridedBatchedEx)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSgemv)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDgemv)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSdot)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDdot)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSaxpy)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDaxpy)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSscal)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDscal)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSnrm2)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDnrm2)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSgeam)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDgeam)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasStrsm)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDtrsm)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSsyrk)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDsyrk)
