/// Not available on a CPU: graphs, memory of other processes. Each call returns an error.
#pragma once

#include "stream.h"

typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
struct cudaIpcMemHandle_t {
  char reserved[64];
};
struct cudaIpcEventHandle_t {
  char reserved[64];
};
#define cudaIpcMemLazyEnablePeerAccess 0x01

// Capture fails at its first call, so that a program that can do without a graph does.
#define CUDA_ON_CPU_REFUSE(name, error, ...)                   \
  inline cudaError_t name(__VA_ARGS__) {                       \
    return cuda_on_cpu::answer(error);                         \
  }
CUDA_ON_CPU_REFUSE(cudaStreamBeginCapture, cudaErrorStreamCaptureUnsupported, cudaStream_t,
                   cudaStreamCaptureMode)
CUDA_ON_CPU_REFUSE(cudaStreamEndCapture, cudaErrorStreamCaptureUnsupported, cudaStream_t,
                   cudaGraph_t*)
CUDA_ON_CPU_REFUSE(cudaGraphCreate, cudaErrorNotSupported, cudaGraph_t*, unsigned)
CUDA_ON_CPU_REFUSE(cudaGraphInstantiate, cudaErrorNotSupported, cudaGraphExec_t*, cudaGraph_t,
                   unsigned long long = 0)
CUDA_ON_CPU_REFUSE(cudaGraphInstantiate, cudaErrorNotSupported, cudaGraphExec_t*, cudaGraph_t,
                   cudaGraphNode_t*, char*, size_t)
CUDA_ON_CPU_REFUSE(cudaGraphLaunch, cudaErrorNotSupported, cudaGraphExec_t, cudaStream_t)
CUDA_ON_CPU_REFUSE(cudaGraphDestroy, cudaErrorNotSupported, cudaGraph_t)
CUDA_ON_CPU_REFUSE(cudaGraphExecDestroy, cudaErrorNotSupported, cudaGraphExec_t)
CUDA_ON_CPU_REFUSE(cudaIpcGetMemHandle, cudaErrorNotSupported, cudaIpcMemHandle_t*, void*)
CUDA_ON_CPU_REFUSE(cudaIpcOpenMemHandle, cudaErrorNotSupported, void**, cudaIpcMemHandle_t,
                   unsigned)
CUDA_ON_CPU_REFUSE(cudaIpcCloseMemHandle, cudaErrorNotSupported, void*)
CUDA_ON_CPU_REFUSE(cudaIpcGetEventHandle, cudaErrorNotSupported, cudaIpcEventHandle_t*, cudaEvent_t)
CUDA_ON_CPU_REFUSE(cudaIpcOpenEventHandle, cudaErrorNotSupported, cudaEvent_t*,
                   cudaIpcEventHandle_t)
#undef CUDA_ON_CPU_REFUSE
