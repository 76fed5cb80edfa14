"""Every operator of the examples, with a reference in plain PyTorch and a draw of arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from loading import example
from torch import Tensor
from torch.nn import functional

import pullback as pb

Outputs = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One operator.

    Attributes:
        path: the module that defines it, "cube/cube".
        name: in that module.
        reference: the same in PyTorch, written without looking at the kernel.
        shapes: of its tensors, which come first.
        scalars: the arguments after them.
        dtype: what its kernel takes; float64 where it can.
        orders: how many times it can be differentiated, 2 standing for any number.
    """

    path: str
    name: str
    reference: Callable[..., Tensor | Outputs]
    shapes: tuple[tuple[int, ...], ...]
    scalars: tuple[float, ...] = ()
    dtype: torch.dtype = torch.float64
    orders: int = 2

    def __str__(self) -> str:
        return f"{self.path.split('/')[0]}-{self.name}"

    @property
    def operator(self) -> pb.Operator:
        """The operator, compiled when its example is first imported."""
        return getattr(example(self.path), self.name)

    def tensors(self) -> Outputs:
        """Draw the tensors from PyTorch's generator, away from 0, where relu has a kink."""
        drawn = (torch.randn(shape, dtype=self.dtype) for shape in self.shapes)
        return tuple(tensor + 0.1 * tensor.sign() for tensor in drawn)

    @property
    def loss(self) -> Callable[..., Tensor]:
        """A number that depends on each output of the operator in its own way."""
        return self.loss_by(self.operator)

    @property
    def reference_loss(self) -> Callable[..., Tensor]:
        """The same of the reference."""
        return self.loss_by(self.reference)

    def loss_by(self, function: Callable[..., Any]) -> Callable[..., Tensor]:
        """Return the loss as a function of the tensors."""
        scalars = self.scalars
        return lambda *tensors: loss_of(function(*tensors, *scalars))


def loss_of(outputs: Any) -> Tensor:
    parts = [(i + 1) * output.square().sum() for i, output in enumerate(as_tuple(outputs))]
    return torch.stack(parts).sum()


def as_tuple(outputs: Any) -> Outputs:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def linear_backward(grad: Tensor, x: Tensor, w: Tensor) -> Outputs:
    return grad @ w, grad.T @ x, grad.sum(0)


def correlate(x: Tensor, k: Tensor) -> Tensor:
    return functional.conv2d(x[None, None], k[None, None])[0, 0]


def correlate_backward(grad: Tensor, x: Tensor, k: Tensor) -> Outputs:
    image, filter_ = grad[None, None], k[None, None]
    return functional.conv_transpose2d(image, filter_)[0, 0], correlate(x, grad)


def relu_backward(grad: Tensor, x: Tensor) -> Tensor:
    return torch.where(x < 0, 0, grad)


def legendre3(x: Tensor) -> Tensor:
    return 0.5 * (5 * x**3 - 3 * x)


def legendre3_backward(grad: Tensor, x: Tensor) -> Tensor:
    return grad * 1.5 * (5 * x**2 - 1)


def difference(u: Tensor, v: Tensor) -> Tensor:
    return 3 * u - v


def cube(x: Tensor) -> Outputs:
    return x**3, 3 * x**2


LAYER = ((4, 3), (2, 3), (2,))
PULLED = ((4, 2), (4, 3), (2, 3))
F32 = torch.float32

TABLE = (
    Row(path="add_model/add2", name="add2", reference=torch.add, shapes=((5,), (5,)), dtype=F32),
    Row(
        path="gradients/gradients", name="power", reference=torch.pow, shapes=((5,),), scalars=(3,)
    ),
    Row(path="gradients/gradients", name="combine", reference=difference, shapes=((2, 3), (3,))),
    Row(path="linear/linear", name="linear_operator", reference=functional.linear, shapes=LAYER),
    Row(path="linear/linear", name="linear_backward", reference=linear_backward, shapes=PULLED),
    Row(
        path="mul_constant/mul_constant",
        name="mul_constant",
        reference=torch.mul,
        shapes=((2, 3),),
        scalars=(2.5,),
    ),
    Row(path="cube/cube", name="cube_operator", reference=cube, shapes=((2, 3),)),
    Row(path="legendre/legendre3", name="legendre3", reference=legendre3, shapes=((5,),)),
    Row(
        path="legendre/legendre3",
        name="legendre3_backward",
        reference=legendre3_backward,
        shapes=((5,), (5,)),
    ),
    Row(
        path="scipy_conv/correlate", name="correlate", reference=correlate, shapes=((5, 6), (2, 3))
    ),
    Row(
        path="scipy_conv/correlate",
        name="correlate_backward",
        reference=correlate_backward,
        shapes=((4, 4), (5, 6), (2, 3)),
    ),
    Row(path="relu_network/my_relu", name="my_relu", reference=torch.relu, shapes=((5,),)),
    Row(
        path="relu_network/my_relu",
        name="my_relu_backward",
        reference=relu_backward,
        shapes=((5,), (5,)),
    ),
    Row(
        path="linear_train/my_linear",
        name="linear_f",
        reference=functional.linear,
        shapes=LAYER,
        orders=1,
    ),
    Row(
        path="linear_train/my_linear",
        name="linear_f_backward",
        reference=linear_backward,
        shapes=PULLED,
        orders=0,
    ),
)
