/// cuRAND for the host, as in cublas_v2.h: a generator can be made, but raises when it should fill
/// an array. The generators for kernels are in curand_kernel.h, and work.
#pragma once

#include "../libraries.h"
#include "cuda_runtime.h"

typedef struct curandGenerator_st* curandGenerator_t;

typedef enum curandStatus {
  CURAND_STATUS_SUCCESS = 0,
  CURAND_STATUS_VERSION_MISMATCH = 100,
  CURAND_STATUS_NOT_INITIALIZED = 101,
  CURAND_STATUS_ALLOCATION_FAILED = 102,
  CURAND_STATUS_TYPE_ERROR = 103,
  CURAND_STATUS_OUT_OF_RANGE = 104,
  CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
  CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
  CURAND_STATUS_LAUNCH_FAILURE = 201,
  CURAND_STATUS_PREEXISTING_FAILURE = 202,
  CURAND_STATUS_INITIALIZATION_FAILED = 203,
  CURAND_STATUS_ARCH_MISMATCH = 204,
  CURAND_STATUS_INTERNAL_ERROR = 999
} curandStatus_t;
typedef enum curandRngType {
  CURAND_RNG_PSEUDO_DEFAULT = 100,
  CURAND_RNG_PSEUDO_XORWOW = 101,
  CURAND_RNG_PSEUDO_MRG32K3A = 121,
  CURAND_RNG_PSEUDO_MTGP32 = 141,
  CURAND_RNG_PSEUDO_MT19937 = 142,
  CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
  CURAND_RNG_QUASI_DEFAULT = 200
} curandRngType_t;

inline curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t) {
  return *generator = nullptr, CURAND_STATUS_SUCCESS;
}

CUDA_ON_CPU_NOTHING_TO_DO(curandStatus_t, curandDestroyGenerator)
CUDA_ON_CPU_NOTHING_TO_DO(curandStatus_t, curandSetStream)
CUDA_ON_CPU_NOTHING_TO_DO(curandStatus_t, curandSetPseudoRandomGeneratorSeed)
CUDA_ON_CPU_NOTHING_TO_DO(curandStatus_t, curandSetGeneratorOffset)

CUDA_ON_CPU_RAISES(curandStatus_t, curandGenerate)
CUDA_ON_CPU_RAISES(curandStatus_t, curandGenerateUniform)
CUDA_ON_CPU_RAISES(curandStatus_t, curandGenerateUniformDouble)
CUDA_ON_CPU_RAISES(curandStatus_t, curandGenerateNormal)
CUDA_ON_CPU_RAISES(curandStatus_t, curandGenerateNormalDouble)
