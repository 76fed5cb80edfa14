"""The rows of the matrix: operators of every kind, each with a reference in plain PyTorch.

Every kind has two or three of them: a product that broadcasts, a linear map with an optional bias,
one that saves its output, one in NumPy, one with two outputs, filters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import in_cpp
import in_formulas
import in_index
import in_python
import in_recurrences
import taken_over
import torch
from torch import Tensor

import pullback as pb
from pullback.define.operator import Autocast

# Why a derivative cannot be had a second time, or at all in forward mode.
Limit = Literal["native", "numpy", "intermediate", "foreign"]


@dataclass(frozen=True)
class Drawn:
    """A tensor of an example: its shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One operator of the matrix.

    Attributes:
        kind: the column of the table in the docs that it stands in.
        name: of the operator, without the namespace.
        define: registers it under a name, with an autocast policy.
        reference: the same in PyTorch, written without looking at the kernel.
        examples: arguments; the first is the plain one.
        limits: why something that others can do raises here.
    """

    kind: str
    name: str
    define: Callable[[str, Autocast], pb.Operator]
    reference: Callable[..., Any]
    examples: tuple[tuple[Drawn | float | None, ...], ...]
    limits: frozenset[Limit] = field(default_factory=frozenset[Limit])

    @functools.cached_property
    def operator(self) -> pb.Operator:
        """The operator, without an autocast policy."""
        return self.define(self.name, "as_is")

    @functools.cache  # noqa: B019  (rows live as long as the tests)
    def casting(self, policy: Autocast) -> pb.Operator:
        """The operator with an autocast policy."""
        return self.operator if policy == "as_is" else self.define(f"{self.name}_{policy}", policy)

    @property
    def is_function(self) -> bool:
        """Whether an `autograd.Function` computes its derivatives, or what amounts to one."""
        return self.name.startswith(("fn_", "own_"))

    @property
    def label(self) -> str:
        """What a test of it is called."""
        return f"{self.kind}-{self.name}".replace(" ", "_")

    def arguments(
        self, seed: int, example: int = 0, *, grow: int = 0, dtype: torch.dtype = torch.float64
    ) -> tuple[Any, ...]:
        """Return an example's arguments, every size larger than 1 being `grow` larger."""
        generator = torch.Generator().manual_seed(seed)

        def draw(item: object) -> object:
            if not isinstance(item, Drawn):
                return item
            shape = [size + grow * (size > 1) for size in item.shape]
            return (torch.rand(shape, dtype=torch.float64, generator=generator) + 0.5).to(dtype)

        return tuple(map(draw, self.examples[example]))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = (x[:, None, :] * weight[None]).sum(-1)
    return product if bias is None else product + bias


def sin_cos(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.cos()


def convolve(x: Tensor, k: Tensor) -> Tensor:
    """Full convolution of two rows, by its definition."""
    n, m = x.shape[0], k.shape[0]
    padded = torch.nn.functional.pad(x, (m - 1, m - 1))
    return torch.stack([(padded[i : i + m] * k.flip(0)).sum() for i in range(n + m - 1)])


def correlate(x: Tensor, k: Tensor) -> Tensor:
    return torch.stack([(x[i : i + len(k)] * k).sum() for i in range(len(x) - len(k) + 1)])


def swish(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def lru(a: Tensor, x: Tensor, h0: Tensor) -> Tensor:
    states = [h0]
    for factor, value in zip(a.unbind(-2), x.unbind(-2), strict=True):
        states.append(factor * states[-1] + value)
    return torch.stack(states[1:], -2)


def filtered(x: Tensor, c: Tensor) -> Tensor:
    """An autoregressive filter, of any order."""
    found: list[Tensor] = []
    for value in x.unbind(-1):
        earlier = found[: -len(c) - 1 : -1]
        found.append(value - sum((c[k] * y for k, y in enumerate(earlier)), value * 0) / 4)
    return torch.stack(found, -1)


def averaged(x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """A moving average, and its end."""
    found = [x[..., 0] + r * 0]
    for value in x[..., 1:].unbind(-1):
        found.append(r * found[-1] / 2 + value)
    return torch.stack(found, -1), found[-1].clone()


D = Drawn
PRODUCT = ((D((3, 4)), D((4,))), (D((3, 1)), D((2, 3, 4))))
LINEAR = ((D((3, 4)), D((2, 4)), D((2,))), (D((3, 4)), D((2, 4)), None))
ONE = ((D((3, 4)),), (D(()),))
ROWS_OF = {
    "product": (torch.mul, PRODUCT),
    "linear": (linear, LINEAR),
    "exp": (torch.exp, ONE),
    "sin": (torch.sin, ONE),
    "sin_cos": (sin_cos, ONE),
    "convolve": (convolve, ((D((5,)), D((3,))),)),
    "swish": (swish, ONE),
    "softmax": (lambda x: torch.softmax(x, -1), ((D((3, 4)),), (D((4,)),))),
    "correlate": (correlate, ((D((5,)), D((3,))),)),
    "lru": (lru, ((D((4, 3)), D((4, 3)), D((3,))), (D((2, 3, 2)), D((3, 2)), D((2, 2))))),
    "filtered": (filtered, ((D((5,)), D((2,))),)),
    "averaged": (averaged, ((D((2, 4)), D((2,))), (D((4,)), D(())))),
}


def row(kind: str, name: str, define: Any, *limits: Limit, of: str | None = None) -> Row:
    """Return a row of one of the functions above."""
    reference, examples = ROWS_OF[of or name.split("_", 1)[1]]
    return Row(
        kind=kind,
        name=name,
        define=define,
        reference=reference,
        examples=examples,
        limits=frozenset(limits),
    )


ROWS = (
    row("formula", "formula_product", in_formulas.product),
    row("formula", "formula_exp", in_formulas.exp),
    row("formula", "formula_sin_cos", in_formulas.sin_cos),
    row("formula", "formula_swish", in_formulas.swish),
    row("index notation", "index_softmax", in_index.softmax),
    row("index notation", "index_linear", in_index.linear),
    row("index notation", "index_correlate", in_index.correlate),
    row("recurrence", "recurrent_lru", in_recurrences.lru),
    row("recurrence", "recurrent_filtered", in_recurrences.filtered),
    row("recurrence", "recurrent_averaged", in_recurrences.averaged),
    row("C++", "cpp_product", in_cpp.product),
    row("C++", "cpp_linear", in_cpp.linear, "native"),
    row("C++", "cpp_exp", in_cpp.exp),
    row("C++", "cpp_sin_cos", in_cpp.sin_cos),
    row("Python", "py_product", in_python.product),
    row("Python", "py_linear", in_python.linear),
    row("Python", "py_sin_cos", in_python.sin_cos),
    row("NumPy", "np_sin", in_python.numpy_sin),
    row("NumPy", "np_convolve", in_python.numpy_convolve, "native"),
    row("Function", "fn_product", in_python.of(in_python.Product)),
    row("Function", "fn_linear", in_python.of(in_python.Linear)),
    row("Function", "fn_exp", in_python.of(in_python.Exp)),
    row("Function", "fn_sin_cos", in_python.of(in_python.SinCos)),
    row("Function, NumPy", "fn_convolve", in_python.of(in_python.Convolve), "numpy"),
    row("Function, NumPy", "fn_sin", in_python.of(in_python.Sin)),
    row("Function, intermediate", "fn_swish", in_python.of(in_python.Swish), "intermediate"),
    row(
        "Function, intermediate",
        "fn_kept_swish",
        in_python.of(in_python.SwishKept),
        "intermediate",
        of="swish",
    ),
    row("`Library`", "lib_product", taken_over.library_product),
    row("`Library`", "lib_linear", taken_over.library_linear),
    row("`custom_op`", "op_sin", taken_over.plain_sin),
    row("`custom_op`", "op_sin_cos", taken_over.plain_sin_cos),
    row("`custom_op`, derivative", "own_product", taken_over.own_product),
    row("`custom_op`, derivative", "own_exp", taken_over.own_exp),
    row("`custom_op`, derivative", "own_sin_cos", taken_over.own_sin_cos),
    row("C++ `autograd::Function`", "ext_product", taken_over.extension_product, "foreign"),
)
KINDS = tuple(dict.fromkeys(each.kind for each in ROWS))
BY_NAME = {each.name: each for each in ROWS}
# The first of each kind, where one of a kind will do.
FIRST = tuple(next(each for each in ROWS if each.kind == kind) for kind in KINDS)
# What is foreign is compiled with PyTorch's headers.
OWN = tuple(each for each in ROWS if "foreign" not in each.limits)
OWN_FIRST = tuple(each for each in FIRST if each in OWN)
