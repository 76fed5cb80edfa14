/// Tests an author's backward before forward mode transposes it, which assumes that it is linear.
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
  /// Takes inputs, outputs and gradients, in this order; returns the gradients that the call needs.
  std::function<Tensors(const Tensors&)> run;
};

/// Throws PB309 if a backward is not linear in the gradients that arrive.
///
/// Python sets it, since the test is there (`bind/linear.py`); null in a library without Python.
extern void (*require_linear)(const Trial& trial);

}  // namespace pullback
