"""Compares two runs: which gradients differ by more than rounding, and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.verify.agreement import find_differing


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How the second of two tensors differs from the first.

    Attributes:
        index: which pair of tensors.
        count: of the elements that differ.
        total: of all.
        element: the index of the largest difference.
        first: its value in the first.
        second: its value in the second.
    """

    index: int
    count: int
    total: int
    element: tuple[int, ...]
    first: complex | float
    second: complex | float

    @property
    def evidence(self) -> str:
        """Describe it in a line."""
        if not self.total:
            return "other shapes"
        return (
            f"{self.count} of {self.total} elements; at {list(self.element)} "
            f"{self.first:.4g} and {self.second:.4g}"
        )


def find_difference(
    first: Sequence[Tensor | None], second: Sequence[Tensor | None]
) -> Difference | None:
    """Return the first pair in which two lists of tensors differ, and how; None if they agree."""
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        found = compare_pair(index, a, b)
        if found is not None:
            return found
    return None


def compare_pair(index: int, a: Tensor | None, b: Tensor | None) -> Difference | None:
    """Compare one pair; None is zero."""
    if a is None and b is None:
        return None
    a = torch.zeros_like(b) if a is None else a  # type: ignore[arg-type]
    b = torch.zeros_like(a) if b is None else b
    a, b = densify(a), densify(b)
    if a.shape != b.shape:
        return Difference(index=index, count=0, total=0, element=(), first=0.0, second=0.0)
    unequal = find_differing(a, b)
    if unequal is None:
        return None
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    apart = (x - y).abs()
    size = torch.where(unequal, apart.nan_to_num(nan=math.inf), -1.0)
    place = torch.unravel_index(size.reshape(-1).argmax(), size.shape)
    element = tuple(int(i) for i in place)
    return Difference(
        index=index,
        count=int(unequal.sum()),
        total=x.numel(),
        element=element,
        first=x[element].item(),
        second=y[element].item(),
    )


def densify(tensor: Tensor) -> Tensor:
    """Return a tensor's values without its graph; a sparse one as a dense one."""
    tensor = tensor.detach()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def copy_values(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return copies that nobody writes to."""
    return [None if tensor is None else tensor.detach().clone() for tensor in tensors]
