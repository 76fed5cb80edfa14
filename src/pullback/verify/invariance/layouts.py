"""The same values in another memory layout: transposed, sliced, strided, expanded, offset.

Between and after the elements are others that do not belong to the tensor, so that a kernel that
ignores the strides reads wrong numbers and does not crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# The values in memory that is not the tensor's own, in units of its largest element.
FOREIGN = 37.0


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way to lay out a tensor.

    Attributes:
        name: completes "if `grad` is ...".
        origin: what makes such a tensor in ordinary code.
        make: gives values this layout. It is differentiable.
        values: the result of `make` in ordinary memory: an expanded tensor repeats the same ones.
        cure: if it is not the one for strides.
    """

    name: str
    origin: str
    make: Callable[[Tensor], Tensor]
    values: Callable[[Tensor], Tensor]
    cure: str | None = None


def plain(value: Tensor) -> Tensor:
    """Return the values in ordinary memory, as a tensor of its own."""
    return value.clone(memory_format=torch.contiguous_format)


def transposed(value: Tensor) -> Tensor:
    """Put the last axis first in memory."""
    order = list(reversed(range(value.ndim)))
    return value.permute(order).clone(memory_format=torch.contiguous_format).permute(order)


def stepped(value: Tensor) -> Tensor:
    """Leave a foreign element after each one."""
    return torch.stack([value, foreign_values(value)], dim=-1)[..., 0]


def sliced(value: Tensor) -> Tensor:
    """Leave foreign elements at the end of each row."""
    return torch.cat([value, foreign_values(value)], dim=-1)[..., : value.shape[-1]]


def offset(value: Tensor) -> Tensor:
    """Start in the middle of a storage."""
    before = foreign_values(value).reshape(-1)[:1]
    return torch.cat([before, value.reshape(-1), before])[1:-1].view(value.shape)


def expanded(value: Tensor) -> Tensor:
    """Repeat the first element with strides of zero; foreign ones follow it."""
    flat = torch.cat([value.reshape(-1)[:1], foreign_values(value).reshape(-1)])
    return flat[:1].view((1,) * value.ndim).expand(value.shape)


def expanded_rows(value: Tensor) -> Tensor:
    """Repeat the first row with a stride of zero; foreign rows follow it."""
    rows = torch.cat([value[:1], foreign_values(value)])
    return rows[:1].expand(value.shape)


def expanded_columns(value: Tensor) -> Tensor:
    """Repeat the first element of each row with a stride of zero."""
    columns = torch.cat([value[..., :1], foreign_values(value)], dim=-1)
    return columns[..., :1].expand(value.shape)


def foreign_values(value: Tensor) -> Tensor:
    """Return values that are not the tensor's, of its shape and dtype."""
    own = value.detach()
    if not (own.is_floating_point() or own.is_complex()):
        # A kernel may use a foreign index and read anywhere, so take another of the tensor's own.
        return own.flip(list(range(own.ndim))) if own.ndim else own.clone()
    size = float(own.abs().max()) if own.numel() else 1.0
    largest = torch.finfo(own.dtype).max
    return torch.full_like(
        own, min(FOREIGN * (size or 1.0), largest / 2), memory_format=torch.contiguous_format
    )


def layouts_of(value: Tensor) -> Iterator[Layout]:
    """Yield the layouts, other than the ordinary one, that a tensor can have."""
    if value.numel() < 2:
        return
    thick = sum(size > 1 for size in value.shape)
    if thick > 1:
        yield Layout(
            name="transposed", origin="y.t() or y.permute(...)", make=transposed, values=plain
        )
        yield Layout(name="a slice", origin="torch.cat or split", make=sliced, values=plain)
    if value.ndim in (4, 5) and thick > 1:
        last = torch.channels_last if value.ndim == 4 else torch.channels_last_3d
        yield Layout(
            name="channels_last",
            origin="convolutions",
            make=lambda own: own.clone(memory_format=last),
            values=plain,
        )
    yield Layout(name="every other element", origin="y[..., ::2]", make=stepped, values=plain)
    yield Layout(name="an offset view", origin="split or unbind", make=offset, values=plain)
    if value.is_complex():
        yield Layout(
            name="a lazy conjugate",
            origin="z.conj()",
            make=lambda own: own.conj_physical().conj(),
            values=plain,
            cure="call resolve_conj() before memory is read",
        )
    if value.is_floating_point() or value.is_complex():
        yield from expansions_of(value, several=thick > 1)


def expansions_of(value: Tensor, *, several: bool) -> Iterator[Layout]:
    """Yield the layouts with strides of zero."""
    origin = "y.sum().backward()"
    makes = [("expanded (stride 0)", origin, expanded)]
    if several and value.shape[0] > 1:
        makes.append(("expanded along axis 0", "y.sum(0) or broadcasting", expanded_rows))
    if several and value.shape[-1] > 1:
        makes.append(("expanded along its last axis", "y.sum(-1)", expanded_columns))
    for name, source, make in makes:
        yield Layout(
            name=name, origin=source, make=make, values=lambda own, make=make: plain(make(own))
        )


def as_read_in_order(laid_out: Tensor) -> Tensor | None:
    """Return what a kernel that ignores the strides reads; None if that is past the storage."""
    bytes_needed = (laid_out.storage_offset() + laid_out.numel()) * laid_out.element_size()
    if laid_out.untyped_storage().nbytes() < bytes_needed:
        return None
    strides = torch.empty(laid_out.shape, device="meta").stride()
    return laid_out.detach().as_strided(laid_out.shape, strides).clone()
