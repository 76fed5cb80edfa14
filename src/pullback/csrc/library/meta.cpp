/// The kernel for tensors without memory: shapes from the line, with sizes that may be symbolic.
///
/// It makes torch.compile, torch.export and FakeTensor work in a process that has only loaded the
/// library.
#include "strides.h"

#include "library.h"

#include "../runtime/solver.h"

#include <ATen/ops/empty_strided.h>

namespace pullback {

namespace {

class MetaFunctor final : public c10::OperatorKernel {
 public:
  explicit MetaFunctor(const Entry& entry) : entry_(entry) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Definition& definition = *entry_.definition.load();
    const size_t arguments = definition.signature.arguments;
    c10::SmallVector<at::Tensor, 2> outputs = run(definition, torch::jit::last(*stack, arguments));
    torch::jit::drop(*stack, arguments);
    for (at::Tensor& output : outputs) stack->emplace_back(std::move(output));
  }

 private:
  static c10::SmallVector<at::Tensor, 2> run(const Definition& definition,
                                             c10::ArrayRef<c10::IValue> arguments) {
    const Signature& signature = definition.signature;
    const auto sizes = Solver<c10::SymInt>(signature, arguments).run();
    const Layouts layouts(definition, sizes, arguments);
    c10::SmallVector<at::Tensor, 2> outputs(signature.outputs.size());
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!wanted(signature, arguments, k)) continue;
      const Symbols shape = evaluated_shape(signature.outputs[k], signature, sizes, arguments);
      const auto dtype = signature.outputs[k].dtype.value_or(sizes.dtype);
      outputs[k] = at::empty_strided_symint(shape, layouts.strides(k, shape),
                                            at::TensorOptions().dtype(dtype).device(sizes.device));
    }
    return outputs;
  }

  const Entry& entry_;
};

}  // namespace

c10::KernelFunction meta_kernel(const Entry& entry) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<MetaFunctor>(entry));
}

}  // namespace pullback
