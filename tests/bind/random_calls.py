"""Calls operators of the table with arguments of every kind.

It prints how many calls were accepted and refused, and stops with the first that went wrong.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import math
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from operators import TABLE, Case, allowed, as_tuple, draw
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

Refusals = (RuntimeError, TypeError, ValueError)  # PullbackError is a RuntimeError
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.complex128, torch.int64, torch.int32, torch.uint8, torch.bool),
)
SIZES = (0, 1, 2, 2, 3, 3)


class Subclass(Tensor):
    """A tensor with nothing of its own."""


class Watching(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204  # pyright: ignore
        return func(*args, **(kwargs or {}))  # pyright: ignore


def tensor(rng: random.Random) -> Tensor:
    """Any tensor."""
    shape = [rng.choice(SIZES) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 4)))]
    dtype = rng.choice(DTYPES[:2] if rng.random() < 0.7 else DTYPES)
    made = torch.randint(-3, 4, shape).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        made = made + torch.rand(shape).to(dtype)
    return dressed(rng, made)


def dressed(rng: random.Random, made: Tensor) -> Tensor:
    """The tensor with another layout, device, class or state, most often as it is."""
    floating = made.is_floating_point() or made.is_complex()
    forms: list[Callable[[], Tensor]] = [
        lambda: made.mT if made.dim() > 1 else made,
        lambda: made[..., ::2] if made.dim() else made,
        lambda: made[:1].expand(made.shape) if made.dim() else made,
        lambda: made.conj() if made.is_complex() else made,
        lambda: (
            torch._neg_view(made)  # pyright: ignore[reportPrivateImportUsage]
            if floating
            else made
        ),
        lambda: made.to("meta"),
        made.to_sparse,
        lambda: made.as_subclass(Subclass),
        lambda: nn.Parameter(made) if floating else made,
        lambda: made.clone().requires_grad_() if floating else made,
        lambda: made.requires_grad_() * 1 if floating else made,
        lambda: made * float("nan") if floating else made,
        lambda: made * float("inf") if floating else made,
        lambda: made[None],
        made.flatten,
        lambda: made.float() if floating and not made.is_complex() else made,
    ]
    return rng.choice(forms)() if rng.random() < 0.4 else made


THINGS: tuple[Callable[[random.Random], object], ...] = (
    *[tensor] * 8,
    lambda rng: None,
    lambda rng: rng.choice((0, 1, -1, 3, 2**31, 2**62, 2**63, -(2**63), 10**30)),
    lambda rng: rng.choice((0.5, -1.0, float("nan"), float("inf"), 1e300, 2.0)),
    lambda rng: rng.choice((True, False)),
    lambda rng: rng.choice(("plain", "double", "", "x" * 1000, "\0", "é", "\ud800")),
    lambda rng: rng.choice(([], [1.0], [torch.ones(2)], (), {}, {1}, [None], [[1.0, 2.0]])),
    lambda rng: np.ones(rng.choice(((), (2,), (2, 3)))),
    lambda rng: rng.choice((np.float32(2), np.int64(3), np.bool_(True), 1j)),
    lambda rng: rng.choice((object(), len, type, Ellipsis, b"bytes")),
)


def arguments(rng: random.Random, case: Case) -> tuple[list[object], dict[str, object]]:
    """Arguments of a call: an example with some of them replaced, given in any way."""
    example = rng.choice(case.examples)
    values: list[object] = list(draw(example, rng.choice(case.dtypes), rng.randrange(2**31)))
    values = [
        dressed(rng, v) if isinstance(v, Tensor) and rng.random() < 0.5 else v for v in values
    ]
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        values[rng.randrange(len(values))] = rng.choice(THINGS)(rng)
    if rng.random() < 0.05:
        values.pop(rng.randrange(len(values)))
    if rng.random() < 0.05:
        values.insert(rng.randrange(len(values) + 1), rng.choice(THINGS)(rng))
    names = [parameter.name for parameter in case.operator.line.parameters]
    first = rng.randrange(len(values) + 1) if rng.random() < 0.3 else len(values)
    keywords = dict(zip(names[first:], values[first:], strict=False))
    if rng.random() < 0.03:
        keywords[rng.choice(("nothing", "out", names[0], "", "output_mask"))] = rng.choice(THINGS)(
            rng
        )
    return values[:first], keywords


MODES: tuple[Callable[[], Any], ...] = (
    *[contextlib.nullcontext] * 6,
    torch.no_grad,
    torch.inference_mode,
    Watching,
    lambda: FakeTensorMode(allow_non_fake_inputs=True),
)


def plain(value: object) -> object:
    """What the reference gets for an argument."""
    if isinstance(value, Tensor):
        return value.detach().as_subclass(Tensor)
    alone = isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0
    return np.asarray(value).item() if alone else value


def compare(case: Case, args: list[object], keywords: dict[str, object], returned: object) -> None:
    """Stop unless an accepted call gave what the reference gives."""
    bound = inspect.signature(case.operator).bind(*args, **keywords)
    values = tuple(map(plain, bound.args + tuple(bound.kwargs.values())))
    # PyTorch takes a tensor of one element for a number, and cuts it to an int where it wants one.
    types = {
        p.name: {"int": int, "float": float, "bool": bool}.get(p.type, str)
        for p in case.operator.line.scalars
    }
    values = tuple(
        types[name](complex(v.item()).real) if isinstance(v, Tensor) and name in types else v
        for name, v in zip(bound.arguments, values, strict=True)
    )
    expected = case.expected(*values)
    found = [output.detach().as_subclass(Tensor) for output in as_tuple(returned)]
    assert len(found) == len(expected)
    for output, wanted in zip(found, expected, strict=True):
        assert (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
        if not (output.is_meta or isinstance(output, FakeTensor)):
            finite = tuple(v.nan_to_num() if isinstance(v, Tensor) else v for v in values)
            most = allowed(case, finite)
            most = most if math.isfinite(most) else 0
            torch.testing.assert_close(output, wanted, rtol=0, atol=most, equal_nan=True)


def call(rng: random.Random, case: Case) -> str:
    """Make one call; return what came of it."""
    args, keywords = arguments(rng, case)
    through: Any = rng.choice((case.operator, case.operator, case.operator.overload))
    mode = rng.choice(MODES)
    try:
        with mode():
            returned = through(*args, **keywords)
    except Refusals as error:
        return type(error).__name__
    if not any(isinstance(v, FakeTensor) for v in as_tuple(returned)):
        compare(case, args, keywords, returned)
    outputs = [v for v in as_tuple(returned) if v.requires_grad and not v.is_meta]
    if outputs and rng.random() < 0.5 and not isinstance(outputs[0], FakeTensor):
        # A backward may refuse too: PyTorch's convolution takes no kernel of size 0.
        with contextlib.suppress(*Refusals):
            torch.autograd.backward(outputs, [torch.ones_like(v) for v in outputs])
        return "accepted, with backward"
    return "accepted"


def make_calls(seed: int, count: int) -> None:
    """Make so many calls and print what came of them."""
    warnings.simplefilter("ignore")
    seen: collections.Counter[str] = collections.Counter()
    for step in range(count):
        rng = random.Random(f"{seed} {step}")
        torch.manual_seed(rng.randrange(2**31))
        case = rng.choice(TABLE)
        try:
            seen[call(rng, case)] += 1
        except BaseException:
            sys.stderr.write(f"call {step} of seed {seed}: {case.operator}\n")
            raise
    sys.stdout.write("\n".join(f"{number} {what}" for what, number in seen.most_common()) + "\n")
