/// The strides of a call's outputs; compiled programs rely on them.
#pragma once

#include "../runtime/operator.h"

#include <c10/core/SymInt.h>

namespace pullback {

using Symbols = c10::SmallVector<c10::SymInt, 8>;

/// Returns the strides of a contiguous tensor.
Symbols contiguous_strides(c10::SymIntArrayRef shape);

/// The memory layouts of one call's outputs.
///
/// An author's kernel writes contiguous outputs. A formula's outputs follow its inputs, as those of
/// PyTorch's elementwise functions do; TensorIterator decides for both. It takes no symbolic sizes,
/// so its rule is repeated here, in the form of
/// torch._prims_common.compute_elementwise_output_strides.
class Layouts {
 public:
  Layouts(const Definition& definition, const SizesOf<c10::SymInt>& sizes,
          c10::ArrayRef<c10::IValue> arguments);

  /// Returns the strides of output `k`, whose shape is known.
  Symbols strides(size_t k, c10::SymIntArrayRef shape) const;

 private:
  const Definition& definition_;
  const size_t batch_;
  Symbols space_, strides_;  // of the space of a formula
};

}  // namespace pullback
