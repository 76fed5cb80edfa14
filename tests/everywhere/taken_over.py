"""Rows of the matrix that somebody else registered, and pullback takes over."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from in_python import linear_backward, product_backward, sin_cos_backward
from torch import Tensor

import pullback as pb
from pullback.define.operator import Autocast

# --- torch.library.Library: a schema and a kernel, nothing else


@functools.cache
def library() -> torch.library.Library:
    """The library, which lives as long as its operators are called."""
    return torch.library.Library("everywhere_library", "FRAGMENT")


def library_product(name: str, autocast: Autocast) -> pb.Operator:
    library().define(f"{name}(Tensor a, Tensor b) -> Tensor")
    library().impl(name, lambda a, b: a * b, "CPU")
    return pb.operator(
        f"everywhere_library::{name}(a[...], b[...]) -> c[...]",
        backward=product_backward,
        autocast=autocast,
    )


def library_linear(name: str, autocast: Autocast) -> pb.Operator:
    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y = x.mm(weight.t())
        return y if bias is None else y + bias

    library().define(f"{name}(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor")
    library().impl(name, run, "CPU")
    return pb.operator(
        f"everywhere_library::{name}(x[n, i], weight[o, i], bias[o]?) -> y[n, o]",
        backward=linear_backward,
        autocast=autocast,
    )


# --- torch.library.custom_op without a derivative


def plain_sin(name: str, autocast: Autocast) -> pb.Operator:
    @torch.library.custom_op(f"everywhere_op::{name}", mutates_args=())
    def run(x: Tensor) -> Tensor:
        return torch.as_tensor(np.sin(x.numpy()), dtype=x.dtype)

    assert run
    return pb.operator(
        f"everywhere_op::{name}(x[...]) -> y[...]",
        backward={"x": "aten::mul.Tensor(grad, aten::cos(x))"},
        autocast=autocast,
    )


def plain_sin_cos(name: str, autocast: Autocast) -> pb.Operator:
    @torch.library.custom_op(f"everywhere_op::{name}", mutates_args=())
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), x.cos()

    assert run
    return pb.operator(
        f"everywhere_op::{name}(x[...]) -> (s[...], c[...])",
        backward=sin_cos_backward,
        autocast=autocast,
    )


# --- torch.library.custom_op with a fake kernel and a derivative, taken over by its name alone


def own_product(name: str, autocast: Autocast) -> pb.Operator:
    @torch.library.custom_op(f"everywhere_own::{name}", mutates_args=())
    def run(a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return (grad * b).sum_to_size(a.shape), (grad * a).sum_to_size(b.shape)

    run.register_fake(lambda a, b: torch.empty_like(a * b))
    run.register_autograd(backward, setup_context=keep)
    return pb.operator(f"everywhere_own::{name}", autocast=autocast)


def own_exp(name: str, autocast: Autocast) -> pb.Operator:
    @torch.library.custom_op(f"everywhere_own::{name}", mutates_args=())
    def run(x: Tensor) -> Tensor:
        return torch.as_tensor(np.exp(x.numpy()), dtype=x.dtype)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output)

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * y

    run.register_fake(torch.empty_like)
    run.register_autograd(backward, setup_context=keep)
    return pb.operator(f"everywhere_own::{name}", autocast=autocast)


def own_sin_cos(name: str, autocast: Autocast) -> pb.Operator:
    @torch.library.custom_op(f"everywhere_own::{name}", mutates_args=())
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), x.cos()

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*output)

    def backward(ctx: Any, grad_s: Tensor, grad_c: Tensor) -> Tensor:
        s, c = ctx.saved_tensors
        return grad_s * c - grad_c * s

    run.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))
    run.register_autograd(backward, setup_context=keep)
    return pb.operator(f"everywhere_own::{name}", autocast=autocast)


# --- TORCH_LIBRARY with a torch::autograd::Function in C++

EXTENSION = """
#include <ATen/ExpandUtils.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    ctx->save_for_backward({a, b});
    return at::mul(a, b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grad) {
    auto saved = ctx->get_saved_variables();
    return {at::sum_to(at::mul(grad[0], saved[1]), saved[0].sym_sizes()),
            at::sum_to(at::mul(grad[0], saved[0]), saved[1].sym_sizes())};
  }
};

at::Tensor product(const at::Tensor& a, const at::Tensor& b) { return at::mul(a, b); }
at::Tensor tracked(const at::Tensor& a, const at::Tensor& b) { return Product::apply(a, b); }

TORCH_LIBRARY(everywhere_extension, m) {
  for (const std::string name : NAMES) m.def((name + "(Tensor a, Tensor b) -> Tensor").c_str());
}
TORCH_LIBRARY_IMPL(everywhere_extension, CPU, m) {
  for (const char* name : NAMES) m.impl(name, &product);
}
TORCH_LIBRARY_IMPL(everywhere_extension, AutogradCPU, m) {
  for (const char* name : NAMES) m.impl(name, &tracked);
}
"""
NAMES = [f"ext_product{suffix}" for suffix in ("", "_lower", "_float32", "_promote")]


@functools.cache
def extension() -> object:
    """The extension, compiled once: about ten seconds where it is not in the cache."""
    names = ", ".join(f'"{name}"' for name in NAMES)
    text = f"static const char* NAMES[] = {{{names}}};\n{EXTENSION}"
    return pb.source(text, flags=["-O0", "-DAT_PER_OPERATOR_HEADERS"], precompiled=False)


def extension_product(name: str, autocast: Autocast) -> pb.Operator:
    assert extension()
    return pb.operator(
        f"everywhere_extension::{name}(a[...], b[...]) -> c[...]",
        jvp={
            "c": "aten::add.Tensor(aten::mul.Tensor(tangent_a, b), aten::mul.Tensor(a, tangent_b))"
        },
        autocast=autocast,
    )
