/// The launcher of kernels that NVRTC compiled. It uses only the driver and needs no CUDA toolkit.
///
/// Included after `Body`, `Operands` and `pullback_cubin`, the compiled kernels.
#pragma once

#include "kernels.cuh"
#include "launch.h"
#include "module.h"

namespace pullback::formula {

/// Both kernels, loaded once.
struct Kernels : Module {
  void* dense = find("pullback_dense");
  void* strided = find("pullback_strided");

  using Module::Module;
};

}  // namespace pullback::formula

extern "C" __attribute__((visibility("default"))) int pullback_launch(
    const pullback::Launch* launch, char* message, uint64_t capacity) {
  using namespace pullback::formula;
  Body body(launch->scalars);
  const auto start = [&](bool dense, uint32_t blocks, void* operands) -> const char* {
    try {
      // Tried again at the next call if it throws.
      static const Kernels kernels(pullback_cubin);
      kernels.driver.require_context(launch->data[0]);
      void* parameters[] = {&body, operands};
      kernels.launch(dense ? kernels.dense : kernels.strided, blocks, block, 0, launch->stream,
                     parameters);
      return nullptr;
    } catch (const char* error) {
      return error;
    }
  };
  return run<Operands>(*launch, message, capacity, start);
}
