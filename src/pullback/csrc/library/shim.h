/// C functions through which a program that AOTInductor compiled calls operators directly.
///
/// Without them it calls PyTorch's proxy executor, which reads the arguments from a table in text.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

namespace pullback {

/// An argument from AOTInductor: an optional one arrives as a pointer, null for None.
inline c10::IValue given(AtenTensorHandle tensor) {
  return torch::aot_inductor::resolve_tensor_dispatch_flags(tensor);
}
inline c10::IValue given(const AtenTensorHandle* tensor) {
  return tensor ? given(*tensor) : c10::IValue();
}
inline c10::IValue given(int64_t value) { return value; }
inline c10::IValue given(double value) { return value; }
inline c10::IValue given(int32_t value) { return value != 0; }
inline c10::IValue given(const char* value) { return std::string(value); }

/// Calls an operator and hands its results to the caller.
inline AOTITorchError call(const c10::OperatorHandle& op, torch::jit::Stack stack,
                           std::initializer_list<AtenTensorHandle*> results) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    op.callBoxed(&stack);
    size_t next = 0;
    for (AtenTensorHandle* result : results) {
      *result = torch::aot_inductor::new_tensor_handle(std::move(stack[next++]).toTensor());
    }
  });
}

}  // namespace pullback
