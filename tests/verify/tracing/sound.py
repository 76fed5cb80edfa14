"""Right code that does unusual things: no fault may be found."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from tests.verify.case import Function, Made, d
from tests.verify.tracing.case import right


@right
def integers_masks_and_intermediates_on_ctx() -> Made:
    class Select(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
            ctx.index = index
            ctx.mask = x > 0
            ctx.h = x.exp()
            ctx.shape = x.shape
            return (ctx.h * ctx.mask)[index]

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            full = grad.new_zeros(ctx.shape).index_add(0, ctx.index, grad)
            return full * ctx.h * ctx.mask, None

    return Select, (d(5, 3), torch.tensor([0, 2, 2, 4]))


@right
def the_gradient_is_handed_on_to_both() -> Made:
    class Add(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return x + y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            return grad, grad

    return Add, (d(4), d(4))


@right
def in_place_and_declared() -> Made:
    class Clamp(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            x.clamp_(min=0)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return grad * (y > 0)

    return Clamp, (d(4),)


@right
def reversal_with_view_as() -> Made:
    class Reverse(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return -grad

    return Reverse, (d(4),)


@right
def dropout_that_saves_its_mask() -> Made:
    class Dropout(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            mask = torch.rand_like(x) > 0.5
            ctx.save_for_backward(mask)
            return x * mask * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (mask,) = ctx.saved_tensors
            return grad * mask * 2

    return Dropout, (d(20),)


@right
def dropout_that_draws_again_from_the_same_state() -> Made:
    class Dropout(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.state = torch.get_rng_state()
            return x * (torch.rand_like(x) > 0.5)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(ctx.state)
                return grad * (torch.rand_like(grad) > 0.5)

    return Dropout, (d(20),)


@right
def a_module_whose_weights_are_arguments() -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return grad * w, (grad * x).sum(0)

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, dtype=torch.float64))

        def forward(self, x: Tensor) -> Any:
            return Scale.apply(x, self.weight) + self.weight

    return Module(), (d(3, 4),)


@right
def a_checkpoint_of_its_own() -> Made:
    weight = nn.Parameter(torch.randn(4, dtype=torch.float64))

    class Recompute(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return (x * weight).sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                own = x.detach().requires_grad_()
                y = (own * weight).sin()
            torch.autograd.backward(y, grad)
            return own.grad

    return Recompute, (d(3, 4),)


@right
def pytorchs_checkpoint_in_a_callable() -> Made:
    weight = nn.Parameter(torch.randn(4, dtype=torch.float64))
    return (lambda x: checkpoint(lambda own: (own * weight).tanh(), x, use_reentrant=False)), (
        d(3, 4),
    )


@right
def the_engine_sums_the_right_axis() -> Made:
    class Bias(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, b: Tensor) -> Tensor:
            return x + b

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            return grad, grad

    return Bias, (d(3, 4), d(4))


@right
def saved_tensors_are_cleared_and_read_once() -> Made:
    class Square(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    return Square, (d(4),)


@right
def empty_memory_that_is_written_whole() -> Made:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            out = np.empty_like(x.detach().numpy())
            np.multiply(x.detach().numpy(), 2, out=out)
            return torch.from_numpy(out)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            gradient = torch.empty_like(grad)
            torch.mul(grad, 2, out=gradient)
            return gradient

    return Twice, (d(5),)


@right
def a_workspace_that_backward_overwrites() -> Made:
    class Work(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            ctx.work = torch.empty_like(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            torch.mul(x, 2, out=ctx.work)
            return ctx.work * grad

    return Work, (d(4),)


@right
def none_outputs_and_unused_inputs() -> Made:
    class Odd(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor, mode: str) -> Any:
            return x * 3, None, {"n": 2}

        @staticmethod
        def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
            return grad * 3, None, None

    return Odd, (d(4), d(4), "mode")


@right
def a_counter_on_the_class() -> Made:
    class Counted(Function):
        calls = 0
        last: Any = None

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            Counted.calls += 1
            Counted.last = x.detach()
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    return Counted, (d(4),)


@right
def rounding_of_which_the_derivative_is_zero() -> Made:
    class Round(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, step: Tensor) -> Tensor:
            return (x / step.detach()).round()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
            return None, None

    return Round, (d(6), torch.ones(1, dtype=torch.float64))


@right
def an_empty_tensor_and_a_single_number() -> Made:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, s: Tensor) -> Tensor:
            ctx.save_for_backward(x, s)
            return x * s

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, s = ctx.saved_tensors
            return grad * s, (grad * x).sum()

    return Product, (d(0, 3), torch.tensor(2.0, dtype=torch.float64, requires_grad=True))


@right
def a_sparse_gradient() -> Made:
    class Lookup(Function):
        @staticmethod
        def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
            ctx.save_for_backward(index)
            ctx.shape = table.shape
            return table[index]

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            (index,) = ctx.saved_tensors
            return torch.sparse_coo_tensor(index[None], grad, ctx.shape), None

    return Lookup, (d(5, 2), torch.tensor([0, 3, 3]))


@right
def a_running_mean_that_is_updated() -> Made:
    class Centre(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, mean: Tensor) -> Tensor:
            mean.mul_(0.9).add_(0.1 * x.mean(0))
            return x - x.mean(0)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad - grad.mean(0), None

    return Centre, (d(4, 3), torch.zeros(3, dtype=torch.float64))


@right
def complex_numbers_in_single_precision() -> Made:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return grad * y.conj(), grad * x.conj()

    return Product, tuple(
        torch.randn(4, dtype=torch.complex64, requires_grad=True) for _ in range(2)
    )
