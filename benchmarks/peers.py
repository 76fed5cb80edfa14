"""c = a · b with both gradients, as each of the other ways to write an operator has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import cpp_extension

KERNEL = """
template <class T> void mul(T* c, const T* a, const T* b, long n) {
  for (long i = 0; i < n; ++i) c[i] = a[i] * b[i];
}
"""

Multiply = Callable[[Tensor, Tensor], Tensor]


def native_autograd() -> Multiply:
    """Hand-written C++: torch::autograd::Function behind TORCH_LIBRARY."""
    source = (
        KERNEL
        + """
#include <torch/extension.h>
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor mul_cpu(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.sizes() == b.sizes() && a.is_contiguous() && b.is_contiguous());
  auto c = at::empty_like(a);
  mul(c.mutable_data_ptr<float>(), a.const_data_ptr<float>(), b.const_data_ptr<float>(), a.numel());
  return c;
}

at::Tensor call(const at::Tensor& a, const at::Tensor& b) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("bench_native::mul", "")
                       .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  return op.call(a, b);
}

struct Mul : torch::autograd::Function<Mul> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({a, b});
    return call(a, b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    return {call(grads[0], saved[1]), call(grads[0], saved[0])};
  }
};

at::Tensor mul_autograd(const at::Tensor& a, const at::Tensor& b) { return Mul::apply(a, b); }

TORCH_LIBRARY(bench_native, m) { m.def("mul(Tensor a, Tensor b) -> Tensor"); }
TORCH_LIBRARY_IMPL(bench_native, CPU, m) { m.impl("mul", mul_cpu); }
TORCH_LIBRARY_IMPL(bench_native, Autograd, m) { m.impl("mul", mul_autograd); }
"""
    )
    cpp_extension.load_inline(
        "pullback_bench_native", source, extra_cflags=["-O3"], is_python_module=False
    )
    return torch.ops.bench_native.mul


def pybind_kernel() -> Multiply:
    """A kernel behind pybind11, without autograd."""
    source = (
        KERNEL
        + """
#include <torch/extension.h>
at::Tensor forward(const at::Tensor& a, const at::Tensor& b) {
  auto c = at::empty_like(a);
  mul(c.mutable_data_ptr<float>(), a.const_data_ptr<float>(), b.const_data_ptr<float>(), a.numel());
  return c;
}
"""
    )
    module: Any = cpp_extension.load_inline(
        "pullback_bench_pybind", source, functions=["forward"], extra_cflags=["-O3"]
    )
    return module.forward


def tvm_kernel() -> Multiply:
    """A kernel behind tvm-ffi, without autograd."""
    import tvm_ffi.cpp  # noqa: PLC0415  (optional)

    source = (
        KERNEL
        + """
void forward(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  mul(static_cast<float*>(c.data_ptr()), static_cast<float*>(a.data_ptr()),
      static_cast<float*>(b.data_ptr()), c.shape()[0]);
}
"""
    )
    module: Any = tvm_ffi.cpp.load_inline("bench_tvm", cpp_sources=source, functions=["forward"])

    def forward(a: Tensor, b: Tensor) -> Tensor:
        c = torch.empty_like(a)
        module.forward(a, b, c)
        return c

    return forward


def function_with_ctx(kernel: Multiply) -> Multiply:
    """torch.autograd.Function with ctx in forward."""
    return class_with_ctx(kernel).apply


def function_with_setup_context(kernel: Multiply) -> Multiply:
    """torch.autograd.Function with setup_context."""
    return class_with_setup_context(kernel).apply


def class_with_ctx(kernel: Multiply) -> type[torch.autograd.Function]:
    """Return a Function with ctx in forward."""

    class Mul(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(a, b)
            return kernel(a, b)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            a, b = ctx.saved_tensors
            return kernel(grad, b), kernel(grad, a)

    return Mul


def class_with_setup_context(kernel: Multiply) -> type[torch.autograd.Function]:
    """Return a Function with setup_context."""

    class Mul(torch.autograd.Function):
        @staticmethod
        def forward(a: Tensor, b: Tensor) -> Tensor:
            return kernel(a, b)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            a, b = ctx.saved_tensors
            return kernel(grad, b), kernel(grad, a)

    return Mul


def custom_op(kernel: Multiply, name: str = "bench_custom::mul") -> Multiply:
    """torch.library.custom_op and register_autograd."""

    @torch.library.custom_op(name, mutates_args=())
    def mul(a: Tensor, b: Tensor) -> Tensor:
        return kernel(a, b)

    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return mul(grad, b), mul(grad, a)

    mul.register_autograd(backward, setup_context=setup_context)
    return mul


LIBRARIES: list[torch.library.Library] = []


def library_and_function(kernel: Multiply) -> Multiply:
    """torch.library define and impl, with an autograd.Function around the call."""
    library = torch.library.Library("bench_library", "DEF")
    LIBRARIES.append(library)
    library.define("mul(Tensor a, Tensor b) -> Tensor")
    library.impl("mul", kernel, "CPU")
    return function_with_ctx(torch.ops.bench_library.mul.default)
