"""Faults that the trace of a call shows: other implementations than the catalogue's."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tests.verify.case import Function, Made, d
from tests.verify.tracing.case import fault


class SquareFunction(Function):
    """x², right; the faulty ones differ from it in one thing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


Square: Any = SquareFunction


@fault("PB501", "mark_dirty")
def marked_in_setup_but_not_returned() -> Made:
    class Clamp(Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            x.clamp_(min=0)
            return x * 1

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad

    return Clamp, (d(4),)


@fault("PB501", "forward raises", "no such option")
def forward_refuses() -> Made:
    class Refuses(Square):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            raise ValueError("no such option")

    return Refuses, (d(4),)


@fault("PB502", "changes its input", "version counter")
def numpy_writes_into_the_input() -> Made:
    class Negative(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            own = x.detach().numpy()
            np.negative(own, out=own)
            return torch.from_numpy(own.copy())

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return -grad

    return Negative, (d(4),)


@fault("PB503", "axis")
def bias_of_channels_not_reduced() -> Made:
    class Bias(Function):
        @staticmethod
        def forward(x: Tensor, b: Tensor) -> Tensor:
            return x + b[:, None]

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            return grad, grad

    return Bias, (d(3, 3), d(3))


@fault("PB504", "overwrit", "ctx.h")
def intermediate_of_ctx_scaled() -> Made:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.h = {"slope": x.exp()}
            return ctx.h["slope"].clone()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return ctx.h["slope"].mul_(grad).clone()

    return Exp, (d(4),)


@fault("PB504", "overwrit")
def saved_written_by_numpy() -> Made:
    class ByNumpy(Square):
        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            own = x.detach().numpy()
            own *= 2 * grad.numpy()
            return torch.from_numpy(own.copy())

    return ByNumpy, (d(4),)


@fault("PB506", "too few", "bias")
def bias_forgotten_in_a_module() -> Made:
    class LinearFunction(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            return x @ weight.t() + bias

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            x, weight = ctx.saved_tensors
            return grad @ weight, grad.t() @ x

    linear = LinearFunction.apply

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 3, dtype=torch.float64))
            self.bias = nn.Parameter(torch.randn(2, dtype=torch.float64))

        def forward(self, x: Tensor) -> Any:
            return linear(x, self.weight, self.bias)

    return Linear(), (d(4, 3),)


@fault("PB506", "a float", "tensor")
def number_for_a_gradient() -> Made:
    class Two(Square):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> float:
            return 2.0

    return Two, (d(4),)


@fault("PB506", "undefined_name")
def a_misspelt_name() -> Made:
    class Misspelt(Square):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return undefined_name * grad  # type: ignore[name-defined]  # noqa: F821

    return Misspelt, (d(4),)


@fault("PB507", "output 0", "never writes")
def output_of_numpy_not_filled() -> Made:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            out = np.empty(x.shape)
            out[:-1] = 2 * x.detach().numpy()[:-1]
            return torch.from_numpy(out)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * grad

    return Twice, (d(5),)


@fault("PB508", "grad_output")
def grad_written_by_numpy() -> Made:
    class ByNumpy(Square):
        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            own = grad.numpy()
            np.multiply(own, 2 * x.detach().numpy(), out=own)
            return torch.from_numpy(own)

    return ByNumpy, (d(4),)


@fault("PB508", "grad_output")
def grad_written_after_a_cast_that_does_nothing() -> Made:
    class InSingle(Square):
        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad.float().mul_(2 * x.float()).to(x)

    return InSingle, (d(4),)


class Holder:
    """An object with a tensor to be trained."""

    def __init__(self) -> None:
        self.scale = nn.Parameter(torch.randn(4, dtype=torch.float64))


@fault("PB509", "scale", "argument")
def parameter_in_an_object() -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, holder: Holder) -> Tensor:
            ctx.scale = holder.scale.detach().clone()
            return x * holder.scale

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * ctx.scale, None

    return Scale, (d(3, 4), Holder())


@fault("PB509", "weight", "argument")
def parameter_of_the_class() -> Made:
    class Scale(Function):
        weight = nn.Parameter(torch.randn(4, dtype=torch.float64))

        @classmethod
        def forward(cls, ctx: Any, x: Tensor) -> Tensor:
            return x * Scale.weight

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * Scale.weight

    return Scale, (d(3, 4),)


@fault("PB510", "options", "dict")
def tensor_in_a_dict() -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, options: dict[str, Tensor]) -> Tensor:
            ctx.w = options["w"].detach().clone()
            return x * options["w"]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * ctx.w, None

    return Scale, (d(4), {"w": d(4)})


@fault("PB511", "output 1", "non-differentiable")
def norm_marked_in_setup() -> Made:
    class Normalised(Function):
        @staticmethod
        def forward(x: Tensor) -> tuple[Tensor, Tensor]:
            norm = x.norm()
            return x / norm, norm

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            n = x.norm()
            return grad / n - x * (grad * x).sum() / n**3

    return Normalised, (d(5),)


@fault("PB512", "None for b", "depends")
def no_gradient_for_the_bias() -> Made:
    class Linear(Function):
        @staticmethod
        def forward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
            return x @ w + b

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*inputs[:2])

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
            x, w = ctx.saved_tensors
            return grad @ w.t(), x.t() @ grad, None

    return Linear, (d(3, 4), d(4, 2), d(2))


@fault("PB513", "random state")
def noise_from_numpy_again() -> Made:
    class Noise(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * torch.from_numpy(np.random.uniform(size=x.shape))

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * torch.from_numpy(np.random.uniform(size=tuple(grad.shape)))

    return Noise, (d(6),)


@fault("PB514", "second call", "first")
def state_in_a_closure() -> Made:
    last: dict[str, Tensor] = {}

    class Remembered(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            last["x"] = x.detach().clone()
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * last["x"] * grad

    return Remembered, (d(4),)


@fault("PB514", "second call", "overwrites output")
def output_buffer_used_again() -> Made:
    buffer = torch.zeros(4, dtype=torch.float64)

    class Buffered(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            torch.mul(x, 3, out=buffer)
            return buffer.detach()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 3 * grad

    return Buffered, (d(4),)


@fault("PB514", "first call")
def cached_by_shape() -> Made:
    cache: dict[Any, Tensor] = {}

    class Cached(Square):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            key = tuple(x.shape)
            if key not in cache:
                cache[key] = 2 * x.detach().clone()
            return cache[key] * grad

    return Cached, (d(4),)


@fault("PB515", "cycle", "ctx.kept")
def output_in_a_list_on_ctx() -> Made:
    class Exp(Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.exp()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.kept = [output]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.kept[0]

    return Exp, (d(4),)


@fault("PB516", "output 0", "None")
def one_of_two_grads_is_used_blindly() -> Made:
    class Split(Function):
        @staticmethod
        def forward(x: Tensor) -> tuple[Tensor, Tensor]:
            return x[:2].clone(), x[2:].clone()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            return torch.cat([a, b])

    return Split, (d(4),)


@fault("PB517", "twice")
def read_in_a_helper_again() -> Made:
    def slope(ctx: Any) -> Any:
        return 2 * ctx.saved_tensors[0]

    class Helped(Square):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            assert len(ctx.saved_tensors) == 1
            return slope(ctx) * grad

    return Helped, (d(4),)


@fault("PB518", "second backward", "ctx.stack")
def popped_from_a_list() -> Made:
    class Popped(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.stack = [2 * x.detach()]
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return ctx.stack.pop() * grad

    return Popped, (d(4),)


@fault("PB519", "silently changes the gradient", "ctx.slope")
def input_in_a_partial_function() -> Made:
    class Partial(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.slope = functools.partial(torch.mul, x.detach())
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * ctx.slope(grad)

    return Partial, (d(4),)


@fault("PB521", "memory of")
def view_of_the_saved_weight_is_the_gradient() -> Made:
    class Sum(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(w)
            return (x * w).sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            (w,) = ctx.saved_tensors
            return (w.detach() if float(grad) == 1.0 else w * grad), None

    return Sum, (d(4), torch.randn(4, dtype=torch.float64))


@fault("PB522", "setting", "deterministic")
def setting_left_on() -> Made:
    class Setting(Square):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            torch.use_deterministic_algorithms(True, warn_only=True)
            return 2 * ctx.saved_tensors[0] * grad

    return Setting, (d(4),)
