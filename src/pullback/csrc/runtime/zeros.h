/// The zeros that stand for the gradient of an output that nobody asked for.
#pragma once

#include "signature.h"

#include <c10/core/SymInt.h>

namespace pullback {

/// The outputs that one call left out: enough about them to make zeros of their shape.
class Absent {
 public:
  /// Checks the inputs as every kernel does; sizes may be symbolic. Throws PB111 to PB119.
  Absent(const Signature& signature, c10::ArrayRef<c10::IValue> arguments);

  /// Works out the shape only here, since few backwards ask. Throws PB114.
  at::Tensor zeros(size_t output) const;

 private:
  const Signature& signature_;
  SizesOf<c10::SymInt> sizes_;
  std::vector<c10::IValue> scalars_;  // all arguments but the tensors, if the line has scalars
};

}  // namespace pullback
