"""Runs forward on copies, and on tensors like the example's but of other sizes."""

from __future__ import annotations

import contextlib
import io
import math
import random
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

Run = Callable[..., tuple[tuple[object, ...], tuple[int, ...]]]
Shapes = tuple[tuple[int, ...], ...]
Fill = Callable[[Tensor, Sequence[int]], Tensor]
GUARD = 256  # elements after every tensor, which show a read past its end


@dataclass(frozen=True)
class ForwardResult:
    """What one run of forward returned, and its arguments after it."""

    outputs: tuple[object, ...]
    changed: tuple[int, ...]
    arguments: tuple[object, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The outputs, if it is known that they are tensors."""
        return cast("tuple[Tensor, ...]", self.outputs)

    @property
    def shapes(self) -> Shapes:
        """The shapes of the outputs."""
        return tuple(tuple(output.shape) for output in self.tensors)


@contextlib.contextmanager
def seed_generators(seed: int) -> Generator[None]:
    """Seed every global generator, and restore them all."""
    # Not `torch.manual_seed`, which queues each call for devices that do not exist.
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    of_torch, of_numpy, of_python = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        if on_devices:
            torch.cuda.manual_seed_all(seed)
        yield
    finally:
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)
        if on_devices:
            torch.cuda.set_rng_state_all(on_devices)


class ExampleTrial:
    """Forward, and an example of its arguments, whose tensors can be replaced."""

    def __init__(
        self, run: Run, arguments: Sequence[object], *, placeholders: bool = False
    ) -> None:
        """Make it; `placeholders`: whether a tensor without elements is only a placeholder."""
        self.run = run
        self.placeholders = placeholders
        self.arguments = tuple(arguments)
        self.places: list[tuple[int, int | None]] = []
        self.examples: list[Tensor] = []
        self.fill: Fill = tile
        for index, argument in enumerate(arguments):
            if isinstance(argument, Tensor):
                if placeholders and not argument.numel():
                    continue
                self.places.append((index, None))
                self.examples.append(argument.detach())
            elif is_tensors(argument):
                for position, tensor in enumerate(cast("Sequence[Tensor]", argument)):
                    self.places.append((index, position))
                    self.examples.append(tensor.detach())
        self.base: Shapes = tuple(tuple(example.shape) for example in self.examples)

    def call(
        self,
        tensors: Sequence[Tensor] | None = None,
        others: Mapping[int, object] = {},
        *,
        seed: int = 0,
        guard: int = 0,
    ) -> ForwardResult:
        """Run forward on copies.

        Args:
            tensors: in place of the example's.
            others: scalars in place of the example's, by their place among the arguments.
            seed: for all generators.
            guard: the fill of the memory after each tensor.
        """
        given = [others.get(index, argument) for index, argument in enumerate(self.arguments)]
        examples = self.examples if tensors is None else tensors
        for (index, position), tensor in zip(self.places, examples, strict=True):
            copy = pad_with_guard(tensor, guard)
            if index in others:
                continue
            if position is None:
                given[index] = copy
            else:
                elements = list(cast("Sequence[Tensor]", given[index]))
                elements[position] = copy
                given[index] = type(cast("list[Tensor]", self.arguments[index]))(elements)
        with seed_generators(seed), torch.no_grad():
            outputs, changed = self.run(*given)
        return ForwardResult(tuple(outputs), tuple(changed), tuple(given))

    def attempt(
        self,
        tensors: Sequence[Tensor] | None = None,
        others: Mapping[int, object] = {},
        *,
        seed: int = 0,
        guard: int = 0,
    ) -> ForwardResult | None:
        """Run forward silently; None if it raises, or returns anything but tensors."""
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                result = self.call(tensors, others, seed=seed, guard=guard)
            except Exception:
                return None
        return result if all(isinstance(output, Tensor) for output in result.outputs) else None

    def at(self, shapes: Shapes, others: Mapping[int, object] = {}) -> ForwardResult | None:
        """Run forward on tensors of these shapes, none of which is empty."""
        if any(size < 1 for shape in shapes for size in shape):
            return None
        return self.attempt(self.filled(shapes), others)

    def filled(self, shapes: Shapes) -> list[Tensor]:
        """Return tensors of these shapes with values like the example's."""
        pairs = zip(self.examples, shapes, strict=True)
        return [self.fill(example, shape) for example, shape in pairs]

    def accepts(self, shapes: Shapes, *, closely: bool = False) -> bool:
        """Return whether forward takes these shapes.

        `closely`: and does not read past the end of a tensor, as a kernel without checks would.
        """
        tensors = self.filled(shapes)
        first = self.attempt(tensors)
        if first is None or not closely:
            return first is not None
        second = self.attempt(tensors, guard=1)
        return second is not None and agree(first, second)


def is_tensors(value: object) -> bool:
    """Return whether a value is a list of tensors."""
    if not isinstance(value, list | tuple):
        return False
    return bool(value) and all(isinstance(v, Tensor) for v in cast("Sequence[object]", value))


def pad_with_guard(tensor: Tensor, fill: int) -> Tensor:
    """Return a copy that is followed by some memory of ours."""
    if tensor.layout != torch.strided:
        return tensor.clone()
    memory = tensor.new_full((tensor.numel() + GUARD,), fill)
    memory[: tensor.numel()] = tensor.reshape(-1)
    return memory[: tensor.numel()].reshape(tensor.shape)


def tile(example: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the example's values repeated: what they have in common is kept."""
    for dim, size in enumerate(shape):
        if size != example.shape[dim]:
            index = torch.arange(size, device=example.device) % example.shape[dim]
            example = example.index_select(dim, index)
    return example


def jitter(example: Tensor, shape: Sequence[int]) -> Tensor:
    """Return such values, all different: a tiled matrix is singular."""
    return vary_values(tile(example, shape), 1)


def embed_in_identity(example: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the example in the corner of an identity: a definite matrix stays definite."""
    if example.dim() < 2 or not example.is_floating_point():
        return tile(example, shape)
    rows, columns = (min(pair) for pair in zip(example.shape[-2:], shape[-2:], strict=True))
    corner = tile(example, (*shape[:-2], *example.shape[-2:]))
    whole = torch.eye(shape[-2], shape[-1], dtype=example.dtype, device=example.device)
    whole = whole.expand(*shape).clone()
    whole[..., :rows, :columns] = corner[..., :rows, :columns]
    return whole


FILLS = (tile, jitter, embed_in_identity)


def vary_values(tensor: Tensor, number: int) -> Tensor:
    """Return other values of the same sign and no larger; integers are permuted."""
    if number == 0 or not tensor.numel():
        return tensor
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.reshape(-1).roll(number).reshape(tensor.shape)
    generator = torch.Generator().manual_seed(number)
    factor = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    # Zeros, of which an example may consist, show nothing.
    other = 1 - factor / 4 if tensor.any() else factor
    other = other.to(tensor.device)
    return (tensor * other if tensor.any() else tensor + other).to(tensor.dtype)


def grade(tensor: Tensor, number: int) -> Tensor:
    """Return such values of other magnitudes: this shows rounding relative to the largest."""
    other = vary_values(tensor, number)
    smooth = tensor.is_floating_point() or tensor.is_complex()
    return other * 2.0 ** (-5 * (number % 3)) if smooth else other


def scale_down(tensor: Tensor, number: int) -> Tensor:
    """Return the tensor scaled down as a whole: a symmetric one stays symmetric."""
    return tensor * (1 - number / 16) if tensor.is_floating_point() else tensor


def agree(first: ForwardResult, second: ForwardResult) -> bool:
    """Return whether two runs have the same outputs."""
    if len(first.outputs) != len(second.outputs) or first.changed != second.changed:
        return False
    return all(close(a, b) for a, b in zip(first.tensors, second.tensors, strict=True))


def identical(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are equal; NaN is equal to itself."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())


def close(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are equal in half of their digits.

    The same computation in another order agrees in far more digits, another one in far fewer.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_complex():
        return close(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
    if not a.is_floating_point():
        return torch.equal(a, b)
    if not a.numel():
        return True
    allowed = math.sqrt(torch.finfo(a.dtype).eps)
    largest = float(b.nan_to_num(0, 0, 0).abs().max())
    return torch.allclose(a, b, rtol=allowed, atol=allowed * largest, equal_nan=True)


def freeze_shapes(shapes: Iterable[Iterable[int]]) -> Shapes:
    """Return shapes as tuples."""
    return tuple(tuple(shape) for shape in shapes)
