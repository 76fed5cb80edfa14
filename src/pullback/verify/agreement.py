"""Whether two tensors that should be equal are: the same bits, or the same except for rounding.

Two runs that differ in strides, or in the order of a sum, may round differently. At worst that
costs half of the digits of the terms; a kernel that reads the wrong element loses them all.
So a smaller difference is never called wrong here, whatever the dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pullback.verify.call import is_same


def find_differing(a: Tensor | None, b: Tensor | None, *, floor: float = 0.0) -> Tensor | None:
    """Return where two tensors of one shape differ by more than rounding; None if nowhere.

    A difference below `floor` is rounding of the terms that were summed.

    A missing gradient is zero. An element that is not finite in both, in whatever way, is equal:
    an infinity and a NaN come from the same overflow in another order.
    """
    if a is None or b is None:
        other = a if b is None else b
        if other is None:
            return None
        a = torch.zeros_like(other) if a is None else a
        b = torch.zeros_like(other) if b is None else b
    a, b = a.detach(), b.detach()
    assert a.shape == b.shape
    if a.numel() == 0 or is_same(a, b):
        return None
    eps = max(rounding(a.dtype), rounding(b.dtype))
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    a, b = a.to(wide).resolve_conj(), b.to(wide).resolve_conj()
    size = torch.maximum(a.abs(), b.abs()).nan_to_num(0.0, 0.0, 0.0)
    # If an element is large, the terms of a small one may be large as well.
    allowed = eps**0.25 * size + eps**0.5 * size.max() + floor
    unlike = (a - b).abs() > allowed
    unlike = torch.where(a.isfinite() & b.isfinite(), unlike, a.isfinite() != b.isfinite())
    return unlike if bool(unlike.any()) else None


def rounding(dtype: torch.dtype) -> float:
    """Return the spacing of the numbers of a dtype at 1; of an exact dtype that of float64."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.finfo(dtype).eps
    return torch.finfo(torch.float64).eps


def find_first_differing(
    found: Sequence[Tensor | None],
    wanted: Sequence[Tensor | None],
    floors: Sequence[float] | None = None,
) -> tuple[int, Tensor] | None:
    """Return the first pair of tensors that differ, and where; shapes must be the same."""
    for index, (own, right) in enumerate(zip(found, wanted, strict=True)):
        floor = floors[index] if floors else 0.0
        if (where := find_differing(own, right, floor=floor)) is not None:
            return index, where
    return None


def describe_differing(where: Tensor, found: Tensor | None, wanted: Tensor | None) -> str:
    """Say how many elements differ, and how the first does: "[1, 0] is 2.1 for 1.3; 6 of 12"."""
    index = tuple(int(i) for i in where.nonzero()[0])
    own = 0.0 if found is None else found.detach()[index].item()
    right = 0.0 if wanted is None else wanted.detach()[index].item()
    at = f"element {list(index)}" if index else "it"
    return f"{at} is {own:.4g} for {right:.4g}; {int(where.sum())} of {where.numel()} elements"
