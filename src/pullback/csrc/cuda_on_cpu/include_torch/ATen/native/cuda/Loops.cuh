#pragma once

#ifndef CPU_CAPABILITY
#define CPU_CAPABILITY DEFAULT
#endif
#include <ATen/OpMathType.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>

// PyTorch's loops over the elements of tensors: those for the CPU.

namespace at::native {

template <class Function>
void gpu_kernel(TensorIteratorBase& iter, const Function& function) {
  cpu_kernel(iter, function);
}
template <class Function>
void gpu_kernel_with_scalars(TensorIteratorBase& iter, const Function& function) {
  cpu_kernel(iter, function);
}
template <class Function>
void gpu_kernel_multiple_outputs(TensorIteratorBase& iter, const Function& function) {
  cpu_kernel_multiple_outputs(iter, function);
}

}  // namespace at::native
