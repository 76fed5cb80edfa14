/// Running a derivative's program.
#pragma once

#include "operator.h"

namespace pullback {

using Tensors = c10::SmallVector<at::Tensor, 4>;

/// The values a program refers to, and the stand-in for an undefined one.
class Values {
 public:
  virtual ~Values() = default;
  virtual c10::IValue argument(size_t index) = 0;
  virtual c10::IValue output(size_t index) = 0;
  virtual at::Tensor grad(size_t output) = 0;
  virtual at::Tensor zero_grad(size_t output) = 0;
  virtual at::Tensor tangent(size_t input) = 0;
  virtual at::Tensor zero_tangent(size_t input) = 0;
};

/// Fills `program.reads`: the values that each result needs saved.
void find_reads(const Signature& signature, Program& program);

/// Returns the results for which `needed` is set, undefined for the others and for constant zeros.
Tensors run(const Signature& signature, const Program& program, Values& values,
            c10::ArrayRef<bool> needed);

/// Returns `gradient` with the shape of its input, summed over the dimensions that `...` broadcast.
///
/// Throws PB305 for any other shape and PB306 for another dtype or device. Autograd itself would
/// silently sum what broadcasts and cast the dtype, so a faulty backward has to be caught here.
at::Tensor fit(const Signature& signature, size_t input, at::Tensor gradient,
               c10::SymIntArrayRef shape, const at::TensorOptions& options,
               std::optional<c10::SymIntArrayRef> batch);

}  // namespace pullback
