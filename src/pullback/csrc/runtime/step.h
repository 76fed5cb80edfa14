/// A whole number that follows from sizes, as steps; no PyTorch header.
#pragma once

#include <stdint.h>

namespace pullback {

/// One step of a dimension's expression in postfix order.
struct Step {
  enum class Kind {
    number,
    dimension,
    scalar,
    add,
    subtract,
    multiply,
    divide,
    modulo,
    least,
    greatest
  } kind;
  int64_t value = 0;  // the number, or the index of the dimension or of the argument
};

}  // namespace pullback
