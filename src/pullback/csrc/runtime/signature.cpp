#include "signature.h"

#include <c10/core/DefaultDtype.h>
#include <c10/util/StringUtil.h>

namespace pullback {

namespace {

template <class Sizes>
std::string shape_text(const Sizes& sizes) {
  std::string text = "(";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i) text += ", ";
    text += std::to_string(sizes[i]);
  }
  return text + ")";
}

std::string quote(const std::string& name) { return "'" + name + "'"; }

class Solver {
 public:
  Solver(const Signature& signature, c10::ArrayRef<c10::IValue> arguments)
      : signature_(signature), arguments_(arguments) {
    sizes_.dims.assign(signature.dimensions.size(), -1);
    sizes_.owner.assign(signature.dimensions.size(), -1);
  }

  Sizes run() {
    for (const TensorSpec& spec : signature_.inputs) {
      const at::Tensor& tensor = tensor_of(arguments_[spec.argument]);
      if (tensor.defined()) {
        check_kind(spec, tensor);
      } else if (!spec.optional) {
        absent(spec);
      }
    }
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      const TensorSpec& spec = signature_.inputs[i];
      const at::Tensor& tensor = tensor_of(arguments_[spec.argument]);
      if (!tensor.defined()) continue;
      check_rank(spec, tensor);
      check_core(i, tensor);
      if (spec.batched) broadcast(spec, tensor);
    }
    if (!shared_) sizes_.dtype = c10::get_default_dtype_as_scalartype();
    return std::move(sizes_);
  }

 private:
  [[noreturn]] void absent(const TensorSpec& spec) const {
    fail("missing-tensor [PB118]", signature_, quote(spec.name) + " is None, the line says " + spec.text,
         "pass a tensor, or mark it optional in the line: " + spec.text + "?");
  }

  void check_kind(const TensorSpec& spec, const at::Tensor& tensor) {
    if (C10_UNLIKELY(tensor.layout() != at::kStrided)) refuse_layout(spec);
    if (!seen_) {
      seen_ = &spec;
      sizes_.device = tensor.device();
    } else if (C10_UNLIKELY(tensor.device() != sizes_.device)) {
      refuse_device(spec, tensor);
    }
    const at::ScalarType dtype = tensor.scalar_type();
    if (spec.dtype) {
      if (C10_UNLIKELY(dtype != *spec.dtype)) refuse_fixed_dtype(spec, dtype);
    } else if (!shared_) {
      if (C10_UNLIKELY(!at::isFloatingType(dtype) && !at::isComplexType(dtype))) refuse_integer(spec, dtype);
      shared_ = &spec;
      sizes_.dtype = dtype;
    } else if (C10_UNLIKELY(dtype != sizes_.dtype)) {
      refuse_dtype(spec, dtype);
    }
  }

  [[noreturn]] void refuse_layout(const TensorSpec& spec) const {
    fail("layout [PB119]", signature_, quote(spec.name) + " is not a dense tensor",
         "convert it: " + spec.name + ".to_dense()");
  }

  [[noreturn]] void refuse_device(const TensorSpec& spec, const at::Tensor& tensor) const {
    fail("device-mismatch [PB117]", signature_,
         quote(spec.name) + " is on " + tensor.device().str() + ", but " + quote(seen_->name) + " is on " +
             sizes_.device.str(),
         "move it: " + spec.name + ".to(" + seen_->name + ".device)");
  }

  [[noreturn]] void refuse_fixed_dtype(const TensorSpec& spec, at::ScalarType dtype) const {
    fail("dtype-mismatch [PB116]", signature_,
         quote(spec.name) + " is " + dtype_text(dtype) + ", the line says " + spec.text + ": " +
             dtype_text(*spec.dtype),
         "convert it: " + spec.name + ".to(torch." + dtype_text(*spec.dtype) + ")");
  }

  [[noreturn]] void refuse_integer(const TensorSpec& spec, at::ScalarType dtype) const {
    fail("dtype-mismatch [PB116]", signature_,
         quote(spec.name) + " is " + dtype_text(dtype) +
             "; a tensor without a dtype in the line is floating-point or complex",
         "convert it: " + spec.name + ".to(torch.float32), or name the dtype in the line: " + spec.text +
             ": " + dtype_text(dtype));
  }

  [[noreturn]] void refuse_dtype(const TensorSpec& spec, at::ScalarType dtype) const {
    fail("dtype-mismatch [PB116]", signature_,
         quote(spec.name) + " is " + dtype_text(dtype) + ", but " + quote(shared_->name) + " is " +
             dtype_text(sizes_.dtype),
         "convert one: " + spec.name + ".to(" + shared_->name + ".dtype)");
  }

  void check_rank(const TensorSpec& spec, const at::Tensor& tensor) const {
    const auto rank = static_cast<size_t>(tensor.dim());
    if (C10_LIKELY(spec.batched ? rank >= spec.core() : rank == spec.core())) return;
    fail("rank-mismatch [PB111]", signature_,
         quote(spec.name) + " has " + std::to_string(rank) + (rank == 1 ? " dimension " : " dimensions ") +
             shape_text(tensor.sizes()) + ", the line says " + spec.text);
  }

  void check_core(size_t input, const at::Tensor& tensor) {
    const TensorSpec& spec = signature_.inputs[input];
    for (size_t d = 0; d < spec.before.size(); ++d) check_size(input, tensor, spec.before[d], d);
    const size_t offset = tensor.dim() - spec.after.size();
    for (size_t d = 0; d < spec.after.size(); ++d) check_size(input, tensor, spec.after[d], offset + d);
  }

  void check_size(size_t input, const at::Tensor& tensor, const Dimension& dimension, size_t d) {
    const int64_t size = tensor.size(d);
    const int64_t index = dimension.name();
    if (index < 0) {  // an integer in the line
      if (C10_UNLIKELY(size != dimension.steps[0].value)) refuse_fixed_size(input, tensor, d);
    } else if (sizes_.dims[index] < 0) {
      sizes_.dims[index] = size;
      sizes_.owner[index] = static_cast<int32_t>(input);
    } else if (C10_UNLIKELY(sizes_.dims[index] != size)) {
      refuse_size(input, tensor, index, size);
    }
  }

  [[noreturn]] void refuse_fixed_size(size_t input, const at::Tensor& tensor, size_t d) const {
    const TensorSpec& spec = signature_.inputs[input];
    fail("size-mismatch [PB112]", signature_,
         "dimension " + std::to_string(d) + " of " + quote(spec.name) + " " + shape_text(tensor.sizes()) +
             " is " + std::to_string(tensor.size(d)) + ", the line says " + spec.text);
  }

  [[noreturn]] void refuse_size(size_t input, const at::Tensor& tensor, int64_t index, int64_t size) const {
    const TensorSpec& first = signature_.inputs[sizes_.owner[index]];
    fail("size-mismatch [PB112]", signature_,
         "dimension " + quote(signature_.dimensions[index]) + " is " + std::to_string(sizes_.dims[index]) +
             " in " + quote(first.name) + " " + shape_text(tensor_of(arguments_[first.argument]).sizes()) +
             " but " + std::to_string(size) + " in " + quote(signature_.inputs[input].name) + " " +
             shape_text(tensor.sizes()));
  }

  /// Broadcasts the batch dimensions of `tensor` with those seen so far, aligned on the right.
  void broadcast(const TensorSpec& spec, const at::Tensor& tensor) {
    const auto own = tensor.sizes().slice(spec.before.size(), tensor.dim() - spec.core());
    if (!batched_) {
      sizes_.batch.assign(own.begin(), own.end());
      batched_ = true;
      return;
    }
    Ints& batch = sizes_.batch;
    if (own.size() == batch.size() && std::equal(own.begin(), own.end(), batch.begin())) return;
    const Ints earlier = batch;
    if (own.size() > batch.size()) batch.insert(batch.begin(), own.size() - batch.size(), 1);
    const size_t offset = batch.size() - own.size();
    for (size_t d = 0; d < own.size(); ++d) {
      int64_t& size = batch[offset + d];
      if (size == own[d] || own[d] == 1) continue;
      if (size != 1) {
        fail("batch-mismatch [PB113]", signature_,
             "the '...' of " + quote(spec.name) + " " + shape_text(own) + " does not broadcast with " +
                 shape_text(earlier));
      }
      size = own[d];
    }
  }

  const Signature& signature_;
  c10::ArrayRef<c10::IValue> arguments_;
  Sizes sizes_;
  const TensorSpec* seen_ = nullptr;    // the first tensor: it gives the device
  const TensorSpec* shared_ = nullptr;  // the first without a dtype in the line: it gives the dtype
  bool batched_ = false;
};

/// Evaluates an output's dimension; `size` of -1 in `sizes.dims` is a dimension nobody gave.
class Evaluator {
 public:
  Evaluator(const Signature& signature, const Sizes& sizes, c10::ArrayRef<c10::IValue> arguments)
      : signature_(signature), sizes_(sizes), arguments_(arguments) {}

  int64_t run(const TensorSpec& output, size_t position, const Dimension& dimension) const {
    c10::SmallVector<int64_t, 8> stack;
    for (const Step& step : dimension.steps) {
      switch (step.kind) {
        case Step::Kind::number: stack.push_back(step.value); break;
        case Step::Kind::scalar: stack.push_back(arguments_[step.value].toInt()); break;
        case Step::Kind::dimension:
          if (sizes_.dims[step.value] < 0) unknown(output, position, step.value);
          stack.push_back(sizes_.dims[step.value]);
          break;
        default: {
          const int64_t right = stack.pop_back_val();
          stack.back() = apply(output, position, dimension, step.kind, stack.back(), right);
        }
      }
    }
    if (stack.back() < 0) negative(output, position, dimension, stack.back());
    return stack.back();
  }

 private:
  int64_t apply(const TensorSpec& output, size_t position, const Dimension& dimension, Step::Kind kind,
                int64_t left, int64_t right) const {
    int64_t result = 0;
    bool overflow = false;
    switch (kind) {
      case Step::Kind::add: overflow = __builtin_add_overflow(left, right, &result); break;
      case Step::Kind::subtract: overflow = __builtin_sub_overflow(left, right, &result); break;
      case Step::Kind::multiply: overflow = __builtin_mul_overflow(left, right, &result); break;
      default: return floor_divide(output, position, dimension, kind, left, right);
    }
    if (overflow) refuse(output, position, "overflows", dimension);
    return result;
  }

  int64_t floor_divide(const TensorSpec& output, size_t position, const Dimension& dimension,
                       Step::Kind kind, int64_t left, int64_t right) const {
    if (right == 0) refuse(output, position, "divides by zero", dimension);
    if (right == -1) return kind == Step::Kind::divide ? -left : 0;
    const int64_t quotient = left / right, rest = left % right;
    const bool below = rest != 0 && (rest < 0) != (right < 0);
    return kind == Step::Kind::divide ? quotient - below : rest + (below ? right : 0);
  }

  [[noreturn]] void unknown(const TensorSpec& output, size_t position, int64_t index) const {
    const std::string& name = signature_.dimensions[index];
    std::string giver;
    for (const TensorSpec& input : signature_.inputs) {
      for (const auto* dims : {&input.before, &input.after}) {
        for (const Dimension& d : *dims) {
          if (giver.empty() && d.name() == index) giver = input.name;
        }
      }
    }
    fail("absent-dimension [PB115]", signature_,
         "dimension " + quote(name) + " of " + quote(output.name) + " is not known when " + quote(giver) +
             " is None");
    static_cast<void>(position);
  }

  [[noreturn]] void negative(const TensorSpec& output, size_t position, const Dimension& dimension,
                             int64_t size) const {
    refuse(output, position, "would be " + std::to_string(size), dimension);
  }

  [[noreturn]] void refuse(const TensorSpec& output, size_t position, const std::string& what,
                           const Dimension& dimension) const {
    std::string values;
    for (const Step& step : dimension.steps) {
      std::string name;
      int64_t value = 0;
      if (step.kind == Step::Kind::dimension) {
        name = signature_.dimensions[step.value];
        value = sizes_.dims[step.value];
      } else if (step.kind == Step::Kind::scalar) {
        for (const ScalarSpec& s : signature_.scalars) {
          if (static_cast<int64_t>(s.argument) == step.value) name = s.name;
        }
        value = arguments_[step.value].toInt();
      } else {
        continue;
      }
      const std::string item = name + " = " + std::to_string(value);
      if ((", " + values + ",").find(", " + item + ",") != std::string::npos) continue;
      values += (values.empty() ? "" : ", ") + item;
    }
    fail("output-size [PB114]", signature_,
         "dimension " + std::to_string(position) + " of " + quote(output.name) + " " + what + ": " +
             dimension.text + (values.empty() ? "" : " with " + values));
  }

  const Signature& signature_;
  const Sizes& sizes_;
  c10::ArrayRef<c10::IValue> arguments_;
};

}  // namespace

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
    default: return c10::toString(dtype);
  }
}

const at::Tensor& tensor_of(const c10::IValue& value) {
  static const at::Tensor undefined;
  return value.isTensor() ? value.toTensor() : undefined;
}

Sizes solve(const Signature& signature, c10::ArrayRef<c10::IValue> arguments) {
  return Solver(signature, arguments).run();
}

Ints shape_of(const TensorSpec& tensor, const Signature& signature, const Sizes& sizes,
              c10::ArrayRef<c10::IValue> arguments) {
  const Evaluator evaluate(signature, sizes, arguments);
  Ints shape;
  size_t position = 0;
  for (const Dimension& d : tensor.before) shape.push_back(evaluate.run(tensor, position++, d));
  if (tensor.batched) shape.append(sizes.batch.begin(), sizes.batch.end());
  position = shape.size();
  for (const Dimension& d : tensor.after) shape.push_back(evaluate.run(tensor, position++, d));
  return shape;
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
  std::string text = std::string(rule) + ": " + signature.name + ": " + message;
  if (!help.empty()) text += "\n    help: " + help;
  raise(text);
}

void raise(const std::string& text) {
  // Not TORCH_CHECK: its message would end in the C++ location, which is ours, not the user's.
  throw c10::Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
}

}  // namespace pullback
