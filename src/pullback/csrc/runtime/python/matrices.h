/// Products of two matrices inside of a thread's work, by BLAS or by oneDNN.
#pragma once

#include <ATen/core/Tensor.h>

namespace pullback {

/// A matrix that is multiplied into another one: `to = scale a b`, or `to += scale a b`.
struct Target {
  at::Tensor to;
  bool adds;
  double scale;
};

/// Multiplies two matrices. `by_onednn`: the large ones, all of them of floats.
void multiply(const Target& target, const at::Tensor& a, const at::Tensor& b, bool by_onednn);

}  // namespace pullback
