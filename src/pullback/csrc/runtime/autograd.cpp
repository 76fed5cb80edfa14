/// The boxed autograd kernel: one node, saved variables and edges as in PyTorch's generated code,
/// then forward mode.
#include "derivative.h"
#include "interpreter.h"
#include "node.h"
#include "trial.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

namespace pullback {

void (*require_linear)(const Trial&) = nullptr;

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Arguments = c10::SmallVector<c10::IValue, 6>;

/// The batch dimensions of an output, by which a broadcast gradient is recognised.
std::optional<c10::SymIntArrayRef> batch_of(const Signature& signature, size_t output,
                                            c10::SymIntArrayRef shape) {
  const TensorSpec& spec = signature.outputs[output];
  if (!spec.batched || shape.size() < spec.core()) return std::nullopt;
  return shape.slice(spec.before.size(), shape.size() - spec.core());
}

/// The values of a backward pass: gradients that arrived, and what the node saved.
class SavedValues final : public Values {
 public:
  SavedValues(Node& node, const variable_list& grads) : node_(node), grads_(grads) {}

  c10::IValue argument(size_t index) override {
    if (!(node_.tensors >> index & 1))
      return node_.scalars.empty() ? c10::IValue() : node_.scalars[index];
    return unpack(std::popcount(node_.tensors & ((uint64_t{1} << index) - 1)), false);
  }
  c10::IValue output(size_t index) override {
    return unpack(
        std::popcount(node_.tensors) + std::popcount(node_.outputs & ((uint64_t{1} << index) - 1)),
        index < node_.definition.signature.outputs.size());
  }
  at::Tensor grad(size_t output) override { return grads_[output]; }
  at::Tensor zero_grad(size_t output) override {
    at::Tensor& zeros = zeros_[output];
    if (!zeros.defined()) {
      const auto& metadata = node_.input_metadata(output);
      const bool absent = node_.absent && metadata.was_default_constructed();
      zeros = absent ? node_.absent->zeros(output) : metadata.zeros_like();
    }
    return zeros;
  }
  at::Tensor tangent(size_t) override { return {}; }
  at::Tensor zero_tangent(size_t) override { return {}; }

 private:
  /// Unpacks once for each backward: unpacking twice fails under non-reentrant checkpointing.
  c10::IValue unpack(size_t index, bool is_output) {
    if (!unpacked_[index]) {
      unpacked_[index] = node_.saved[index].unpack(is_output ? self(node_) : NodePtr());
    }
    return unpacked_[index]->defined() ? c10::IValue(*unpacked_[index]) : c10::IValue();
  }

  Node& node_;
  const variable_list& grads_;
  Tensors zeros_ = Tensors(grads_.size());
  c10::SmallVector<std::optional<at::Tensor>, 4> unpacked_{node_.saved.size(), std::nullopt};
};

/// The values of a forward-mode pass, which the autograd kernel still has.
class LiveValues final : public Values {
 public:
  Arguments arguments;
  Tensors outputs, grads, tangents;
  const Signature& signature;

  explicit LiveValues(const Signature& signature) : signature(signature) {}

  c10::IValue argument(size_t index) override { return arguments[index]; }
  c10::IValue output(size_t index) override { return outputs[index]; }
  at::Tensor grad(size_t output) override { return grads[output]; }
  at::Tensor zero_grad(size_t output) override {
    return outputs[output].defined() ? at::zeros_like(outputs[output])
                                     : Absent(signature, arguments).zeros(output);
  }
  at::Tensor tangent(size_t input) override { return tangents[input]; }
  at::Tensor zero_tangent(size_t input) override { return at::zeros_like(primal(input)); }
  const at::Tensor& primal(size_t input) const {
    return tensor_of(arguments[signature.inputs[input].argument]);
  }
};

[[noreturn]] void no_derivative(const Definition& definition) {
  if (definition.supply) definition.supply->explain_missing(definition.signature);
  fail("no-derivative [PB308]", definition.signature, "it has no derivative, and one is asked for",
       "give it backward=..., or call it on detached tensors");
}

/// Whether the call's `output_mask` leaves an output out. Throws PB120.
bool leaves_out(const Signature& signature, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t k = 0; signature.masked && k < signature.outputs.size(); ++k) {
    if (!wanted(signature, arguments, k)) return true;
  }
  return false;
}

/// Whether a derivative is asked for an output: the line may deny it.
bool has_derivative(const Signature& signature, size_t k, const at::Tensor& output) {
  return !signature.outputs[k].detached && output.defined() &&
         torch::autograd::isDifferentiableType(output.scalar_type());
}

/// Has a hand-written backward tested; one that was derived is linear.
void try_out(const Definition& definition, const LiveValues& values, c10::ArrayRef<bool> needed,
             c10::ArrayRef<bool> arriving) {
  const Signature& signature = definition.signature;
  if (!require_linear || definition.supply) return;
  std::ostringstream kind;
  kind << &definition;
  for (const c10::IValue& value : values.arguments) {
    if (!value.isTensor()) kind << ' ' << value;
  }
  for (bool each : needed) kind << ' ' << each;
  Trial trial{signature, kind.str(), {}, arriving.vec(), {}};
  for (size_t i = 0; i < signature.inputs.size(); ++i) trial.tensors.push_back(values.primal(i));
  trial.tensors.append(values.outputs.begin(), values.outputs.end());
  trial.run = [&](const Tensors& given) {
    LiveValues others(signature);
    others.arguments = values.arguments;
    auto next = given.begin();
    for (const TensorSpec& input : signature.inputs) {
      const at::Tensor& tensor = *next++;
      others.arguments[input.argument] = tensor.defined() ? c10::IValue(tensor) : c10::IValue();
    }
    for (size_t k = 0; k < arriving.size(); ++k) others.outputs.push_back(*next++);
    for (size_t k = 0; k < arriving.size(); ++k) others.grads.push_back(*next++);
    Tensors pulled = run(signature, *definition.backward, others, needed), found;
    for (size_t i = 0; i < pulled.size(); ++i)
      if (needed[i]) found.push_back(std::move(pulled[i]));
    return found;
  };
  require_linear(trial);
}

/// Forward mode without `jvp=`: J v is the derivative of Jᵀ u with respect to u, transposed once
/// more. Source: J. Townsend, "A new trick for calculating Jacobian vector products" (2017).
Tensors tangents_by_double_backward(const Definition& definition, LiveValues& values) {
  const Signature& signature = definition.signature;
  c10::SmallVector<bool, 8> has_tangent;
  for (size_t k = 0; k < values.outputs.size(); ++k)
    has_tangent.push_back(has_derivative(signature, k, values.outputs[k]));
  if (std::find(has_tangent.begin(), has_tangent.end(), true) == has_tangent.end())
    return Tensors(values.outputs.size());
  if (!definition.backward) {
    if (definition.supply) definition.supply->explain_missing(signature);
    fail("no-forward-mode [PB309]", signature,
         "it has no forward-mode derivative: neither jvp= nor backward= is given",
         "give it jvp=... or backward=...");
  }
  c10::SmallVector<bool, 8> needed;
  for (const at::Tensor& tangent : values.tangents) needed.push_back(tangent.defined());
  try_out(definition, values, needed, has_tangent);
  const bool differentiable = c10::GradMode::is_enabled();
  const c10::AutoGradMode enable(true);
  for (size_t k = 0; k < values.outputs.size(); ++k) {
    // Ones and not zeros, though J is linear in them: zeros would hide a gradient that is cut off.
    values.grads.push_back(has_tangent[k] ? at::ones_like(values.outputs[k]).set_requires_grad(true)
                                          : at::Tensor());
  }
  Tensors pulled = run(signature, *definition.backward, values, needed);

  variable_list gradients, vectors, seeds;
  for (size_t i = 0; i < pulled.size(); ++i) {
    if (!needed[i] || !pulled[i].defined() || !pulled[i].requires_grad()) continue;
    const at::Tensor& primal = values.primal(i);
    gradients.push_back(fit(signature, i, std::move(pulled[i]), primal.sym_sizes(),
                            primal.options(), std::nullopt));
    vectors.push_back(values.tangents[i]);
  }
  for (const at::Tensor& grad : values.grads)
    if (grad.defined()) seeds.push_back(grad);
  variable_list pushed(seeds.size());
  if (!gradients.empty()) {
    // A tracer holds its lock, and the engine refuses to run then.
    const WithoutInterpreter released;
    pushed = torch::autograd::grad(gradients, seeds, vectors, /*retain_graph=*/true, differentiable,
                                   /*allow_unused=*/true);
  }
  Tensors tangents(values.outputs.size());
  for (size_t k = 0, seed = 0; k < tangents.size(); ++k) {
    if (values.grads[k].defined()) tangents[k] = pushed[seed++];
  }
  return tangents;
}

/// Whether autograd asks for derivatives of the outputs at all.
bool differentiable(const Signature& signature) {
  for (const TensorSpec& output : signature.outputs) {
    if (output.detached) continue;
    if (!output.dtype || torch::autograd::isDifferentiableType(*output.dtype)) return true;
  }
  return false;
}

/// Returns the definition with the derivatives that a call needs; a formula's may not be there yet.
const Definition& completed(const Entry& entry, const Definition& definition, bool backward,
                            bool jvp) {
  const Definition* found = &definition;
  // Loops more than once only if another thread redefines the operator meanwhile.
  for (;;) {
    const bool pull = backward && !found->backward, push = jvp && !found->jvp;
    if (C10_LIKELY(!(pull || push)) || !found->supply || !differentiable(found->signature))
      return *found;
    if (pull) found->supply->complete(entry, "backward");
    if (push) found->supply->complete(entry, "jvp");
    const Definition* const now = entry.definition.load();
    if (now == found) return *found;
    found = now;
  }
}

/// A definition, and how a call keeps statistics by it; null if it keeps none.
struct Kept {
  const Definition& definition;
  const Keeping* keeping = nullptr;
};

bool is_worth_it(const Rows& rows, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu()) return false;
  int64_t length = 1;
  for (const int64_t d : rows.reduced) {
    if (d >= tensor.dim() || d < -tensor.dim()) return false;
    length *= tensor.size(d);
  }
  const int64_t elements = tensor.numel();
  return length >= rows.least_length && elements >= rows.least_elements &&
         elements / length >= rows.least_rows;
}

using Place = std::optional<size_t>;

/// Where the statistics of rows are that a call keeps, if it does: all its tensors have one dtype.
Place kept_of_rows(const Definition& definition, c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& own = tensor_of(arguments[definition.rows->argument]);
  if (!is_worth_it(*definition.rows, own)) return {};
  solve(definition.signature, arguments);  // so that errors name this operator
  const at::ScalarType dtype = own.scalar_type();
  for (const TensorSpec& input : definition.signature.inputs) {
    const at::Tensor& tensor = tensor_of(arguments[input.argument]);
    if (tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != dtype) return {};
  }
  if (dtype == at::kFloat || dtype == at::kDouble) return 0;
  return dtype == at::kBFloat16 || dtype == at::kHalf ? Place(1) : Place();
}

/// What is kept at a place; null if there is nothing yet.
const Keeping* kept_at(const Definition& definition, Place place) {
  const bool is_there = place && *place < definition.keepings.size() && definition.keepings[*place];
  return is_there ? &*definition.keepings[*place] : nullptr;
}

/// Returns how a call keeps statistics, if it does.
///
/// Only a plain call does: what a tracer, a mode or a transform sees is the operator itself.
Kept keeping(const Entry& entry, const Definition& definition, c10::DispatchKeySet keys,
             c10::ArrayRef<c10::IValue> arguments) {
  const auto next = (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId();
  const bool plain = next == c10::DispatchKey::CPU || next == c10::DispatchKey::CUDA;
  if (!plain || !definition.supply) return {definition};
  // Those of rows are known without Python, once it has made what keeps them.
  if (definition.rows) {
    const Place own = kept_of_rows(definition, arguments);
    if (!own) return {definition};
    if (const Keeping* found = kept_at(definition, own)) return {definition, found};
  }
  const Place own = definition.supply->keep(entry, arguments);
  const Definition& now = *entry.definition.load();
  if (!own || !continues(now, definition)) return {definition};
  const Keeping* found = kept_at(now, own);
  return found ? Kept{now, found} : Kept{definition};
}

/// The dispatch keys above the kernels. A Python function is watched for inputs that it changes, so
/// there PyTorch goes on counting such changes.
c10::DispatchKeySet excluded(const Definition& definition) {
  const bool native = definition.cpu.function || definition.cuda.function || definition.supply;
  return native ? c10::autograd_dispatch_keyset_with_ADInplaceOrView
                : c10::autograd_dispatch_keyset;
}

class AutogradFunctor final : public c10::OperatorKernel {
 public:
  explicit AutogradFunctor(const Entry& entry) : entry_(entry) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const Definition& definition = *entry_.definition.load();
    const Signature& signature = definition.signature;
    const auto arguments = torch::jit::last(*stack, signature.arguments);
    bool requires_grad = false, has_tangent = false;
    for (const TensorSpec& input : signature.inputs) {
      const at::Tensor& tensor = tensor_of(arguments[input.argument]);
      if (!tensor.defined()) continue;
      requires_grad = requires_grad || tensor.requires_grad();
      has_tangent = has_tangent || tensor._fw_grad(0).defined();
    }
    if (definition.taken == Definition::Taken::with_own_derivative)
      return own_derivative(definition, op, keys, *stack, has_tangent);
    requires_grad = requires_grad && c10::GradMode::is_enabled();
    if (!requires_grad && !has_tangent) {
      const c10::impl::ExcludeDispatchKeyGuard below(excluded(definition));
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    } else {
      const Definition& found = completed(entry_, definition, requires_grad, has_tangent);
      // Tangents are computed without statistics.
      const Kept kept = has_tangent ? Kept{found} : keeping(entry_, found, keys, arguments);
      tracked(kept.definition, kept.keeping, op, keys, *stack, requires_grad, has_tangent);
    }
  }

 private:
  /// Runs the derivative that the operator came with. It may drop tangents; they come from `jvp=`.
  void own_derivative(const Definition& definition, const c10::OperatorHandle& op,
                      c10::DispatchKeySet keys, torch::jit::Stack& stack, bool has_tangent) const {
    const Signature& signature = definition.signature;
    if (!has_tangent) return entry_.own_derivative->callBoxed(op, keys, &stack);
    if (!definition.jvp) {
      fail("no-forward-mode [PB309]", signature,
           "it came with a derivative of its own, which has no forward mode", "give it jvp=...");
    }
    const auto last = torch::jit::last(stack, signature.arguments);
    Arguments arguments(last.begin(), last.end());
    for (const TensorSpec& input : signature.inputs) {
      c10::IValue& value = stack[stack.size() - signature.arguments + input.argument];
      if (tensor_of(value).defined()) value = tensor_of(value)._fw_primal(0);
    }
    entry_.own_derivative->callBoxed(op, keys, &stack);
    push_forward(definition, std::move(arguments),
                 torch::jit::last(stack, signature.outputs.size()));
  }

  void tracked(const Definition& definition, const Keeping* keeping, const c10::OperatorHandle& op,
               c10::DispatchKeySet keys, torch::jit::Stack& stack, bool requires_grad,
               bool has_tangent) const {
    const Signature& signature = definition.signature;
    const auto last = torch::jit::last(stack, signature.arguments);
    Arguments arguments;
    if (has_tangent) arguments.append(last.begin(), last.end());
    const auto node = requires_grad ? record(definition, keeping, last) : Owner<Node>();
    const size_t all = keeping ? keeping->outputs : signature.outputs.size();
    {
      const c10::impl::ExcludeDispatchKeyGuard below(excluded(definition));
      // Somebody else's kernel may use NumPy, which looks at the grad mode; but a lower level of
      // functorch needs grad mode on.
      const bool bottom =
          !c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
      const bool silent = bottom && definition.taken != Definition::Taken::no;
      const c10::AutoGradMode mode(!silent && c10::GradMode::is_enabled());
      const auto& target =
          keeping ? c10::Dispatcher::singleton().findSchemaOrThrow(
                        keeping->forward.name.c_str(), keeping->forward.overload_name.c_str())
                  : op;
      target.redispatchBoxed(keys & c10::after_autograd_keyset, &stack);
    }
    const auto returned = torch::jit::last(stack, all);
    const auto outputs = returned.slice(0, signature.outputs.size());
    if (node) attach(signature, self(*node), outputs);
    if (has_tangent) push_forward(definition, std::move(arguments), outputs);
    // Saved last: an output is saved together with its tangent.
    if (node) save(*node, returned);
    torch::jit::drop(stack, all - signature.outputs.size());
  }

  /// Makes the node: edges to all tensor inputs; saves the inputs that a needed gradient reads.
  static Owner<Node> record(const Definition& definition, const Keeping* keeping,
                            c10::ArrayRef<c10::IValue> arguments) {
    auto node = make_node<Node>(definition);
    node->keeping = keeping;
    const Signature& signature = definition.signature;
    torch::autograd::edge_list edges;
    edges.reserve(signature.inputs.size());
    bool scalars = false;
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      const at::Tensor& tensor = tensor_of(arguments[signature.inputs[i].argument]);
      edges.push_back(tensor.defined() ? torch::autograd::impl::gradient_edge(tensor)
                                       : torch::autograd::Edge());
      if (!definition.backward || !edges.back().is_valid()) continue;
      const auto read = [&](const Program::Reads& reads) {
        node->tensors |= reads.tensors;
        node->outputs |= reads.outputs;
        scalars = scalars || reads.scalars;
      };
      read(definition.backward->reads[i]);
      if (keeping) read(keeping->backward.reads[i]);
    }
    node->set_next_edges(std::move(edges));
    node->saved.reserve(std::popcount(node->tensors) + std::popcount(node->outputs));
    for (uint64_t rest = node->tensors; rest; rest &= rest - 1) {
      const at::Tensor& tensor = tensor_of(arguments[std::countr_zero(rest)]);
      node->saved.emplace_back(tensor, /*is_output=*/false);
    }
    if (definition.backward && leaves_out(signature, arguments)) {
      node->absent = std::make_unique<Absent>(signature, arguments);
    }
    if (scalars) {
      for (const c10::IValue& value : arguments)
        node->scalars.push_back(value.isTensor() ? c10::IValue() : value);
    }
    return node;
  }

  /// Makes the node the grad_fn of the outputs.
  static void attach(const Signature& signature, const NodePtr& node,
                     c10::ArrayRef<c10::IValue> outputs) {
    for (size_t k = 0; k < outputs.size(); ++k) {
      const at::Tensor& output = tensor_of(outputs[k]);
      if (has_derivative(signature, k, output)) {
        torch::autograd::set_history(output, node);
      } else {
        node->add_input_metadata(torch::autograd::Node::undefined_input());
      }
    }
  }

  /// Saves the outputs that the gradients read, and what was returned behind them.
  static void save(Node& node, c10::ArrayRef<c10::IValue> returned) {
    const size_t outputs = node.definition.signature.outputs.size();
    for (uint64_t rest = node.outputs; rest; rest &= rest - 1) {
      const size_t k = std::countr_zero(rest);
      node.saved.emplace_back(tensor_of(returned[k]), /*is_output=*/k < outputs);
    }
  }

  static void push_forward(const Definition& definition, Arguments arguments,
                           c10::ArrayRef<c10::IValue> outputs) {
    const Signature& signature = definition.signature;
    LiveValues values(signature);
    values.arguments = std::move(arguments);
    for (const TensorSpec& input : signature.inputs) {
      c10::IValue& value = values.arguments[input.argument];
      const at::Tensor& tensor = tensor_of(value);
      values.tangents.push_back(tensor.defined() ? tensor._fw_grad(0) : at::Tensor());
      // Through _fw_primal, as in PyTorch's generated code: still differentiable in reverse mode.
      if (tensor.defined()) value = tensor._fw_primal(0);
    }
    for (const c10::IValue& output : outputs) values.outputs.push_back(tensor_of(output));
    Tensors tangents;
    if (definition.jvp) {
      const c10::SmallVector<bool, 8> needed(outputs.size(), true);
      tangents = run(signature, *definition.jvp, values, needed);
    } else {
      tangents = tangents_by_double_backward(definition, values);
    }
    for (size_t k = 0; k < tangents.size(); ++k)
      set_tangent(signature, k, values.outputs[k], tangents[k]);
  }

  static void set_tangent(const Signature& signature, size_t k, const at::Tensor& output,
                          const at::Tensor& tangent) {
    if (!tangent.defined() || !output.defined()) return;
    if (!tangent.sym_sizes().equals(output.sym_sizes()) ||
        tangent.scalar_type() != output.scalar_type()) {
      fail("tangent-shape [PB310]", signature,
           "jvp returned a tangent for '" + signature.outputs[k].name +
               "' whose shape or dtype is not that of the output");
    }
    output._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
  }

  const Entry& entry_;
};

/// Whether all is finite: a sum of everything tells, or is infinite itself.
bool are_finite(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& each) {
    return !each.defined() || std::isfinite(each.sum().item<double>());
  });
}

}  // namespace

variable_list Node::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Signature& signature = definition.signature;
  variable_list gradients(num_outputs());
  if (std::none_of(grads.begin(), grads.end(), [](const at::Tensor& g) { return g.defined(); }))
    return gradients;
  if (!definition.backward) no_derivative(definition);

  c10::SmallVector<bool, 8> needed;
  for (size_t i = 0; i < gradients.size(); ++i) needed.push_back(task_should_compute_output(i));
  SavedValues values(*this, grads);
  // A derivative that is recorded computes statistics again: what it reads has no history.
  const bool reads_kept = keeping && !c10::GradMode::is_enabled();
  const Program& program = reads_kept ? keeping->backward : *definition.backward;
  // What changed in place since is refused, whether it is read or not.
  for (uint64_t rest = reads_kept && keeping->is_scaled ? tensors : 0; rest; rest &= rest - 1)
    values.argument(std::countr_zero(rest));
  Tensors results = run(signature, program, values, needed);
  // Where 0 is multiplied by what is infinite, the gradient may be another one than this product.
  if (reads_kept && keeping->is_scaled && !are_finite(results))
    results = run(signature, *definition.backward, values, needed);

  std::optional<c10::SymIntArrayRef> batch;
  for (size_t k = 0; k < num_inputs() && !batch; ++k) {
    if (grads[k].defined()) batch = batch_of(signature, k, input_metadata(k).shape_as_dim_vector());
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!needed[i] || !results[i].defined()) continue;
    const auto& edge = next_edge(i);
    const auto& input = edge.function->input_metadata(edge.input_nr);
    gradients[i] = fit(signature, i, std::move(results[i]), input.shape_as_dim_vector(),
                       input.options(), batch);
  }
  return gradients;
}

void Node::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& variable : saved) variable.reset_data();
}

std::string Node::name() const { return definition.signature.name + "Backward"; }

c10::KernelFunction autograd_kernel(const Entry& entry) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<AutogradFunctor>(entry));
}

}  // namespace pullback
