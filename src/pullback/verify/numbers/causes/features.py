"""Known functions of a call's tensors, for recognising a factor or a term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor

from pullback.verify.numbers.causes.sample import Sample

FUNCTIONS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("{}", lambda t: t),
    ("{}**2", torch.square),
    ("1/{}", torch.reciprocal),
    ("1/{}**2", lambda t: t**-2),
    ("sqrt({})", torch.sqrt),
    ("1/sqrt({})", torch.rsqrt),
    ("{}**3", lambda t: t**3),
    ("exp({})", torch.exp),
    ("exp(-{})", lambda t: torch.exp(-t)),
    ("1 - {}", lambda t: 1 - t),
    ("1 + {}", lambda t: 1 + t),
    ("1 - {}**2", lambda t: 1 - t**2),
    ("1 + {}**2", lambda t: 1 + t**2),
    ("{0} * (1 - {0})", lambda t: t * (1 - t)),
    ("1/(1 + {}**2)", lambda t: 1 / (1 + t**2)),
    ("sin({})", torch.sin),
    ("cos({})", torch.cos),
    ("tanh({})", torch.tanh),
    ("1 - tanh({})**2", lambda t: 1 - torch.tanh(t) ** 2),
    ("sigmoid({})", torch.sigmoid),
    ("1 - sigmoid({})", lambda t: torch.sigmoid(-t)),
    ("sigmoid'({})", lambda t: torch.sigmoid(t) * torch.sigmoid(-t)),
    ("log({})", torch.log),
    ("|{}|", torch.abs),
    ("sign({})", torch.sign),
    ("exp(-{}**2/2)", lambda t: torch.exp(-t * t / 2)),
]
CENTRED = ("({0} - mean({0}))", lambda t: t - t.mean(-1, keepdim=True) if t.dim() else t)


def features(sample: Sample, like: Tensor, indices: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield functions of the inputs and outputs that fit elements of a tensor, with their text.

    Args:
        sample: where the inputs and outputs are taken from.
        like: they are broadcast to its shape.
        indices: of its flattened elements.
    """
    fitted: list[tuple[str, Tensor]] = []
    for name, tensor in tensors(sample):
        with suppress(RuntimeError):
            fitted.append((name, tensor.double().expand(like.shape)))
    single = [
        (text.format(name), function(tensor).reshape(-1)[indices])
        for text, function in [*FUNCTIONS, CENTRED]
        for name, tensor in fitted
    ]
    single = [(text, value) for text, value in single if value.isfinite().all()]
    yield from single
    for name, tensor in fitted:
        own = tensor.reshape(-1)[indices]
        yield from ((f"{name} * {text}", own * value) for text, value in single)


def tensors(sample: Sample) -> Iterator[tuple[str, Tensor]]:
    """Yield the inputs and outputs with short names."""
    several = len(sample.run.outputs) > 1
    for index, output in enumerate(sample.run.outputs):
        if output.is_floating_point():
            yield (f"output{index}" if several else "y"), output.detach()
    for leaf in sample.call.leaves:
        if leaf.value.is_floating_point():
            yield leaf.name, leaf.value


def recognise(
    values: Tensor, sample: Sample, like: Tensor, indices: Tensor, tolerance: float
) -> tuple[str, float] | None:
    """Return a function f and a constant c with values = c f, if one is known."""
    size = float(values.norm())
    if len(values) < 2 or size == 0:
        return None
    allowed = max(100 * tolerance, 1e-5) * size
    if float((values - values.mean()).norm()) <= allowed:
        return "1", float(values.mean())
    for text, feature in features(sample, like, indices):
        c = float(values @ feature) / max(float(feature @ feature), 1e-300)
        if float((values - c * feature).norm()) <= allowed:
            return text, c
    return None


def format_multiple(c: float, text: str) -> str:
    """Write c times f."""
    if text == "1":
        return f"{c:.4g}"
    if abs(c - 1) < 1e-4:
        return text
    return f"-{text}" if abs(c + 1) < 1e-4 else f"{c:.4g} * {text}"
