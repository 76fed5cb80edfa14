/// The line in the form that the runtime needs, and the checks that follow from it.
#pragma once

#include "step.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <vector>

namespace pullback {

using Ints = c10::SmallVector<int64_t, 8>;

struct Dimension {
  std::vector<Step> steps;
  std::string text;  // as printed in the line: "h - p + 1"

  /// The index of the dimension if this is only its name, else -1.
  int64_t name() const {
    return steps.size() == 1 && steps[0].kind == Step::Kind::dimension ? steps[0].value : -1;
  }
};

/// A tensor of the line: `x[..., n]: int64?`.
struct TensorSpec {
  std::string name;
  std::string text;                      // the whole of it, for messages
  std::vector<Dimension> before, after;  // the core dimensions on both sides of `...`
  bool batched = false;                  // has `...`
  bool optional = false;
  std::optional<at::ScalarType> dtype = std::nullopt;
  size_t argument = 0;     // position among the operator's arguments (inputs only)
  bool detached = false;   // has no derivative, whatever its dtype (outputs only)
  bool any_shape = false;  // `x[*]`: the line says nothing about its shape

  size_t core() const { return before.size() + after.size(); }
};

struct ScalarSpec {
  enum class Kind { integer, real, boolean, text } kind;
  std::string name;
  size_t argument;
};

struct Signature {
  std::string name;    // namespace::name
  std::string called;  // in errors, if not by its name
  std::vector<TensorSpec> inputs, outputs;
  std::vector<ScalarSpec> scalars;
  std::vector<std::string> dimensions;
  size_t arguments = 0;  // of the schema, `output_mask` included
  bool masked = false;   // the last argument is `output_mask`
};

/// The sizes that one call's inputs give to the line's names.
template <class Int>
struct SizesOf {
  c10::SmallVector<Int, 8> dims;       // -1: appears only in inputs that are None
  c10::SmallVector<int32_t, 8> owner;  // the input that gave each size; -1 for none
  c10::SmallVector<Int, 8> batch;
  at::ScalarType dtype = at::ScalarType::Undefined;  // shared; PyTorch's default if no input has it
  at::Device device = at::kCPU;
};

using Sizes = SizesOf<int64_t>;

/// Returns a dtype's name in the line: "float32".
std::string dtype_text(at::ScalarType dtype);

/// Returns the tensor of an argument, or an undefined one for None.
const at::Tensor& tensor_of(const c10::IValue& value);

/// Checks every input against the line and solves for its dimensions.
///
/// Throws PB111 to PB118, with the same text as `define/shape.py` for the same mistake.
Sizes solve(const Signature& signature, c10::ArrayRef<c10::IValue> arguments);

/// Evaluates the shape of an output, or of another tensor of the line. Throws PB114, PB115.
Ints shape_of(const TensorSpec& tensor, const Signature& signature, const Sizes& sizes,
              c10::ArrayRef<c10::IValue> arguments);

/// Whether the call's `output_mask` asks for output `index`. Throws PB120.
bool wanted(const Signature& signature, c10::ArrayRef<c10::IValue> arguments, size_t index);

/// Throws a user's error in the form of `diagnostic.Finding`; `help` may be empty.
[[noreturn]] void fail(const char* rule, const Signature& signature, const std::string& message,
                       const std::string& help = "");

/// Throws an error with exactly this text.
[[noreturn]] void raise(const std::string& text);

}  // namespace pullback
