#include "zeros.h"

#include "solver.h"

#include <ATen/ops/zeros.h>

namespace pullback {

Absent::Absent(const Signature& signature, c10::ArrayRef<c10::IValue> arguments)
    : signature_(signature), sizes_(Solver<c10::SymInt>(signature, arguments).run()) {
  // Only inputs that are None have this dimension: zeros of any size are right, and size 0 is free.
  for (size_t d = 0; d < sizes_.dims.size(); ++d) {
    if (sizes_.owner[d] < 0) sizes_.dims[d] = sizes_.owner[d] = 0;
  }
  if (signature.scalars.empty()) return;
  for (const c10::IValue& value : arguments)
    scalars_.push_back(value.isTensor() ? c10::IValue() : value);
}

at::Tensor Absent::zeros(size_t output) const {
  const TensorSpec& spec = signature_.outputs[output];
  const auto options =
      at::TensorOptions().dtype(spec.dtype.value_or(sizes_.dtype)).device(sizes_.device);
  return at::zeros_symint(evaluated_shape(spec, signature_, sizes_, scalars_), options);
}

}  // namespace pullback
