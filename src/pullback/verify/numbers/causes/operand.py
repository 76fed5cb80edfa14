"""The derivative belongs to other operands: one of them transposed, flipped, or left out."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor

from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample
from pullback.verify.source import Text

TRANSPOSES = ("t", "T", "mT", "mH", "H", "transpose", "swapaxes", "permute")
TOO_MANY = (
    "`{w}` is transposed in the gradient of `{x}`, and should not be; it only fits because `{w}` "
    "is square",
    "use {w} as it is: the gradient of x @ w.mT is grad @ w",
)
# Texts that name `w`, and the function that replaces it.
Change = tuple[str, str, Callable[[Tensor], Tensor]]


class WrongOperand(Hypothesis):
    """Backward is right for another value of an input: evaluated with it, the two agree."""

    order = 26

    def explain(self, sample: Sample) -> Cause | None:
        """Try other values for each input."""
        leaves = sample.call.leaves
        for index, own in enumerate(leaves):
            if not (own.value.is_floating_point() or own.value.is_complex()):
                continue
            for text, help, change in [*changes(own.value), *others(sample, index)]:
                with suppress(Exception):
                    value = change(own.value)
                    if value.shape != own.value.shape or torch.equal(value, own.value):
                        continue
                    values = [leaf.value for leaf in leaves]
                    values[index] = value.clone()
                    if sample.fits(sample.call.with_values(values)):
                        many = "without transpose" in text and is_transposed(sample, own.name)
                        said, cure = TOO_MANY if many else (text, help)
                        return Cause(
                            name="operand",
                            text=said.format(w=own.name, x=sample.name),
                            help=cure.format(w=own.name, x=sample.name),
                            key=(index, text),
                        )
        return None


def is_transposed(sample: Sample, name: str) -> bool:
    """Tell whether backward transposes an input that has its name there."""
    backward = sample.call.target.parts.get("backward")
    nodes = ast.walk(Text(backward).tree) if backward else ()
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in TRANSPOSES
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        for node in nodes
    )


def changes(value: Tensor) -> Iterator[Change]:
    """Yield what backward may have done to an operand, or forgotten."""
    if value.dim() >= 2 and value.shape[-1] == value.shape[-2]:
        yield (
            "`{w}` is used without transpose in the gradient of `{x}`; "
            "it only fits because `{w}` is square",
            "use {w}.mT: the gradient of x @ w is grad @ w.mT",
            lambda t: t.mT,
        )
    if value.dim() == 4 and value.shape[0] == value.shape[1]:
        yield (
            "`{w}` is used without exchanging its axes 0 and 1 in the gradient of `{x}`",
            "use {w}.transpose(0, 1)",
            lambda t: t.transpose(0, 1),
        )
    yield from reversals(value.dim())
    yield "conj() of `{w}` is missing in the gradient of `{x}`", "use {w}.conj()", torch.conj
    for number, what in ((1.0, "is missing"), (0.0, "does not count")):
        yield (
            f"the factor `{{w}}` {what} in the gradient of `{{x}}`: it is as if `{{w}}` were "
            f"{number:.0f}",
            "use `{w}` in the gradient of `{x}`: save it in forward",
            lambda t, number=number: torch.full_like(t, number),
        )
    yield "the sign of `{w}` is wrong in the gradient of `{x}`", "use -{w}, or {w}", torch.neg
    yield "`{w}` is used as its absolute value in the gradient of `{x}`", "use {w}", torch.abs
    yield from selections(value.dim())


def reversals(dims: int) -> Iterator[Change]:
    """Yield reversed axes: all of the last ones, then each."""
    for count in range(1, dims + 1):
        axes = list(range(dims - count, dims))
        yield (
            "the kernel is flipped: the gradient of `{x}` uses `{w}` in reversed order along "
            f"axes {axes} (convolution for correlation)",
            f"flip {{w}} along {axes} in backward, or do not: the gradient of a correlation is a "
            "convolution",
            lambda t, axes=axes: t.flip(axes),
        )
    for axis in range(dims - 1):
        yield (
            f"the gradient of `{{x}}` uses `{{w}}` reversed along axis {axis}",
            f"look for a flip of axis {axis}",
            lambda t, axis=axis: t.flip(axis),
        )


def selections(dims: int) -> Iterator[Change]:
    """Yield what a wrong index makes of an operand."""
    for by in (1, -1):
        for axis in range(dims):
            yield (
                f"the gradient of `{{x}}` uses `{{w}}` off by one along axis {axis}",
                f"look at the indices of axis {axis}",
                lambda t, by=by, axis=axis: t.roll(by, axis),
            )
    for axis in range(dims):
        yield (
            f"the gradient of `{{x}}` uses only the first `{{w}}` along axis {axis}",
            f"use all of {{w}} along axis {axis}",
            lambda t, axis=axis: t.select(axis, 0).unsqueeze(axis).expand_as(t),
        )


def others(sample: Sample, index: int) -> Iterator[Change]:
    """Yield other tensors of the call in place of one."""
    for other, leaf in enumerate(sample.call.leaves):
        if other != index and leaf.value.shape == sample.call.leaves[index].value.shape:
            yield (
                f"the gradient of `{{x}}` uses `{leaf.name}` where it needs `{{w}}`",
                f"use `{{w}}` there: the wrong tensor is saved, or `{leaf.name}` and `{{w}}` are "
                "exchanged in save_for_backward",
                lambda _, value=leaf.value: value,
            )
    for number, output in enumerate(sample.run.outputs):
        if output.shape == sample.call.leaves[index].value.shape:
            yield (
                f"the gradient of `{{x}}` is that at the output {number} instead of at `{{w}}`: "
                "the wrong tensor is saved",
                "save `{w}`, the input",
                lambda t, output=output: output.detach().to(t),
            )
