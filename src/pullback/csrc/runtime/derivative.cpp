#include "derivative.h"

#include <sstream>

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace pullback {

namespace {

using Origin = Reference::Origin;

class Reader {
 public:
  Reader(const Signature& signature, const Program& program)
      : signature_(signature), program_(program) {}

  Program::Reads of(const Reference& reference) const {
    Program::Reads reads;
    add(reference, reads);
    return reads;
  }

 private:
  void add(const Reference& reference, Program::Reads& reads) const {
    if (reference.origin == Origin::output) reads.outputs |= uint64_t{1} << reference.index;
    if (reference.origin == Origin::result) {
      for (const Reference& argument : program_.calls[reference.index].arguments)
        add(argument, reads);
    }
    if (reference.origin != Origin::argument) return;
    for (const TensorSpec& input : signature_.inputs) {
      if (input.argument == reference.index) {
        reads.tensors |= uint64_t{1} << reference.index;
        return;
      }
    }
    reads.scalars = true;
  }

  const Signature& signature_;
  const Program& program_;
};

class Run {
 public:
  Run(const Signature& signature, const Program& program, Values& values,
      c10::ArrayRef<bool> needed)
      : signature_(signature),
        program_(program),
        values_(values),
        needed_(needed),
        done_(program.calls.size()) {}

  at::Tensor result(const Reference& reference) { return tensor_of(value(reference, 0)); }

 private:
  c10::IValue value(const Reference& reference, size_t call) {
    switch (reference.origin) {
      case Origin::grad:
        return present(reference, values_.grad(reference.index),
                       [&] { return values_.zero_grad(reference.index); });
      case Origin::tangent:
        return present(reference, values_.tangent(reference.index),
                       [&] { return values_.zero_tangent(reference.index); });
      case Origin::argument: return values_.argument(reference.index);
      case Origin::output: return values_.output(reference.index);
      case Origin::constant: return reference.constant;
      case Origin::mask: return mask(call);
      case Origin::result: return results(reference.index)[reference.result];
    }
    return {};
  }

  template <class Zero>
  c10::IValue present(const Reference& reference, at::Tensor tensor, Zero zero) const {
    if (tensor.defined()) return tensor;
    return reference.optional ? c10::IValue() : c10::IValue(zero());
  }

  /// Which results of call `call` are gradients that somebody needs.
  c10::IValue mask(size_t call) const {
    c10::List<bool> mask;
    mask.resize(program_.calls[call].results, false);
    for (size_t i = 0; i < program_.results.size(); ++i) {
      const auto& result = program_.results[i];
      if (needed_[i] && result && result->origin == Origin::result && result->index == call)
        mask.set(result->result, true);
    }
    return mask;
  }

  const c10::SmallVector<c10::IValue, 3>& results(size_t call) {
    auto& done = done_[call];
    if (done.empty()) {
      const Program::OperatorCall& target = program_.calls[call];
      torch::jit::Stack stack;
      stack.reserve(target.arguments.size() + 1);
      for (const Reference& argument : target.arguments) stack.push_back(value(argument, call));
      invoke(target, stack);
      for (c10::IValue& result : stack) done.push_back(std::move(result));
    }
    return done;
  }

  void invoke(const Program::OperatorCall& target, torch::jit::Stack& stack) const {
    // Looked up each time: a redefinition may have replaced the operator since the forward call.
    const auto op = c10::Dispatcher::singleton().findSchema(target.operator_name);
    if (!op || op->schema().arguments().size() != stack.size()) {
      fail("derivative-gone [PB307]", signature_,
           "its derivative calls " + toString(target.operator_name) +
               ", which is not registered any more with the arguments it had",
           "define " + signature_.name + " again");
    }
    op->callBoxed(&stack);
    TORCH_INTERNAL_ASSERT(stack.size() == target.results);
  }

  const Signature& signature_;
  const Program& program_;
  Values& values_;
  const c10::ArrayRef<bool> needed_;
  c10::SmallVector<c10::SmallVector<c10::IValue, 3>, 2> done_;
};

template <class Shape>
std::string text(const Shape& shape) {
  std::ostringstream out;
  out << '(';
  for (size_t i = 0; i < shape.size(); ++i) out << (i ? ", " : "") << shape[i];
  out << ')';
  return out.str();
}

[[noreturn]] void refuse_shape(const Signature& signature, const TensorSpec& input,
                               const at::Tensor& gradient, c10::SymIntArrayRef shape) {
  fail("gradient-shape [PB305]", signature,
       "backward returned a gradient of shape " + text(gradient.sym_sizes()) + " for '" +
           input.name + "', which has shape " + text(shape),
       "return the shape of the input; only the dimensions of '...' are summed for you");
}

bool same_core(const TensorSpec& input, c10::SymIntArrayRef gradient, c10::SymIntArrayRef shape) {
  const size_t after = input.after.size();
  for (size_t d = 0; d < input.before.size(); ++d) {
    if (gradient[d] != shape[d]) return false;
  }
  for (size_t d = 1; d <= after; ++d) {
    if (gradient[gradient.size() - d] != shape[shape.size() - d]) return false;
  }
  return true;
}

/// Sums the dimensions of `...` in which `gradient` is larger than its input.
at::Tensor sum_batch(const Signature& signature, const TensorSpec& input, at::Tensor gradient,
                     c10::SymIntArrayRef shape) {
  const auto sizes = gradient.sym_sizes();
  const size_t first = input.before.size();
  const size_t extra = sizes.size() - shape.size();
  c10::SmallVector<int64_t, 8> kept, dropped;
  for (size_t d = first; d + input.after.size() < sizes.size(); ++d) {
    if (d < first + extra) {
      dropped.push_back(static_cast<int64_t>(d));
    } else if (sizes[d] != shape[d - extra]) {
      if (shape[d - extra] != 1) refuse_shape(signature, input, gradient, shape);
      kept.push_back(static_cast<int64_t>(d));
    }
  }
  if (!kept.empty()) gradient = gradient.sum(kept, /*keepdim=*/true);
  return dropped.empty() ? gradient : gradient.sum(dropped);
}

}  // namespace

void find_reads(const Signature& signature, Program& program) {
  const Reader reader(signature, program);
  for (const auto& result : program.results) {
    program.reads.push_back(result ? reader.of(*result) : Program::Reads{});
  }
}

Tensors run(const Signature& signature, const Program& program, Values& values,
            c10::ArrayRef<bool> needed) {
  // The gradients have their inputs' dtypes: backward may run inside autocast, forward outside.
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  Run run(signature, program, values, needed);
  Tensors results(program.results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (needed[i] && program.results[i]) results[i] = run.result(*program.results[i]);
  }
  return results;
}

at::Tensor fit(const Signature& signature, size_t input, at::Tensor gradient,
               c10::SymIntArrayRef shape, const at::TensorOptions& options,
               std::optional<c10::SymIntArrayRef> batch) {
  const TensorSpec& spec = signature.inputs[input];
  if (C10_UNLIKELY(gradient.scalar_type() != c10::typeMetaToScalarType(options.dtype()) ||
                   gradient.device() != options.device())) {
    fail("gradient-dtype [PB306]", signature,
         "backward returned a " + dtype_text(gradient.scalar_type()) + " gradient on " +
             gradient.device().str() + " for '" + spec.name + "', which is " +
             dtype_text(c10::typeMetaToScalarType(options.dtype())) + " on " +
             options.device().str(),
         "return the dtype and device of the input");
  }
  const auto sizes = gradient.sym_sizes();
  if (C10_LIKELY(sizes.equals(shape))) return gradient;
  if (!spec.batched || sizes.size() < shape.size() || !same_core(spec, sizes, shape)) {
    refuse_shape(signature, spec, gradient, shape);
  }
  const auto own = sizes.slice(spec.before.size(), sizes.size() - spec.core());
  if (batch && !own.equals(*batch)) refuse_shape(signature, spec, gradient, shape);
  return sum_batch(signature, spec, std::move(gradient), shape);
}

}  // namespace pullback
