/// A formula's CUDA kernels in the place of its loop on the CPU, by CUDA on the CPU. Included after
/// `Body` and `Operands`.
#pragma once

#include <stdexcept>

#include "runtime.cuh"

extern "C" __attribute__((visibility("default"))) void pullback_loop(
    char** data, const int64_t* strides, int64_t n, const pullback::Scalar* scalars) {
  using namespace pullback::formula;
  const int64_t* of_operand[Operands::operands];
  for (int k = 0; k < Operands::operands; ++k) of_operand[k] = strides + k;
  const pullback::Launch launch{pullback::abi_version, 1, &n,      of_operand, data,
                                Operands::operands,    n, scalars, nullptr};
  char message[4096];
  if (pullback_launch(&launch, message, sizeof message) != pullback::ok) {
    throw std::runtime_error(message);
  }
}
