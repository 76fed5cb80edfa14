"""A table of Functions as people write them, each with its line and a reference."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import pullback as pb

# ruff: noqa: ANN001, ANN002, ANN205 (the Functions are as found)
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false


class Linear(Function):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class LinearSetup(Linear):
    """The other style; its backward is inherited."""

    @staticmethod
    def forward(input, weight, bias=None):
        output = input.mm(weight.t())
        return output if bias is None else output + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


class MulConstant(Function):
    @staticmethod
    def forward(tensor, constant):
        return tensor * constant

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.constant = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output is None:
            return None, None
        return grad_output * ctx.constant, None


class Power(Function):
    """A number first, `vjp` for backward, and the tensor kept on ctx."""

    @staticmethod
    def forward(ctx, exponent, x):
        ctx.x, ctx.exponent = x, exponent
        return x**exponent

    @staticmethod
    def vjp(ctx, grad):
        return None, grad * ctx.exponent * ctx.x ** (ctx.exponent - 1)


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y


class Cube(Function):
    """The derivative as second output, so that the second derivative is right."""

    @staticmethod
    def forward(ctx, x):
        dx = 3 * x**2
        ctx.save_for_backward(x, dx)
        return x**3, dx

    @staticmethod
    def backward(ctx, grad_output, grad_dx):
        x, dx = ctx.saved_tensors
        return grad_output * dx + grad_dx * 6 * x


class Swish(Function):
    """Saves an intermediate, as many do."""

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        return grad * (s + x * s * (1 - s))


class SwishAttribute(Function):
    """The intermediate is on ctx, in a dictionary, beside other state."""

    @staticmethod
    def forward(ctx, x):
        ctx.kept = {"s": torch.sigmoid(x), "shape": x.shape}
        ctx.save_for_backward(x)
        return x * ctx.kept["s"]

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert ctx.kept["shape"] == x.shape
        s = ctx.kept["s"]
        return grad * (s + x * s * (1 - s))


class Transposed(Function):
    """Saves views of its inputs."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a.t(), b.detach())
        return a.t() * b

    @staticmethod
    def backward(ctx, grad):
        at, b = ctx.saved_tensors
        return (grad * b).t(), grad * at


class SortedWithIndex(Function):
    """An output without a gradient."""

    @staticmethod
    def forward(ctx, x):
        values, index = x.sort(dim=-1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        return values, index

    @staticmethod
    def backward(ctx, grad, _grad_index):
        (index,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(-1, index, grad)


class TwoOutputs(Function):
    """Gradients that may be None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, grad_sin, grad_cos):
        (x,) = ctx.saved_tensors
        total = None
        if grad_sin is not None:
            total = grad_sin * x.cos()
        if grad_cos is not None:
            part = -grad_cos * x.sin()
            total = part if total is None else total + part
        return total


class Spread(Function):
    """Any number of tensors."""

    @staticmethod
    def forward(ctx, scale, *tensors):
        ctx.scale = scale
        ctx.save_for_backward(*tensors)
        return scale * functools.reduce(torch.mul, tensors)

    @staticmethod
    def backward(ctx, grad):
        tensors = ctx.saved_tensors
        grads = [
            grad * ctx.scale * functools.reduce(torch.mul, [t for t in tensors if t is not own])
            for own in tensors
        ]
        return None, *grads


class ListSum(Function):
    """A list of tensors, for which PyTorch alone gives no gradients."""

    @staticmethod
    def forward(ctx, tensors, weights):
        ctx.weights = weights
        return sum(w * t for w, t in zip(weights, tensors, strict=True))

    @staticmethod
    def backward(ctx, grad):
        return [w * grad for w in ctx.weights], None


class Scale(Function):
    """In place."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        ctx.mark_dirty(x)
        return x.mul_(factor)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class Correlate(Function):
    """SciPy in both directions."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x, k)
        out = scipy.signal.correlate2d(x.detach().numpy(), k.detach().numpy(), mode="valid")
        return torch.as_tensor(out, dtype=x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, k = (t.detach().numpy() for t in ctx.saved_tensors)
        grad = grad.numpy()
        grad_x = scipy.signal.convolve2d(grad, k, mode="full")
        grad_k = scipy.signal.correlate2d(x, grad, mode="valid")
        return torch.from_numpy(grad_x), torch.from_numpy(np.ascontiguousarray(grad_k))


class OnceSquare(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * grad * x


class WithRules(Function):
    """With its own jvp and vmap."""

    @staticmethod
    def forward(x, k):
        return torch.sin(x) * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, k = inputs
        ctx.k = k
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * ctx.k, None

    @staticmethod
    def jvp(ctx, tangent, _):
        (x,) = ctx.saved_tensors
        return tangent * x.cos() * ctx.k

    @staticmethod
    def vmap(info, in_dims, x, k):
        return WithRules.apply(x.movedim(in_dims[0], 0), k), 0


class Generated(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * (1 - y * y)

    @staticmethod
    def symbolic(g, x):
        return g.op("Tanh", x)


@dataclass(frozen=True)
class Drawn:
    """A tensor of an example: its shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Adopted:
    """A Function of the table.

    Attributes:
        function: as its author wrote it.
        line: that it is adopted with.
        example: arguments.
        reference: the same in PyTorch.
        orders: how many times it can be differentiated, 2 standing for any number.
        forward_mode: whether it has forward mode.
    """

    function: type[Function]
    line: str
    example: tuple[object, ...]
    reference: Callable[..., Any]
    orders: int = 2
    forward_mode: bool = True

    @property
    def name(self) -> str:
        return self.function.__name__

    @functools.cached_property
    def operator(self) -> pb.Operator:
        return pb.operator(self.line, function=self.function)

    def arguments(self, seed: int, *, requires_grad: bool = False) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)

        def draw(item: object) -> Any:
            if isinstance(item, list):
                return [draw(each) for each in item]
            if not isinstance(item, Drawn):
                return item
            value = torch.rand(item.shape, dtype=torch.float64, generator=generator) + 0.5
            return value.requires_grad_(requires_grad)

        return tuple(map(draw, self.example))


def tensors_in(values: Any) -> list[Tensor]:
    """Return the floating tensors among some values, those of lists too."""
    found: list[Tensor] = []
    for value in values if isinstance(values, tuple | list) else (values,):
        if isinstance(value, list):
            found += tensors_in(value)
        elif isinstance(value, Tensor) and value.is_floating_point():
            found.append(value)
    return found


XY = Drawn((3, 4))
TABLE = [
    Adopted(
        function=Linear,
        line="pbfn::linear(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
        example=(XY, Drawn((5, 4)), Drawn((5,))),
        reference=lambda x, w, b: x @ w.t() + b,
    ),
    Adopted(
        function=LinearSetup,
        line="pbfn::linear_setup(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
        example=(XY, Drawn((5, 4)), None),
        reference=lambda x, w, b: x @ w.t(),
    ),
    Adopted(
        function=MulConstant,
        line="pbfn::mul_constant(tensor[...], constant: float) -> output[...]",
        example=(XY, 2.5),
        reference=lambda x, k: x * k,
    ),
    Adopted(
        function=Power,
        line="pbfn::power(exponent: float, x[...]) -> y[...]",
        example=(3.0, XY),
        reference=lambda k, x: x**k,
    ),
    Adopted(function=Exp, line="pbfn::exp(x[...]) -> y[...]", example=(XY,), reference=torch.exp),
    Adopted(
        function=Cube,
        line="pbfn::cube(x[...]) -> (y[...], dx[...])",
        example=(XY,),
        reference=lambda x: (x**3, 3 * x**2),
    ),
    Adopted(
        function=Swish,
        line="pbfn::swish(x[...]) -> y[...]",
        example=(XY,),
        reference=torch.nn.functional.silu,
    ),
    Adopted(
        function=SwishAttribute,
        line="pbfn::swish_attribute(x[...]) -> y[...]",
        example=(XY,),
        reference=torch.nn.functional.silu,
    ),
    Adopted(
        function=Transposed,
        line="pbfn::transposed(a[n, m], b[m, n]) -> y[m, n]",
        example=(XY, Drawn((4, 3))),
        reference=lambda a, b: a.t() * b,
    ),
    Adopted(
        function=SortedWithIndex,
        line="pbfn::sorted(x[..., n]) -> (values[..., n], index[..., n]: int64)",
        example=(XY,),
        reference=lambda x: x.sort(dim=-1),
    ),
    Adopted(
        function=TwoOutputs,
        line="pbfn::two_outputs(x[...]) -> (s[...], c[...])",
        example=(XY,),
        reference=lambda x: (x.sin(), x.cos()),
    ),
    Adopted(
        function=Spread,
        line="pbfn::spread(scale: float, tensors[...]*) -> y[...]",
        example=(2.0, [XY, XY, XY]),
        reference=lambda k, xs: k * functools.reduce(torch.mul, xs),
    ),
    Adopted(
        function=ListSum,
        line="pbfn::list_sum(tensors[n, m]*, weights: float[]) -> y[n, m]",
        example=([XY, XY], (2.0, -3.0)),
        reference=lambda xs, ws: sum(w * x for w, x in zip(ws, xs, strict=True)),
    ),
    Adopted(
        function=Scale,
        line="pbfn::scale_(x[...], factor: float) -> x[...]",
        example=(XY, 2.5),
        reference=lambda x, k: x.mul_(k),
    ),
    Adopted(
        function=Correlate,
        line="pbfn::correlate(x[h, w], k[p, q]) -> y[h - p + 1, w - q + 1]",
        example=(Drawn((5, 6)), Drawn((2, 3))),
        reference=lambda x, k: torch.nn.functional.conv2d(x[None, None], k[None, None])[0, 0],
        orders=1,
        forward_mode=False,
    ),
    Adopted(
        function=OnceSquare,
        line="pbfn::once_square(x[...]) -> y[...]",
        example=(XY,),
        reference=lambda x: x * x,
        orders=1,
        forward_mode=False,
    ),
    Adopted(
        function=WithRules,
        line="pbfn::with_rules(x[...], k: float) -> y[...]",
        example=(XY, 2.0),
        reference=lambda x, k: torch.sin(x) * k,
    ),
    Adopted(
        function=Generated,
        line="pbfn::generated(x[...]) -> y[...]",
        example=(XY,),
        reference=torch.tanh,
    ),
]
