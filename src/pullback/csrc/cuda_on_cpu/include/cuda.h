/// Only the types, results and attributes' names of the driver's API: enough for checks around
/// calls of the runtime's API. Nothing can be loaded here as a module or compiled from PTX.
#pragma once

#include "cuda_runtime.h"

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;

#define CUDA_CB

enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999
};
typedef cudaDeviceAttr CUdevice_attribute;
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR cudaDevAttrComputeCapabilityMajor
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR cudaDevAttrComputeCapabilityMinor
#define CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT cudaDevAttrMultiProcessorCount
#define CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN \
  cudaDevAttrMaxSharedMemoryPerBlockOptin

namespace cuda_on_cpu {
/// The two APIs have the same numbers for common results.
inline CUresult as_driver(cudaError_t error) { return static_cast<CUresult>(error); }
}  // namespace cuda_on_cpu

inline CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
inline CUresult cuDriverGetVersion(int* version) {
  return cuda_on_cpu::as_driver(cudaDriverGetVersion(version));
}
inline CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return *device = ordinal, cuda_on_cpu::as_driver(cudaSetDevice(ordinal));
}
inline CUresult cuDeviceGetCount(int* count) {
  return cuda_on_cpu::as_driver(cudaGetDeviceCount(count));
}
inline CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return cuda_on_cpu::as_driver(cudaDeviceGetAttribute(value, attribute, device));
}
inline CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
inline CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
inline CUresult cuGetErrorString(CUresult result, const char** text) {
  return *text = cudaGetErrorString(static_cast<cudaError_t>(result)), CUDA_SUCCESS;
}
inline CUresult cuGetErrorName(CUresult result, const char** text) {
  return *text = cudaGetErrorName(static_cast<cudaError_t>(result)), CUDA_SUCCESS;
}
