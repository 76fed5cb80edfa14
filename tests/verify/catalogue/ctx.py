"""What is done to ctx, to tensors in place, and to the engine's rules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.verify.case import Function, Made, d
from tests.verify.catalogue.row import row


@row("C01", "cycle", "output")
def output_on_ctx(right: bool) -> Made:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.exp()
            if right:
                ctx.save_for_backward(y)
            else:
                ctx.y = y
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            y = ctx.saved_tensors[0] if right else ctx.y
            return grad * y

    return Exp, (d(4),)


@row("C02", "ctx.x")
def input_on_ctx(right: bool) -> Made:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            if right:
                ctx.save_for_backward(x)
            else:
                ctx.x = x
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            x = ctx.saved_tensors[0] if right else ctx.x
            return grad * 2 * x

    return Square, (d(4),)


@row("C08", "mark_dirty")
def in_place(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            x.mul_(2)
            if right:
                ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    return Double, (d(4),)


@row("C09", "changes its input", "changed in place", "in place")
def side_effect(right: bool) -> Made:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x * x
            ctx.save_for_backward(x.clone())
            if not right:
                x.detach().mul_(2)
            return y

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2 * ctx.saved_tensors[0]

    return Square, (d(3, 4),)


@row("C10", "mark_dirty", "dirty")
def dirty_not_returned(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            if right:
                return x * 2
            x.mul_(2)
            ctx.mark_dirty(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    return Double, (d(4),)


@row("C11", "mark_non_differentiable", level="advice")
def index_output(right: bool) -> Made:
    class Largest(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            value, index = x.max(-1)
            ctx.save_for_backward(index)
            ctx.shape = x.shape
            where = index.to(x.dtype)
            if right:
                ctx.mark_non_differentiable(where)
            return value, where

        @staticmethod
        def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
            (index,) = ctx.saved_tensors
            zero = grad.new_zeros(ctx.shape)
            return zero.scatter(-1, index[..., None], grad[..., None])

    return Largest, (d(3, 5),)


@row("C12", "non-differentiable", "non_differentiable")
def wrongly_marked(right: bool) -> Made:
    class SinCos(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(x)
            s, c = x.sin(), x.cos()
            if not right:
                ctx.mark_non_differentiable(c)
            return s, c

        @staticmethod
        def backward(ctx: Any, gs: Tensor, gc: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gs * x.cos() - gc * x.sin()

    return SinCos, (d(4),)


@row("C12b", "non-differentiable", "non_differentiable")
def only_output_marked(right: bool) -> Made:
    class Sin(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            y = x.sin()
            if not right:
                ctx.mark_non_differentiable(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0].cos()

    return Sin, (d(4),)


@row("C13", "None")
def none_arrives(right: bool) -> Made:
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Tensor | None, b: Tensor | None) -> Tensor | None:
            if not right:
                return a * 2 + b * 3  # type: ignore[operator]
            total = None if a is None else a * 2
            if b is not None:
                total = b * 3 if total is None else total + b * 3
            return total

    return Both, (d(4),)


@row("C14", "needs_input_grad", level="advice")
def work_not_needed(right: bool) -> Made:
    class Linear(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
            x, w = ctx.saved_tensors
            needs = ctx.needs_input_grad if right else (True, True)
            return (grad @ w.t() if needs[0] else None), (x.t() @ grad if needs[1] else None)

    return Linear, (d(6, 4), d(4, 5))


@row("C15", "view_as", "as is", "input object", level="advice")
def input_returned(right: bool) -> Made:
    class Same(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone() if right else x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad

    return Same, (d(4),)


@row("C17", "grad_output", "grad")
def grad_in_place(right: bool) -> Made:
    class Triple(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 3 if right else grad.mul_(3)

    return Triple, (d(4),)


@row("C18", "overwrit", "changes", "saved")
def saved_in_place(right: bool) -> Made:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return x * 2 * grad if right else x.mul_(2).mul_(grad)

    return Square, (d(4),)


@row("C18b", "saved", "changes", "overwrit")
def saved_output_by_data(right: bool) -> Made:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return y * grad if right else y.data.mul_(grad)

    return Exp, (d(4),)


@row("C19", "save_for_backward", "twice")
def saved_twice(right: bool) -> Made:
    class Mul(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            if right:
                ctx.save_for_backward(x, y)
            else:
                ctx.save_for_backward(x)
                ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return grad * y, grad * x

    return Mul, (d(4), d(4))


@row("C20", "save_for_backward", "tensor")
def number_saved(right: bool) -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
            ctx.k = k
            ctx.save_for_backward(*([x] if right else [x, k]))
            return x * k

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * ctx.k, None

    return Scale, (d(4), 3)


@row("C21", "too few", "w")
def too_few(right: bool) -> Made:
    class Mul(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            x, w = ctx.saved_tensors
            return (grad * w, grad * x) if right else grad * w

    return Mul, (d(4), d(4))


@row("C22", "not a tensor", "no tensor", "non-tensor", "number")
def gradient_of_a_number(right: bool) -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
            ctx.k = k
            ctx.save_for_backward(x)
            return x * k

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
            (x,) = ctx.saved_tensors
            return grad * ctx.k, None if right else (grad * x).sum()

    return Scale, (d(4), 3)


@row("C26", "ctx", "class", "second call")
def state_on_the_class(right: bool) -> Made:
    class Square(Function):
        x: Any = None

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            Square.x = x.detach().clone()
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * 2 * (x if right else Square.x)

    return Square, (d(4),)


@row("C27", "second backward", "deletes")
def deleted(right: bool) -> Made:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.twice = (2 * x).detach()
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            twice = ctx.twice
            if not right:
                del ctx.twice
            return grad * twice

    return Square, (d(4),)


@row("C30", "saved_tensors", "clear")
def cleared(right: bool) -> Made:
    class Mul(Function):
        clear_saved_tensors_on_access = not right

        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            if right:
                x, y = ctx.saved_tensors
            else:
                x = ctx.saved_tensors[0]
                y = ctx.saved_tensors[1]
            return grad * y, grad * x

    return Mul, (d(4), d(4))


@row("M02", "twice")
def read_twice(right: bool) -> Made:
    class Mul(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            if right:
                x, y = ctx.saved_tensors
            else:
                x = ctx.saved_tensors[0]
                y = ctx.saved_tensors[1]
            return grad * y, grad * x

    return Mul, (d(4), d(4))


@row("X01", "never used", "not used", level="advice")
def saved_and_unused(right: bool) -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x + 2 * w if not right else x * w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return (grad * w, grad * x) if right else (grad.clone(), 2 * grad)

    return Scale, (d(4), d(4))


@row("X03", "one", "enough", "needed", level="advice")
def both_saved(right: bool) -> Made:
    class Relu(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.clamp(min=0)
            ctx.save_for_backward(*([y] if right else [x, y]))
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            if right:
                return grad * (ctx.saved_tensors[0] > 0)
            x, y = ctx.saved_tensors
            return grad * ((x > 0) | (y > 0))

    return Relu, (d(5),)
