"""The wrong tensor is saved: with another one in its place, backward is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks

from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample, unflatten
from pullback.verify.numbers.numeric import flatten
from pullback.verify.randomness import make_generator

Put = Callable[[Tensor], Tensor]


class WrongSaved(Hypothesis):
    """Backward is right if it finds another tensor in the place of a saved one."""

    order = 25

    def explain(self, sample: Sample) -> Cause | None:
        """Run backward again with each saved tensor replaced by others of its shape."""
        kept = SavedParts(sample)
        if kept.fits({}):
            return None
        for place, tensor in kept.tensors().items():
            own = label_tensor(tensor, sample)
            for text, other in self.candidates(tensor, sample):
                with suppress(Exception):
                    if text != own and kept.fits({place: other}):
                        return Cause(
                            name="wrong saved",
                            text=f"the gradient of `{sample.name}` has the right elements and a "
                            f"wrong factor depending on the value: using {text} instead of {own}, "
                            "which is saved, makes it fit",
                            help=f"save {text} for backward, or write backward in terms of {own}",
                            key=(place, text),
                        )
        return None

    def candidates(self, tensor: Tensor, sample: Sample) -> Iterator[tuple[str, Tensor]]:
        """Yield other tensors of the shape of a kept one: inputs and outputs."""
        for text, other in known_tensors(sample):
            if other.shape == tensor.shape:
                yield text, other.to(tensor.dtype)


class SavedInOtherForm(WrongSaved):
    """Backward is right if it finds a function of a saved tensor in its place."""

    order = 27

    def candidates(self, tensor: Tensor, sample: Sample) -> Iterator[tuple[str, Tensor]]:
        """Yield functions of the kept tensor."""
        return forms_of(tensor, label_tensor(tensor, sample))


class SavedParts:
    """What forward keeps for backward, and backward with parts of it replaced."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        pair, value = sample.pair, sample.value
        generator = make_generator(11)
        u = torch.zeros_like(flatten([sample.returned]))
        drawn = torch.randn(len(pair.rows), dtype=torch.float64, generator=generator)
        # Only rows that are completely known.
        u[pair.rows] = drawn * pair.known.all(1)
        self.grad = unflatten(u, sample.returned)
        self.right = pair.numeric.T @ u[pair.rows]
        self.blank = torch.zeros_like(flatten([value]))

    def run(self, places: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the gradient with tensors put in these places, and the tensors of all places."""
        found: dict[str, Tensor] = {}

        def pack(tensor: Tensor) -> tuple[str, Tensor]:
            place = f"saved {len(found)}"
            found[place] = tensor
            return place, tensor

        def unpack(packed: tuple[str, Tensor]) -> Tensor:
            place, tensor = packed
            return places.get(place, tensor)

        sample = self.sample
        with saved_tensors_hooks(pack, unpack):
            run = sample.call.forward()
        for number, node in enumerate(nodes_of(run.outputs[sample.output])):
            for name, value in list(vars(node).items()):
                if isinstance(value, Tensor):
                    place = f"ctx {number} {name}"
                    found[place] = value
                    if place in places:
                        setattr(node, name, places[place])
        grads = [None if i != sample.output else self.grad for i in range(len(run.outputs))]
        gradient = run.backward(grads)[sample.leaf]
        return self.blank if gradient is None else flatten([gradient]), found

    def tensors(self) -> dict[str, Tensor]:
        """Return what is kept, by its place."""
        return {
            place: tensor.detach()
            for place, tensor in self.run({})[1].items()
            if tensor.is_floating_point() or tensor.is_complex()
        }

    def fits(self, places: dict[str, Tensor]) -> bool:
        """Tell whether the gradient is right with tensors put in these places."""
        pair = self.sample.pair
        found = self.run(places)[0][pair.columns]
        size = float(self.right.norm())
        return size > 0 and float((found - self.right).norm()) <= 3 * pair.tolerance * size


def nodes_of(output: Tensor) -> Iterator[Any]:
    """Yield the autograd.Functions in an output's graph."""
    seen: set[Any] = set()
    waiting: list[Any] = [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            yield node
        waiting.extend(following for following, _ in node.next_functions)


def label_tensor(tensor: Tensor, sample: Sample) -> str:
    """Return what a kept tensor is: an input, an output, or something in between."""
    for text, other in known_tensors(sample):
        if other.shape == tensor.shape and torch.equal(other, tensor.to(other)):
            return text
    return f"tensor of shape {tuple(tensor.shape)}"


def known_tensors(sample: Sample) -> Iterator[tuple[str, Tensor]]:
    """Yield the inputs and outputs."""
    for leaf in sample.call.leaves:
        yield f"the input `{leaf.name}`", leaf.value
    several = len(sample.run.outputs) > 1
    for index, output in enumerate(sample.run.outputs):
        yield (f"output {index}" if several else "the output"), output.detach()


def forms_of(tensor: Tensor, own: str) -> Iterator[tuple[str, Tensor]]:
    """Yield functions of a tensor, with their text."""
    if tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]:
        yield f"the transpose of {own}", tensor.mT
    if tensor.is_complex():
        yield f"conj() of {own}", tensor.conj()
    functions: list[tuple[str, Put]] = [
        ("the square of", torch.square),
        ("the root of", torch.sqrt),
        ("exp of", torch.exp),
        ("log of", torch.log),
        ("1 divided by", torch.reciprocal),
        ("1 minus", lambda t: 1 - t),
        ("minus", torch.neg),
        ("1/sqrt of", torch.rsqrt),
    ]
    for text, change in functions:
        yield f"{text} {own}", change(tensor)
    for axis in range(tensor.dim()):
        yield f"the reverse (axis {axis}) of {own}", tensor.flip(axis)
