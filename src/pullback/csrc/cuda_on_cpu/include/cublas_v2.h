/// cuBLAS: handles, products of real matrices, a few functions of vectors. The other functions
/// declared here raise PB228, and any that is not declared does not compile: guard it with #ifndef
/// CUDA_ON_CPU.
#pragma once

#include "../blas.h"
#include "../libraries.h"
#include "cuda_runtime.h"
#include "library_types.h"

typedef struct cublasContext* cublasHandle_t;
typedef cudaDataType cublasDataType_t;

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER } cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT } cublasSideMode_t;
typedef enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED } cublasAtomicsMode_t;
typedef enum {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_TENSOR_OP_MATH = 1,
  CUBLAS_PEDANTIC_MATH = 2,
  CUBLAS_TF32_TENSOR_OP_MATH = 3,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_16F_PEDANTIC = 65,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32I_PEDANTIC = 73,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef enum {
  CUBLAS_GEMM_DFALT = -1,
  CUBLAS_GEMM_DEFAULT = -1,
  CUBLAS_GEMM_ALGO0 = 0,
  CUBLAS_GEMM_ALGO1,
  CUBLAS_GEMM_ALGO2,
  CUBLAS_GEMM_ALGO3,
  CUBLAS_GEMM_ALGO4,
  CUBLAS_GEMM_ALGO5,
  CUBLAS_GEMM_ALGO6,
  CUBLAS_GEMM_ALGO7,
  CUBLAS_GEMM_ALGO8,
  CUBLAS_GEMM_ALGO9,
  CUBLAS_GEMM_ALGO10,
  CUBLAS_GEMM_ALGO11,
  CUBLAS_GEMM_ALGO12,
  CUBLAS_GEMM_ALGO13,
  CUBLAS_GEMM_ALGO14,
  CUBLAS_GEMM_ALGO15,
  CUBLAS_GEMM_ALGO16,
  CUBLAS_GEMM_ALGO17,
  CUBLAS_GEMM_ALGO18,
  CUBLAS_GEMM_ALGO19,
  CUBLAS_GEMM_ALGO20,
  CUBLAS_GEMM_ALGO21,
  CUBLAS_GEMM_ALGO22,
  CUBLAS_GEMM_ALGO23,
  CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
  CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
  CUBLAS_GEMM_ALGO0_TENSOR_OP = 100,
  CUBLAS_GEMM_ALGO1_TENSOR_OP,
  CUBLAS_GEMM_ALGO2_TENSOR_OP,
  CUBLAS_GEMM_ALGO3_TENSOR_OP,
  CUBLAS_GEMM_ALGO4_TENSOR_OP,
  CUBLAS_GEMM_ALGO5_TENSOR_OP,
  CUBLAS_GEMM_ALGO6_TENSOR_OP,
  CUBLAS_GEMM_ALGO7_TENSOR_OP,
  CUBLAS_GEMM_ALGO8_TENSOR_OP,
  CUBLAS_GEMM_ALGO9_TENSOR_OP,
  CUBLAS_GEMM_ALGO10_TENSOR_OP,
  CUBLAS_GEMM_ALGO11_TENSOR_OP,
  CUBLAS_GEMM_ALGO12_TENSOR_OP,
  CUBLAS_GEMM_ALGO13_TENSOR_OP,
  CUBLAS_GEMM_ALGO14_TENSOR_OP,
  CUBLAS_GEMM_ALGO15_TENSOR_OP
} cublasGemmAlgo_t;

/// A handle is not null, for code that looks.
inline cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  static char one;
  return *handle = reinterpret_cast<cublasHandle_t>(&one), CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetStream_v2(cublasHandle_t, cudaStream_t* stream) {
  return *stream = nullptr, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  return *mode = CUBLAS_DEFAULT_MATH, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* mode) {
  return *mode = CUBLAS_POINTER_MODE_HOST, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  return *version = 120400, CUBLAS_STATUS_SUCCESS;
}
inline const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "an error of cuBLAS";
}
inline const char* cublasGetStatusName(cublasStatus_t status) {
  return cublasGetStatusString(status);
}

CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasDestroy_v2)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetStream_v2)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetWorkspace_v2)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetMathMode)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetPointerMode_v2)
CUDA_ON_CPU_NOTHING_TO_DO(cublasStatus_t, cublasSetAtomicsMode)

#define CUDA_ON_CPU_REAL(T, letter)                                                               \
  inline cublasStatus_t cublas##letter##gemm_v2(                                                  \
      cublasHandle_t, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k,        \
      const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {   \
    ::cuda_on_cpu::blas::gemm<T>({a, of_a != CUBLAS_OP_N, lda}, {b, of_b != CUBLAS_OP_N, ldb}, m, \
                                 n, k, ::cuda_on_cpu::blas::number(*alpha),                       \
                                 ::cuda_on_cpu::blas::number(*beta), c, ldc);                     \
    return CUBLAS_STATUS_SUCCESS;                                                                 \
  }                                                                                               \
  inline cublasStatus_t cublas##letter##gemmStridedBatched(                                       \
      cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k, \
      const T* alpha, const T* a, int lda, long long by_a, const T* b, int ldb, long long by_b,   \
      const T* beta, T* c, int ldc, long long by_c, int count) {                                  \
    for (int i = 0; i < count; ++i)                                                               \
      cublas##letter##gemm_v2(handle, of_a, of_b, m, n, k, alpha, a + i * by_a, lda,              \
                              b + i * by_b, ldb, beta, c + i * by_c, ldc);                        \
    return CUBLAS_STATUS_SUCCESS;                                                                 \
  }                                                                                               \
  inline cublasStatus_t cublas##letter##gemmBatched(                                              \
      cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k, \
      const T* alpha, const T* const a[], int lda, const T* const b[], int ldb, const T* beta,    \
      T* const c[], int ldc, int count) {                                                         \
    for (int i = 0; i < count; ++i)                                                               \
      cublas##letter##gemm_v2(handle, of_a, of_b, m, n, k, alpha, a[i], lda, b[i], ldb, beta,     \
                              c[i], ldc);                                                         \
    return CUBLAS_STATUS_SUCCESS;                                                                 \
  }
#define CUDA_ON_CPU_VECTORS(T, letter)                                                            \
  inline cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t, cublasOperation_t of_a, int m,    \
                                                int n, const T* alpha, const T* a, int lda,       \
                                                const T* x, int by_x, const T* beta, T* y,        \
                                                int by_y) {                                       \
    const bool turned = of_a != CUBLAS_OP_N;                                                      \
    ::cuda_on_cpu::blas::gemv<T>({a, turned, lda}, turned ? n : m, turned ? m : n, *alpha, x,     \
                                 by_x, *beta, y, by_y);                                           \
    return CUBLAS_STATUS_SUCCESS;                                                                 \
  }                                                                                               \
  inline cublasStatus_t cublas##letter##axpy_v2(cublasHandle_t, int n, const T* alpha,            \
                                                const T* x, int by_x, T* y, int by_y) {           \
    for (ptrdiff_t i = 0; i < n; ++i) y[i * by_y] += *alpha * x[i * by_x];                        \
    return CUBLAS_STATUS_SUCCESS;                                                                 \
  }                                                                                               \
  inline cublasStatus_t cublas##letter##scal_v2(cublasHandle_t, int n, const T* alpha, T* x,      \
                                                int by_x) {                                       \
    for (ptrdiff_t i = 0; i < n; ++i) x[i * by_x] *= *alpha;                                      \
    return CUBLAS_STATUS_SUCCESS;                                                                 \
  }                                                                                               \
  inline cublasStatus_t cublas##letter##dot_v2(cublasHandle_t, int n, const T* x, int by_x,       \
                                               const T* y, int by_y, T* result) {                 \
    T sum = 0;                                                                                    \
    for (ptrdiff_t i = 0; i < n; ++i) sum += x[i * by_x] * y[i * by_y];                           \
    return *result = sum, CUBLAS_STATUS_SUCCESS;                                                  \
  }                                                                                               \
  inline cublasStatus_t cublas##letter##nrm2_v2(cublasHandle_t, int n, const T* x, int by_x,      \
                                                T* result) {                                      \
    T norm = 0;                                                                                   \
    for (ptrdiff_t i = 0; i < n; ++i) norm = std::hypot(norm, x[i * by_x]);                       \
    return *result = norm, CUBLAS_STATUS_SUCCESS;                                                 \
  }                                                                                               \
  inline cublasStatus_t cublas##letter##geam(                                                     \
      cublasHandle_t, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n,               \
      const T* alpha, const T* a, int lda, const T* beta, const T* b, int ldb, T* c, int ldc) {   \
    const ::cuda_on_cpu::blas::Matrix<T> p(a, of_a != CUBLAS_OP_N, lda),                          \
        q(b, of_b != CUBLAS_OP_N, ldb);                                                           \
    for (int j = 0; j < n; ++j)                                                                   \
      for (int i = 0; i < m; ++i)                                                                 \
        c[i + ptrdiff_t(j) * ldc] = (*alpha == 0 ? T(0) : *alpha * p(i, j)) +                     \
                                    (*beta == 0 ? T(0) : *beta * q(i, j));                        \
    return CUBLAS_STATUS_SUCCESS;                                                                 \
  }

CUDA_ON_CPU_REAL(float, S)
CUDA_ON_CPU_REAL(double, D)
CUDA_ON_CPU_REAL(__half, H)
CUDA_ON_CPU_VECTORS(float, S)
CUDA_ON_CPU_VECTORS(double, D)
#undef CUDA_ON_CPU_REAL
#undef CUDA_ON_CPU_VECTORS

/// Products of types known only at run time. Alpha and beta have the type to compute in, which
/// before CUDA 11 was named by a matrix's type.
template <class Compute>
inline cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType type_a, int lda, long long by_a, const void* b,
    cudaDataType type_b, int ldb, long long by_b, const void* beta, void* c, cudaDataType type_c,
    int ldc, long long by_c, int count, Compute compute, cublasGemmAlgo_t) {
  const auto run = [&](auto in, auto out, auto scalar) {
    using T = decltype(in);
    using Out = decltype(out);
    const auto one = [](const void* at) {
      return ::cuda_on_cpu::blas::number(*static_cast<const decltype(scalar)*>(at));
    };
    for (int i = 0; i < count; ++i)
      ::cuda_on_cpu::blas::gemm<T>({static_cast<const T*>(a) + i * by_a, of_a != CUBLAS_OP_N, lda},
                                   {static_cast<const T*>(b) + i * by_b, of_b != CUBLAS_OP_N, ldb},
                                   m, n, k, one(alpha), one(beta), static_cast<Out*>(c) + i * by_c,
                                   ldc);
    return CUBLAS_STATUS_SUCCESS;
  };
  const bool in_half = int(compute) == int(CUBLAS_COMPUTE_16F) || int(compute) == int(CUDA_R_16F) ||
                       int(compute) == int(CUBLAS_COMPUTE_16F_PEDANTIC);
  if (type_a != type_b) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (type_a == CUDA_R_32F && type_c == CUDA_R_32F) return run(0.f, 0.f, 0.f);
  if (type_a == CUDA_R_64F && type_c == CUDA_R_64F) return run(0., 0., 0.);
  if (type_a == CUDA_R_16F && type_c == CUDA_R_16F)
    return in_half ? run(__half(), __half(), __half()) : run(__half(), __half(), 0.f);
  if (type_a == CUDA_R_16F && type_c == CUDA_R_32F) return run(__half(), 0.f, 0.f);
  if (type_a == CUDA_R_16BF && type_c == CUDA_R_16BF)
    return run(__nv_bfloat16(), __nv_bfloat16(), 0.f);
  if (type_a == CUDA_R_16BF && type_c == CUDA_R_32F) return run(__nv_bfloat16(), 0.f, 0.f);
  if (type_a == CUDA_R_8I && type_c == CUDA_R_32I) return run((signed char)(0), 0, 0);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
template <class Compute>
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t of_a,
                                   cublasOperation_t of_b, int m, int n, int k, const void* alpha,
                                   const void* a, cudaDataType type_a, int lda, const void* b,
                                   cudaDataType type_b, int ldb, const void* beta, void* c,
                                   cudaDataType type_c, int ldc, Compute compute,
                                   cublasGemmAlgo_t how) {
  return cublasGemmStridedBatchedEx(handle, of_a, of_b, m, n, k, alpha, a, type_a, lda, 0, b,
                                    type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute, how);
}
inline cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t of_a,
                                    cublasOperation_t of_b, int m, int n, int k, const float* alpha,
                                    const void* a, cudaDataType type_a, int lda, const void* b,
                                    cudaDataType type_b, int ldb, const float* beta, void* c,
                                    cudaDataType type_c, int ldc) {
  return cublasGemmEx(handle, of_a, of_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c,
                      type_c, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

CUDA_ON_CPU_RAISES(cublasStatus_t, cublasCgemm_v2)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasZgemm_v2)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasGemmBatchedEx)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasStrsm_v2)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDtrsm_v2)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasSsyrk_v2)
CUDA_ON_CPU_RAISES(cublasStatus_t, cublasDsyrk_v2)

// As in the real header.
#define cublasCreate cublasCreate_v2
#define cublasDestroy cublasDestroy_v2
#define cublasGetStream cublasGetStream_v2
#define cublasSetStream cublasSetStream_v2
#define cublasSetWorkspace cublasSetWorkspace_v2
#define cublasGetPointerMode cublasGetPointerMode_v2
#define cublasSetPointerMode cublasSetPointerMode_v2
#define cublasGetVersion cublasGetVersion_v2
#define cublasSgemm cublasSgemm_v2
#define cublasDgemm cublasDgemm_v2
#define cublasCgemm cublasCgemm_v2
#define cublasZgemm cublasZgemm_v2
#define cublasSgemv cublasSgemv_v2
#define cublasDgemv cublasDgemv_v2
#define cublasSdot cublasSdot_v2
#define cublasDdot cublasDdot_v2
#define cublasSaxpy cublasSaxpy_v2
#define cublasDaxpy cublasDaxpy_v2
#define cublasSscal cublasSscal_v2
#define cublasDscal cublasDscal_v2
#define cublasSnrm2 cublasSnrm2_v2
#define cublasDnrm2 cublasDnrm2_v2
#define cublasStrsm cublasStrsm_v2
#define cublasDtrsm cublasDtrsm_v2
#define cublasSsyrk cublasSsyrk_v2
#define cublasDsyrk cublasDsyrk_v2
// This one has no second version.
#define cublasHgemm cublasHgemm_v2
