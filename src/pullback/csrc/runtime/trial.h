/// Trying out an author's backward before it is transposed, which takes it for linear.
#pragma once

#include "derivative.h"

#include <functional>

namespace pullback {

/// A backward of one call, to be run with other tensors in place of the call's.
struct Trial {
  const Signature& signature;
  std::string kind;            // the definition, and all but tensors that backward may branch on
  Tensors tensors;             // the inputs, then the outputs
  std::vector<bool> arriving;  // for each output, whether a gradient of it arrives
  /// Of inputs, outputs and gradients, in this order; returns the gradients that the call needs.
  std::function<Tensors(const Tensors&)> run;
};

/// Stops with PB309 at a backward that is not linear in the gradients that arrive.
///
/// Python's, who knows how to try (`bind/linear.py`); null in a library without Python.
extern void (*require_linear)(const Trial& trial);

}  // namespace pullback
