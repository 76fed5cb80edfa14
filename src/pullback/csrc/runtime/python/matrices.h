/// Products of two matrices inside of a thread's work, by BLAS or by oneDNN; of halves by the latter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace pullback {

/// A matrix that is multiplied into another one: `to = scale a b`, or `to += scale a b`.
struct Target {
  at::Tensor to;
  bool adds;
  double scale;
};

/// Multiplies two matrices. `by_onednn`: the large ones, all of them of floats.
void multiply(const Target& target, const at::Tensor& a, const at::Tensor& b, bool by_onednn);

/// Whether this processor multiplies matrices of bfloat16 into floats.
bool multiplies_halves();

/// What a thread has for itself while it multiplies halves.
struct HalvesMemory {
  std::vector<uint32_t> pairs;   // elements of a second matrix from two rows that follow each other
  std::vector<uint16_t> turned;  // a first matrix, row by row
};

/// Multiplies two matrices of bfloat16 into one of floats. The rows of each have no gaps, or the
/// columns.
void multiply_halves(const Target& target, const at::Tensor& a, const at::Tensor& b,
                     HalvesMemory& memory);

/// Has to be called by each thread that has multiplied halves, when it has multiplied the last.
void release_halves();

}  // namespace pullback
