#include "zeros.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>

namespace pullback {

namespace {

using Symbols = std::vector<c10::SymInt>;

/// The sizes of the line's names in one call, as `solve` finds them.
struct SymbolicSizes {
  Symbols dims, batch;

  void read(const TensorSpec& spec, c10::SymIntArrayRef sizes) {
    for (size_t d = 0; d < spec.before.size(); ++d) set(spec.before[d], sizes[d]);
    const size_t offset = sizes.size() - spec.after.size();
    for (size_t d = 0; d < spec.after.size(); ++d) set(spec.after[d], sizes[offset + d]);
    if (spec.batched) broadcast(sizes.slice(spec.before.size(), sizes.size() - spec.core()));
  }

 private:
  void set(const Dimension& dimension, const c10::SymInt& size) {
    if (dimension.name() >= 0) dims[dimension.name()] = size;
  }

  void broadcast(c10::SymIntArrayRef own) {
    if (own.size() > batch.size()) batch.insert(batch.begin(), own.size() - batch.size(), 1);
    const size_t offset = batch.size() - own.size();
    for (size_t d = 0; d < own.size(); ++d) {
      if (batch[offset + d] == 1) batch[offset + d] = own[d];
    }
  }
};

c10::SymInt apply(Step::Kind kind, const c10::SymInt& left, const c10::SymInt& right) {
  switch (kind) {
    case Step::Kind::add: return left + right;
    case Step::Kind::subtract: return left - right;
    case Step::Kind::multiply: return left * right;
    case Step::Kind::divide: return left / right;
    case Step::Kind::least: return left.min(right);
    case Step::Kind::greatest: return left.max(right);
    default: return left % right;
  }
}

c10::SymInt evaluate(const Dimension& dimension, const Symbols& dims, c10::ArrayRef<c10::IValue> arguments) {
  Symbols stack;
  for (const Step& step : dimension.steps) {
    switch (step.kind) {
      case Step::Kind::number: stack.emplace_back(step.value); break;
      case Step::Kind::dimension: stack.push_back(dims[step.value]); break;
      case Step::Kind::scalar: stack.push_back(arguments[step.value].toSymInt()); break;
      default: {
        const c10::SymInt right = std::move(stack.back());
        stack.pop_back();
        stack.back() = apply(step.kind, stack.back(), right);
      }
    }
  }
  return stack.back();
}

}  // namespace

at::Tensor Absent::zeros() const { return at::zeros_symint(shape, options); }

Absent absent_output(const Signature& signature, size_t index, c10::ArrayRef<c10::IValue> arguments) {
  const TensorSpec& output = signature.outputs[index];
  SymbolicSizes sizes;
  sizes.dims.resize(signature.dimensions.size(), c10::SymInt(0));
  Absent absent;
  absent.options = absent.options.dtype(c10::get_default_dtype_as_scalartype());
  bool shared = false;
  for (const TensorSpec& input : signature.inputs) {
    const at::Tensor& tensor = tensor_of(arguments[input.argument]);
    if (!tensor.defined()) continue;
    sizes.read(input, tensor.sym_sizes());
    absent.options = absent.options.device(tensor.device());
    if (!input.dtype && !shared) {
      absent.options = absent.options.dtype(tensor.scalar_type());
      shared = true;
    }
  }
  if (output.dtype) absent.options = absent.options.dtype(*output.dtype);
  for (const Dimension& d : output.before) absent.shape.push_back(evaluate(d, sizes.dims, arguments));
  if (output.batched) absent.shape.insert(absent.shape.end(), sizes.batch.begin(), sizes.batch.end());
  for (const Dimension& d : output.after) absent.shape.push_back(evaluate(d, sizes.dims, arguments));
  return absent;
}

}  // namespace pullback
