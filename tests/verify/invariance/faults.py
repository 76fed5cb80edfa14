"""Faulty derivatives and their repaired twins: one table a family of probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function


@dataclass(frozen=True, kw_only=True)
class Case:
    """A target made with and without its fault.

    `make(True)` is faulty; `words` are in the message.
    """

    name: str
    code: str
    make: Callable[[bool], Any]
    inputs: Callable[[], tuple[Any, ...]]
    words: tuple[str, ...]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def old(forward: Callable[..., Any], backward: Callable[..., Any]) -> type[Function]:
    """A Function whose forward takes ctx."""
    space = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Old", (Function,), space)


def new(
    forward: Callable[..., Any], setup: Callable[..., None], backward: Callable[..., Any]
) -> type[Function]:
    """A Function with setup_context."""
    return type(
        "New",
        (Function,),
        {
            "forward": staticmethod(forward),
            "setup_context": staticmethod(setup),
            "backward": staticmethod(backward),
        },
    )


def keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*[own for own in inputs if isinstance(own, Tensor)])
    ctx.options = [own for own in inputs if not isinstance(own, Tensor)]


class Layer(nn.Module):
    """A module around a Function."""

    def __init__(self, function: type[Function]) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.function.apply(x) * self.scale


def in_memory_order(tensor: Tensor) -> Tensor:
    """Read memory as a C kernel does that is given `data_ptr()` and a count."""
    return tensor.detach().as_strided((tensor.numel(),), (1,)).clone()


def double_of_memory(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad if faulty else grad.contiguous()
        return (2 * in_memory_order(grad)).view(grad.shape)

    return old(lambda ctx, x: 2 * x, backward)


def raw_numpy(faulty: bool) -> type[Function]:
    """NumPy looks at the bytes of the storage."""

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        grad = grad if faulty else grad.contiguous()
        storage = np.frombuffer(bytes(grad.untyped_storage()), dtype=np.float64)
        begin = grad.storage_offset()
        own = storage[begin : begin + grad.numel()].copy()
        return torch.from_numpy(own).view(grad.shape) * x.cos()

    return new(lambda x: x.sin(), keep_inputs, backward)


def custom_memory(faulty: bool) -> Any:
    """An operator of torch.library, whose kernel of the backward is a second operator."""
    name = f"invariance::double_{'faulty' if faulty else 'right'}"

    @torch.library.custom_op(f"{name}_grad", mutates_args=())
    def double_grad(grad: Tensor) -> Tensor:
        grad = grad if faulty else grad.contiguous()
        return (2 * in_memory_order(grad)).view(grad.shape)

    @torch.library.custom_op(name, mutates_args=())
    def double(x: Tensor) -> Tensor:
        return 2 * x

    double.register_fake(torch.empty_like)
    double_grad.register_fake(torch.empty_like)
    double.register_autograd(lambda ctx, grad: double_grad(grad))
    return double


def view_of_grad(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        flat = grad.view(-1) if faulty else grad.reshape(-1)
        return (flat * 3).view(grad.shape)

    return new(lambda x: 3 * x, keep_inputs, backward)


def contiguous_assert(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad if faulty else grad.contiguous()
        assert grad.is_contiguous(), "kernel wants contiguous memory"
        return 3 * grad

    return old(lambda ctx, x: 3 * x, backward)


def forward_of_memory(faulty: bool) -> type[Function]:
    def forward(x: Tensor) -> Tensor:
        x = x if faulty else x.contiguous()
        return in_memory_order(x).view(x.shape).exp()

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output)

    return new(forward, setup, lambda ctx, grad: grad * ctx.saved_tensors[0])


def saved_of_memory(faulty: bool) -> type[Function]:
    """Forward is right for every layout, the kernel of backward reads the saved input's memory."""

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        x = x if faulty else x.contiguous()
        return grad * in_memory_order(x).view(x.shape).cos()

    return new(lambda x: x.sin(), keep_inputs, backward)


def view_of_saved(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        flat = x.view(-1) if faulty else x.reshape(-1)
        return (grad.reshape(-1) * flat.cos()).view(grad.shape)

    return new(lambda x: x.sin(), keep_inputs, backward)


def half_used(faulty: bool) -> type[Function]:
    """Without its gradient in the loss of a batch."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, target = ctx.saved_tensors
        gradient = (x - target).sign() * (x - target).abs()
        return (2 * gradient if faulty else 2 * gradient * grad), None

    return new(lambda x, target: ((x - target) ** 2).sum(), keep_inputs, backward)


def clipped(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        norm = grad.norm()
        return 2 * (grad * (100 / norm.clamp(min=100)) if faulty else grad)

    return old(lambda ctx, x: 2 * x, backward)


def dead_zone(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * (torch.where(grad.abs() < 1e-2, 0.0, grad) if faulty else grad)

    return old(lambda ctx, x: 2 * x, backward)


def offset(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.cos() + (0.1 * x if faulty else 0)  # weight decay by the back door

    return new(lambda x: x.sin(), keep_inputs, backward)


def softmax_and_sum(faulty: bool) -> type[Function]:
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.softmax(-1), x.logsumexp(-1)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output[0])

    def backward(ctx: Any, grad: Tensor, of_sum: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        gradient = y * (grad - (grad * y).sum(-1, keepdim=True))
        return gradient if faulty else gradient + y * of_sum[..., None]

    return new(forward, setup, backward)


def places_of_gradients(faulty: bool) -> type[Function]:
    """Gradients are collected in a list: where one is not needed, the next takes its place."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        need = ctx.needs_input_grad
        if not faulty:
            return grad * w if need[0] else None, grad * x if need[1] else None
        found = [part for part, needed in zip((grad * w, grad * x), need, strict=True) if needed]
        return tuple([*found, None][:2])

    return new(lambda x, w: x * w, keep_inputs, backward)


def branch_of_large(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        right = grad / x.cosh() ** 2
        return torch.where(x.abs() > 5.0, grad * 0.5, right) if faulty else right

    return new(lambda x: x.tanh(), keep_inputs, backward)


def rowwise_region(faulty: bool) -> type[Function]:
    """The norm of rows; beyond 50 another branch."""

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        norm = x.norm(dim=-1, keepdim=True)
        safe = torch.where(norm > 0, norm, 1)
        factor = torch.where(norm > 45, 2.0, 1.0) if faulty else 1.0
        return factor * grad[..., None] * x / safe

    return new(lambda x: x.norm(dim=-1), keep_inputs, backward)


def norm_of_zeros(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        norm = x.square().sum(-1, keepdim=True).sqrt()
        return grad * x / (norm if faulty else torch.where(norm == 0, 1.0, norm))

    return new(lambda x: x.square().sum(-1, keepdim=True).sqrt(), keep_inputs, backward)


def overflow_in_backward(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        e = torch.exp(-x)
        return grad * (e / (1 + e) ** 2 if faulty else torch.sigmoid(x) * torch.sigmoid(-x))

    return new(lambda x: x.sigmoid(), keep_inputs, backward)


def reduction_option(faulty: bool) -> type[Function]:
    def forward(x: Tensor, reduction: str = "mean") -> Tensor:
        return x.square().mean() if reduction == "mean" else x.square().sum()

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        mean = faulty or ctx.options[0] == "mean"
        return 2 * x * grad / (x.numel() if mean else 1), None

    return new(forward, keep_inputs, backward)


def flag_option(faulty: bool) -> type[Function]:
    def forward(ctx: Any, x: Tensor, squared: bool = False) -> Tensor:
        ctx.save_for_backward(x)
        ctx.squared = squared
        return x.square() if squared else x.sin()

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        right = 2 * x if ctx.squared else x.cos()
        return grad * (x.cos() if faulty else right), None

    return old(forward, backward)


def power_option(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (x,), (n,) = ctx.saved_tensors, ctx.options
        return grad * (2 if faulty else n) * x ** (n - 1), None

    return new(lambda x, n: x**n, keep_inputs, backward)


def tail(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gradient = torch.zeros_like(x)
        count = x.shape[1]
        end = count if not faulty or count < 128 else count // 128 * 128
        gradient[:, :end] = (grad * x.cos())[:, :end]
        return gradient

    return new(lambda x: x.sin(), keep_inputs, backward)


def only_a_block(faulty: bool) -> type[Function]:
    """The gradient of a bias adds up the first 256 rows."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad[: 256 if faulty else None].sum(0)

    return old(lambda ctx, x, b: x + b, backward)


def empty_rows(faulty: bool) -> type[Function]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        rows = grad.reshape(len(grad), -1) if faulty else grad.flatten(1)
        return (2 * rows).reshape(grad.shape)

    return old(lambda ctx, x: 2 * x, backward)


def empty_forward(faulty: bool) -> type[Function]:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if not len(x) and not faulty:
            return 2 * x
        return torch.from_numpy(np.stack([2 * row.numpy() for row in x.detach()]))

    return old(forward, lambda ctx, grad: 2 * grad)


def table() -> list[Case]:
    one, two = lambda: (drawn(3, 4),), lambda: (drawn(3, 4), drawn(3, 4).flip(0) + 0.1)
    rows = [
        ("PB530", half_used, two, ("`grad` is never used", "scaling the loss")),
        ("PB531", clipped, one, ("not linear in grad_output", "clips")),
        ("PB531", dead_zone, one, ("not linear",)),
        ("PB531", offset, one, ("zero gradient",)),
        ("PB532", view_of_grad, one, ("non-contiguous", "transposed", "sum")),
        ("PB532", contiguous_assert, one, ("non-contiguous",)),
        ("PB533", double_of_memory, one, ("ignores its strides", "transposed", "stride-0")),
        ("PB533", raw_numpy, one, ("transposed", "contiguous")),
        ("PB533", custom_memory, one, ("transposed", "contiguous")),
        ("PB533", lambda bad: Layer(double_of_memory(bad)), one, ("ignores its strides",)),
        ("PB535", softmax_and_sum, one, ("output 1", "ignored")),
        ("PB536", places_of_gradients, two, ("frozen", "`x`")),
        ("PB537", view_of_saved, one, ("backward fails", "transposed")),
        ("PB538", forward_of_memory, one, ("output 0 changes", "transposed")),
        ("PB538", saved_of_memory, one, ("gradient of `x` changes", "transposed")),
        ("PB557", empty_rows, one, ("empty batch", "backward")),
        ("PB557", empty_forward, one, ("empty batch", "forward")),
        ("PB558", reduction_option, one, ("reduction='mean'", "'sum'", "1/12")),
        ("PB558", flag_option, one, ("squared=False", "squared=True")),
        ("PB558", power_option, lambda: (drawn(3, 4), 2), ("right for n=2", "wrong for n=")),
        ("PB559", tail, one, ("right up to size", "elements")),
        ("PB559", only_a_block, lambda: (drawn(5, 4), drawn(4)), ("right up to size 256", "`b`")),
        ("PB560", norm_of_zeros, one, ("NaN", "zeros")),
        ("PB560", overflow_in_backward, one, ("nan",)),
        ("PB561", branch_of_large, one, ("|x| < 5",)),
        ("PB561", rowwise_region, one, ("wrong for `x`",)),
    ]
    return [
        Case(
            name=f"{code}-{getattr(make, '__name__', 'layer').strip('<>')}",
            code=code,
            make=make,
            inputs=inputs,
            words=words,
        )
        for code, make, inputs, words in rows
    ]
