"""Example arguments: a maker is called, any other value is passed as it is."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Real:
    """Normally distributed numbers, whose gradient is compared."""

    shape: tuple[int, ...]
    grad: bool = True
    scale: float = 1.0
    dtype: torch.dtype = torch.float32

    def __call__(self) -> Tensor:
        return (torch.randn(self.shape, dtype=self.dtype) * self.scale).requires_grad_(self.grad)


@dataclass(frozen=True)
class Definite:
    """A symmetric positive definite matrix times `scale`, or its Cholesky factor."""

    size: int
    scale: float = 1.0
    factor: bool = False

    def __call__(self) -> Tensor:
        root = torch.randn(self.size, self.size)
        matrix = root @ root.T + self.size * torch.eye(self.size)
        made = torch.linalg.cholesky(matrix) if self.factor else matrix * self.scale
        return made.requires_grad_()


@dataclass(frozen=True)
class Symmetric:
    """A symmetric matrix."""

    size: int

    def __call__(self) -> Tensor:
        root = torch.randn(self.size, self.size)
        return (root + root.T).requires_grad_()


@dataclass(frozen=True)
class Spikes:
    """Zeros and ones, as floating-point numbers."""

    shape: tuple[int, ...]

    def __call__(self) -> Tensor:
        return (torch.rand(self.shape) < 0.4).float().requires_grad_()


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix, without a gradient."""

    shape: tuple[int, int]
    grad: bool = False

    def __call__(self) -> Tensor:
        return torch.randn(self.shape).relu().to_sparse().requires_grad_(self.grad)


@dataclass(frozen=True)
class Whole:
    """Integers below `limit`."""

    limit: int
    shape: tuple[int, ...]

    def __call__(self) -> Tensor:
        return torch.randint(self.limit, self.shape)


@dataclass(frozen=True)
class Constant:
    """A tensor of given values, without a gradient."""

    values: Any

    def __call__(self) -> Tensor:
        return torch.tensor(self.values)


@dataclass(frozen=True)
class Buffer:
    """An attribute of a module of the package itself: its filters, its tables."""

    module: str
    names: str
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        module = found(self.module)(**self.options)
        tensors = [getattr(module, name).detach() for name in self.names.split()]
        return tensors[0] if len(tensors) == 1 else tensors


def real(*shape: int, scale: float = 1.0, grad: bool = True) -> Real:
    """Return a maker of random numbers."""
    return Real(shape, scale=scale, grad=grad)


def image(*shape: int, grad: bool = True) -> Real:
    """Return a maker of random complex numbers."""
    return Real(shape, dtype=torch.complex64, grad=grad)


def found(path: str) -> Any:
    """Return what an import path names."""
    module, _, attributes = path.partition(":")
    value: Any = importlib.import_module(module)
    for name in attributes.removesuffix("()").split("."):
        value = getattr(value, name)
    return value(None).__self__ if path.endswith("()") else value


def made(maker: Any) -> Any:
    """Return what a maker makes; a tuple of them makes a tuple."""
    if isinstance(maker, tuple):
        return tuple(made(each) for each in maker)
    return maker() if callable(maker) else maker
