#include "signature.h"

#include "solver.h"

#include <cctype>

namespace pullback {

std::string dtype_text(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return "float64";
    case at::kFloat: return "float32";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    case at::kComplexFloat: return "complex64";
    case at::kComplexDouble: return "complex128";
    case at::kLong: return "int64";
    case at::kInt: return "int32";
    case at::kShort: return "int16";
    case at::kChar: return "int8";
    case at::kByte: return "uint8";
    case at::kBool: return "bool";
    case at::kComplexHalf: return "complex32";
    default: break;
  }
  // "Float8_e5m2" is float8_e5m2 in Python.
  std::string text = c10::toString(dtype);
  for (char& letter : text)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

const at::Tensor& tensor_of(const c10::IValue& value) {
  static const at::Tensor undefined;
  return value.isTensor() ? value.toTensor() : undefined;
}

Sizes solve(const Signature& signature, c10::ArrayRef<c10::IValue> arguments) {
  return Solver<int64_t>(signature, arguments).run();
}

Ints shape_of(const TensorSpec& tensor, const Signature& signature, const Sizes& sizes,
              c10::ArrayRef<c10::IValue> arguments) {
  return evaluated_shape(tensor, signature, sizes, arguments);
}

bool wanted(const Signature& signature, c10::ArrayRef<c10::IValue> arguments, size_t index) {
  if (!signature.masked || arguments.back().isNone()) return true;
  const auto mask = arguments.back().toBoolList();
  if (mask.size() != signature.outputs.size()) {
    fail("output-mask [PB120]", signature,
         "output_mask has " + std::to_string(mask.size()) + " entries for " +
             std::to_string(signature.outputs.size()) + " outputs");
  }
  return mask.get(index);
}

void fail(const char* rule, const Signature& signature, const std::string& message,
          const std::string& help) {
  const std::string& called = signature.called.empty() ? signature.name : signature.called;
  std::string text = std::string(rule) + ": " + called + ": " + message;
  if (!help.empty()) text += "\n    help: " + help;
  raise(text);
}

void raise(const std::string& text) {
  // Not TORCH_CHECK: its message would end with a location in our C++, not in the user's code.
  throw c10::Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
}

}  // namespace pullback
