/// The checks that follow from the line, for sizes that are numbers and for symbolic ones.
#pragma once

#include "signature.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/SymInt.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <sstream>
#include <type_traits>

namespace pullback {

inline std::string size_text(int64_t size) { return std::to_string(size); }

inline std::string size_text(const c10::SymInt& size) {
  std::ostringstream text;
  text << size;
  return text.str();
}

template <class Shape>
std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ", ";
    text += size_text(shape[i]);
  }
  return text + ")";
}

inline std::string quote(const std::string& name) { return "'" + name + "'"; }

template <class Int>
c10::ArrayRef<Int> sizes_of(const at::Tensor& tensor) {
  if constexpr (std::is_same_v<Int, int64_t>) return tensor.sizes();
  else return tensor.sym_sizes();
}

/// Checks the inputs of one call and finds the sizes of the line's names. `Int` is int64_t, or SymInt in
/// a trace: then a comparison is a guard. So we test equality first: for a size that depends on
/// data, nothing else can be known.
template <class Int>
class Solver {
 public:
  Solver(const Signature& signature, c10::ArrayRef<c10::IValue> arguments)
      : signature_(signature), arguments_(arguments) {
    sizes_.dims.assign(signature.dimensions.size(), Int(-1));
    sizes_.owner.assign(signature.dimensions.size(), -1);
  }

  SizesOf<Int> run() {
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
      if (!tensor.defined() || spec.any_shape) continue;
      check_rank(spec, tensor);
      check_core(i, tensor);
      if (spec.batched) broadcast(spec, tensor);
    }
    if (!shared_) sizes_.dtype = c10::get_default_dtype_as_scalartype();
    return std::move(sizes_);
  }

 private:
  [[noreturn]] void absent(const TensorSpec& spec) const {
    fail("missing-tensor [PB118]", signature_,
         quote(spec.name) + " is None, the line says " + spec.text,
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
      if (C10_UNLIKELY(!at::isFloatingType(dtype) && !at::isComplexType(dtype)))
        refuse_integer(spec, dtype);
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
         quote(spec.name) + " is on " + tensor.device().str() + ", but " + quote(seen_->name) +
             " is on " + sizes_.device.str(),
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
         "convert it: " + spec.name + ".to(torch.float32), or name the dtype in the line: " +
             spec.text + ": " + dtype_text(dtype));
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
         quote(spec.name) + " has " + std::to_string(rank) +
             (rank == 1 ? " dimension " : " dimensions ") + shape_text(sizes_of<Int>(tensor)) +
             ", the line says " + spec.text);
  }

  void check_core(size_t input, const at::Tensor& tensor) {
    const TensorSpec& spec = signature_.inputs[input];
    for (size_t d = 0; d < spec.before.size(); ++d) check_size(input, tensor, spec.before[d], d);
    const size_t offset = tensor.dim() - spec.after.size();
    for (size_t d = 0; d < spec.after.size(); ++d)
      check_size(input, tensor, spec.after[d], offset + d);
  }

  void check_size(size_t input, const at::Tensor& tensor, const Dimension& dimension, size_t d) {
    const Int& size = sizes_of<Int>(tensor)[d];
    const int64_t index = dimension.name();
    if (index < 0) {  // an integer in the line
      if (C10_UNLIKELY(size != dimension.steps[0].value)) refuse_fixed_size(input, tensor, d);
    } else if (sizes_.owner[index] < 0) {
      sizes_.dims[index] = size;
      sizes_.owner[index] = static_cast<int32_t>(input);
    } else if (C10_UNLIKELY(sizes_.dims[index] != size)) {
      refuse_size(input, tensor, index, size);
    }
  }

  [[noreturn]] void refuse_fixed_size(size_t input, const at::Tensor& tensor, size_t d) const {
    const TensorSpec& spec = signature_.inputs[input];
    fail("size-mismatch [PB112]", signature_,
         "dimension " + std::to_string(d) + " of " + quote(spec.name) + " " +
             shape_text(sizes_of<Int>(tensor)) + " is " + size_text(sizes_of<Int>(tensor)[d]) +
             ", the line says " + spec.text);
  }

  [[noreturn]] void refuse_size(size_t input, const at::Tensor& tensor, int64_t index,
                                const Int& size) const {
    const TensorSpec& first = signature_.inputs[sizes_.owner[index]];
    fail("size-mismatch [PB112]", signature_,
         "dimension " + quote(signature_.dimensions[index]) + " is " +
             size_text(sizes_.dims[index]) + " in " + quote(first.name) + " " +
             shape_text(sizes_of<Int>(tensor_of(arguments_[first.argument]))) + " but " +
             size_text(size) + " in " + quote(signature_.inputs[input].name) + " " +
             shape_text(sizes_of<Int>(tensor)));
  }

  /// Broadcasts the batch dimensions of `tensor` with those seen so far, aligned on the right.
  void broadcast(const TensorSpec& spec, const at::Tensor& tensor) {
    const auto own = sizes_of<Int>(tensor).slice(spec.before.size(), tensor.dim() - spec.core());
    if (!batched_) {
      sizes_.batch.assign(own.begin(), own.end());
      batched_ = true;
      return;
    }
    auto& batch = sizes_.batch;
    if (own.size() == batch.size() && std::equal(own.begin(), own.end(), batch.begin())) return;
    const auto earlier = batch;
    if (own.size() > batch.size()) batch.insert(batch.begin(), own.size() - batch.size(), Int(1));
    const size_t offset = batch.size() - own.size();
    for (size_t d = 0; d < own.size(); ++d) {
      Int& size = batch[offset + d];
      if (size == own[d] || own[d] == 1) continue;
      if (size != 1) {
        fail("batch-mismatch [PB113]", signature_,
             "the '...' of " + quote(spec.name) + " " + shape_text(own) +
                 " does not broadcast with " + shape_text(earlier));
      }
      size = own[d];
    }
  }

  const Signature& signature_;
  c10::ArrayRef<c10::IValue> arguments_;
  SizesOf<Int> sizes_;
  const TensorSpec* seen_ = nullptr;    // the first tensor: it gives the device
  const TensorSpec* shared_ = nullptr;  // the first without a dtype in the line: it gives the dtype
  bool batched_ = false;
};

/// Evaluates an output's dimension.
template <class Int>
class Evaluator {
 public:
  Evaluator(const Signature& signature, const SizesOf<Int>& sizes,
            c10::ArrayRef<c10::IValue> arguments)
      : signature_(signature), sizes_(sizes), arguments_(arguments) {}

  Int run(const TensorSpec& output, size_t position, const Dimension& dimension) const {
    c10::SmallVector<Int, 8> stack;
    for (const Step& step : dimension.steps) {
      switch (step.kind) {
        case Step::Kind::number: stack.push_back(Int(step.value)); break;
        case Step::Kind::scalar: stack.push_back(scalar(step.value)); break;
        case Step::Kind::dimension:
          if (sizes_.owner[step.value] < 0) unknown(output, step.value);
          stack.push_back(sizes_.dims[step.value]);
          break;
        default: {
          const Int right = stack.pop_back_val();
          stack.back() = apply({output, position, dimension}, step.kind, stack.back(), right);
        }
      }
    }
    // An input's own size is never negative, and a data-dependent one could not even be compared.
    if (dimension.name() < 0 && stack.back() < 0) {
      refuse({output, position, dimension}, "would be " + size_text(stack.back()));
    }
    return stack.back();
  }

 private:
  /// A dimension of an output, for messages.
  struct Place {
    const TensorSpec& output;
    size_t position;
    const Dimension& dimension;
  };

  Int scalar(int64_t argument) const {
    if constexpr (std::is_same_v<Int, int64_t>) return arguments_[argument].toInt();
    else return arguments_[argument].toSymInt();
  }

  Int apply(const Place& place, Step::Kind kind, const Int& left, const Int& right) const {
    if constexpr (std::is_same_v<Int, int64_t>) {
      return apply_numbers(place, kind, left, right);
    } else {
      const auto a = left.maybe_as_int(), b = right.maybe_as_int();
      if (a && b) return apply_numbers(place, kind, *a, *b);
      switch (kind) {
        case Step::Kind::add: return left + right;
        case Step::Kind::subtract: return left - right;
        case Step::Kind::multiply: return left * right;
        case Step::Kind::least: return left.min(right);
        case Step::Kind::greatest: return left.max(right);
        default: break;
      }
      if (right == 0) refuse(place, "divides by zero");
      return kind == Step::Kind::divide ? left / right : left % right;
    }
  }

  int64_t apply_numbers(const Place& place, Step::Kind kind, int64_t left, int64_t right) const {
    int64_t result = 0;
    bool overflow = false;
    switch (kind) {
      case Step::Kind::add: overflow = __builtin_add_overflow(left, right, &result); break;
      case Step::Kind::subtract: overflow = __builtin_sub_overflow(left, right, &result); break;
      case Step::Kind::multiply: overflow = __builtin_mul_overflow(left, right, &result); break;
      case Step::Kind::least: return std::min(left, right);
      case Step::Kind::greatest: return std::max(left, right);
      default: return floor_divide(place, kind, left, right);
    }
    if (overflow) refuse(place, "overflows");
    return result;
  }

  int64_t floor_divide(const Place& place, Step::Kind kind, int64_t left, int64_t right) const {
    if (right == 0) refuse(place, "divides by zero");
    if (right == -1) return kind == Step::Kind::divide ? -left : 0;
    const int64_t quotient = left / right, rest = left % right;
    const bool below = rest != 0 && (rest < 0) != (right < 0);
    return kind == Step::Kind::divide ? quotient - below : rest + (below ? right : 0);
  }

  [[noreturn]] void unknown(const TensorSpec& output, int64_t index) const {
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
         "dimension " + quote(name) + " of " + quote(output.name) + " is not known when " +
             quote(giver) + " is None");
  }

  [[noreturn]] void refuse(const Place& place, const std::string& what) const {
    std::string values;
    for (const Step& step : place.dimension.steps) {
      std::string name;
      Int value = 0;
      if (step.kind == Step::Kind::dimension) {
        name = signature_.dimensions[step.value];
        value = sizes_.dims[step.value];
      } else if (step.kind == Step::Kind::scalar) {
        for (const ScalarSpec& s : signature_.scalars) {
          if (static_cast<int64_t>(s.argument) == step.value) name = s.name;
        }
        value = scalar(step.value);
      } else {
        continue;
      }
      const std::string item = name + " = " + size_text(value);
      if ((", " + values + ",").find(", " + item + ",") != std::string::npos) continue;
      values += (values.empty() ? "" : ", ") + item;
    }
    fail("output-size [PB114]", signature_,
         "dimension " + std::to_string(place.position) + " of " + quote(place.output.name) + " " +
             what + ": " + place.dimension.text + (values.empty() ? "" : " with " + values));
  }

  const Signature& signature_;
  const SizesOf<Int>& sizes_;
  c10::ArrayRef<c10::IValue> arguments_;
};

/// Evaluates the shape of a tensor of the line. Throws PB114, PB115.
template <class Int>
c10::SmallVector<Int, 8> evaluated_shape(const TensorSpec& tensor, const Signature& signature,
                                         const SizesOf<Int>& sizes,
                                         c10::ArrayRef<c10::IValue> arguments) {
  const Evaluator<Int> evaluate(signature, sizes, arguments);
  c10::SmallVector<Int, 8> shape;
  size_t position = 0;
  for (const Dimension& d : tensor.before) shape.push_back(evaluate.run(tensor, position++, d));
  if (tensor.batched) shape.append(sizes.batch.begin(), sizes.batch.end());
  position = shape.size();
  for (const Dimension& d : tensor.after) shape.push_back(evaluate.run(tensor, position++, d));
  return shape;
}

}  // namespace pullback
