/// Applies `torch.autocast` to an operator's inputs, by the policy that its author declared.
#include "library.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace pullback {

namespace {

class AutocastFunctor final : public c10::OperatorKernel {
 public:
  AutocastFunctor(const Entry& entry, Autocast policy, c10::DeviceType device)
      : entry_(entry), policy_(policy), device_(device) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard without(c10::autocast_dispatch_keyset);
    const Signature& signature = entry_.definition.load()->signature;
    const size_t first = stack->size() - signature.arguments;
    const auto dtype = this->dtype(signature, torch::jit::last(*stack, signature.arguments));
    for (const TensorSpec& input : signature.inputs) {
      c10::IValue& value = (*stack)[first + input.argument];
      if (dtype && is_cast(input, value)) value = value.toTensor().to(*dtype);
    }
    op.callBoxed(stack);
  }

 private:
  /// As in PyTorch, a float64 tensor stays as it is.
  static bool is_cast(const TensorSpec& input, const c10::IValue& value) {
    const at::Tensor& tensor = tensor_of(value);
    return !input.dtype && tensor.defined() && tensor.is_floating_point() &&
           tensor.scalar_type() != at::kDouble;
  }

  std::optional<at::ScalarType> dtype(const Signature& signature,
                                      c10::ArrayRef<c10::IValue> arguments) const {
    if (policy_ == Autocast::lower) return at::autocast::get_autocast_dtype(device_);
    if (policy_ == Autocast::float32) return at::kFloat;
    std::optional<at::ScalarType> widest;
    for (const TensorSpec& input : signature.inputs) {
      const c10::IValue& value = arguments[input.argument];
      if (!is_cast(input, value)) continue;
      const at::ScalarType own = value.toTensor().scalar_type();
      widest = widest ? at::promote_types(*widest, own) : own;
    }
    return widest;
  }

  const Entry& entry_;
  const Autocast policy_;
  const c10::DeviceType device_;
};

}  // namespace

c10::KernelFunction autocast_kernel(const Entry& entry, Autocast policy, c10::DeviceType device) {
  return c10::KernelFunction::makeFromBoxedFunctor(
      std::make_unique<AutocastFunctor>(entry, policy, device));
}

}  // namespace pullback
