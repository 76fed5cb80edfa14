/// The two kernels of a formula. Included after its `Body` and `Operands`.
#pragma once

// The host's half of an NVRTC build includes this too, so that the cache knows that it was read.
#if defined(__CUDACC__)

extern "C" __global__ void __launch_bounds__(pullback::formula::block)
    pullback_dense(const pullback::formula::Body body,
                   const pullback::formula::Dense<pullback::formula::Operands::operands> given) {
  pullback::formula::Operands::dense(body, given, blockIdx.x * blockDim.x + threadIdx.x,
                                     gridDim.x * blockDim.x);
}

extern "C" __global__ void __launch_bounds__(pullback::formula::block) pullback_strided(
    const pullback::formula::Body body,
    const pullback::formula::Strided<pullback::formula::Operands::operands> given) {
  pullback::formula::Operands::strided(body, given, blockIdx.x * blockDim.x + threadIdx.x,
                                       gridDim.x * blockDim.x);
}

#endif
