/// The zeros that stand for the gradient of an output that nobody asked for.
#pragma once

#include "signature.h"

#include <c10/core/SymInt.h>

namespace pullback {

/// What an output would have been: enough to make zeros of it.
struct Absent {
  std::vector<c10::SymInt> shape;
  at::TensorOptions options;

  at::Tensor zeros() const;
};

/// Works out an output's shape from the inputs without checking them; sizes may be symbolic.
Absent absent_output(const Signature& signature, size_t index, c10::ArrayRef<c10::IValue> arguments);

}  // namespace pullback
