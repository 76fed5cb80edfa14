"""Random formulas in index notation, each with the same by PyTorch on a grid of all indices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

SIZES = {"n": 4, "m": 3, "d": 2, "p": 2}
TENSORS = {"x": ("n", "d"), "y": ("m", "d"), "s": ("n",), "t": ("m",), "k": ("p",)}
INDEX = "idx"  # idx[n] says where in t
LINE = "(x[n, d], y[m, d], s[n], t[m], k[p], idx[n]: int64) -> z[{outputs}] = {text}"
# The index of a reduction that is no dimension runs as far as its plain read says.
NEW = {"r": "s", "q": "t"}
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh({})": torch.tanh,
    "sin({})": torch.sin,
    "exp(-({})**2)": lambda x: torch.exp(-(x**2)),
    "sqrt(1 + ({})**2)": lambda x: torch.sqrt(1 + x**2),
    "-({})": torch.neg,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "({} + {})": torch.add,
    "({} - {})": torch.sub,
    "({}*{})": torch.mul,
    "{}/(2 + tanh({}))": lambda x, y: x / (2 + torch.tanh(y)),
    "maximum({}, {})": torch.maximum,
}
REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "max": lambda x: x.max(-1).values,
    "min": lambda x: x.min(-1).values,
}


@dataclass(frozen=True)
class Grid:
    """The inputs, and the value of each index in scope along an axis of its own."""

    tensors: dict[str, Tensor]
    scope: tuple[str, ...]

    def size(self, index: str) -> int:
        own = TENSORS[NEW[index]][0] if index in NEW else index
        return SIZES[own]

    def index(self, name: str) -> Tensor:
        """The values of an index, along its axis."""
        place = self.scope.index(name)
        shape = [1] * len(self.scope)
        shape[place] = self.size(name)
        return torch.arange(self.size(name)).reshape(shape)

    def full(self, value: Tensor) -> Tensor:
        return value.expand([self.size(name) for name in self.scope])

    def read(self, name: str, *places: Tensor) -> Tensor:
        """The elements at some places, 0 outside."""
        tensor = self.tensors[name]
        inside = torch.tensor(True)
        held: list[Tensor] = []
        for place, extent in zip(places, tensor.shape, strict=True):
            inside = inside & (place >= 0) & (place < extent)
            held.append(place.clamp(0, extent - 1))
        return torch.where(inside, tensor[tuple(held)], 0.0)


Run = Callable[[Grid], Tensor]


@dataclass(frozen=True)
class Random:
    """An expression as text, and what computes it on a grid."""

    text: str
    run: Run
    free: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Formula:
    """A formula of the output's indices."""

    outputs: tuple[str, ...]
    body: Random

    @property
    def line(self) -> str:
        return LINE.format(outputs=", ".join(self.outputs), text=self.body.text)

    def __repr__(self) -> str:
        return self.line

    def reference(self, *inputs: Tensor) -> Tensor:
        names = (*TENSORS, INDEX)
        grid = Grid(dict(zip(names, inputs, strict=True)), self.outputs)
        return grid.full(self.body.run(grid)).clone()


def inputs() -> list[Tensor]:
    """Return tensors without ties, the whole numbers last."""
    source = torch.Generator().manual_seed(5)
    made = [
        torch.randn([SIZES[d] for d in dims], generator=source, dtype=torch.float64)
        for dims in TENSORS.values()
    ]
    return [*made, torch.randint(SIZES["m"], (SIZES["n"],), generator=source)]


def leaves(scope: Sequence[str]) -> st.SearchStrategy[Random]:
    """Reads whose indices are in scope, numbers, and indices as numbers."""
    found = [Random("0.5", lambda _: torch.tensor(0.5, dtype=torch.float64))]
    found += [index_as_number(index) for index in scope]
    for name, dims in TENSORS.items():
        if set(dims) <= set(scope):
            found.append(plain(name, dims))
    for index, name in NEW.items():
        if index in scope:
            found.append(plain(name, (index,)))
    if "n" in scope:
        found += [gathered(), shifted("s", "n", 1), shifted("s", "n", -1), *divided()]
    if {"n", "p"} <= set(scope):
        found.append(windowed())
    return st.sampled_from(found)


def index_as_number(index: str) -> Random:
    return Random(
        f"0.1*{index}", lambda grid: 0.1 * grid.index(index).double(), frozenset((index,))
    )


def plain(name: str, dims: Sequence[str]) -> Random:
    def run(grid: Grid) -> Tensor:
        return grid.read(name, *(grid.index(dim) for dim in dims))

    return Random(f"{name}[{', '.join(dims)}]", run, frozenset(dims))


def gathered() -> Random:
    def run(grid: Grid) -> Tensor:
        return grid.read("t", grid.tensors[INDEX][grid.index("n")])

    return Random(f"t[{INDEX}[n]]", run, frozenset("n"))


def shifted(name: str, index: str, by: int) -> Random:
    sign = "+" if by > 0 else "-"
    return Random(
        f"pad({name}[{index} {sign} {abs(by)}])",
        lambda grid: grid.read(name, grid.index(index) + by),
        frozenset((index,)),
    )


def windowed() -> Random:
    return Random(
        "pad(s[n - p])",
        lambda grid: grid.read("s", grid.index("n") - grid.index("p")),
        frozenset("np"),
    )


def divided() -> list[Random]:
    """Reads at places that are divided by a number, or taken modulo one."""
    places: dict[str, Callable[[Tensor], Tensor]] = {
        "s[n//2]": lambda n: n // 2,
        "pad(s[(n + 3)//2])": lambda n: (n + 3) // 2,
        "pad(s[(2 - n)//3])": lambda n: (2 - n) // 3,
        "pad(s[n//2 + n % 2])": lambda n: n // 2 + n % 2,
        "s[(-n) % 3]": lambda n: -n % 3,
        "s[(4 - n) % 2]": lambda n: (4 - n) % 2,
        "pad(s[(n//2) % 3])": lambda n: n // 2 % 3,
        "pad(s[n + 1 - 2*(n % 2)])": lambda n: n + 1 - 2 * (n % 2),
        "pad(s[3*((n + 1)//2 % 2) + n % 3])": lambda n: 3 * ((n + 1) // 2 % 2) + n % 3,
    }
    return [
        Random(text, lambda grid, at=at: grid.read("s", at(grid.index("n"))), frozenset("n"))
        for text, at in places.items()
    ]


@st.composite
def expressions(draw: st.DrawFn, scope: tuple[str, ...], depth: int) -> Random:
    """An expression of some of the indices in scope."""
    kinds = ["leaf"] if depth == 0 else ["leaf", "unary", "binary", "binary", "where", "reduction"]
    inner = functools.partial(expressions, scope, depth - 1)
    match draw(st.sampled_from(kinds)):
        case "unary":
            text, function = draw(st.sampled_from(sorted(UNARY.items())))
            x = draw(inner())
            return Random(text.format(x.text), lambda grid: function(x.run(grid)), x.free)
        case "binary":
            text, both = draw(st.sampled_from(sorted(BINARY.items())))
            x, y = draw(inner()), draw(inner())
            return Random(
                text.format(x.text, y.text),
                lambda grid: both(x.run(grid), y.run(grid)),
                x.free | y.free,
            )
        case "where" if scope:
            return draw(selections(scope, depth))
        case "reduction":
            return draw(reductions(scope, depth))
        case _:
            return draw(leaves(scope))


@st.composite
def selections(draw: st.DrawFn, scope: tuple[str, ...], depth: int) -> Random:
    one, two = draw(st.sampled_from(scope)), draw(st.sampled_from(scope))
    x, y = draw(expressions(scope, depth - 1)), draw(expressions(scope, depth - 1))

    def run(grid: Grid) -> Tensor:
        return torch.where(grid.index(one) <= grid.index(two), x.run(grid), y.run(grid))

    free = x.free | y.free | {one, two}
    return Random(f"where({one} <= {two}, {x.text}, {y.text})", run, free)


@st.composite
def reductions(draw: st.DrawFn, scope: tuple[str, ...], depth: int) -> Random:
    index = draw(st.sampled_from([i for i in (*SIZES, *NEW) if i not in scope] or ["z"]))
    if index == "z":
        return draw(leaves(scope))
    name = draw(st.sampled_from(sorted(REDUCTIONS)))
    inside = (*scope, index)
    body = draw(expressions(inside, depth - 1))
    if index in NEW or index not in body.free:
        # What an index runs over has to be said by a read.
        own = plain(NEW[index], (index,)) if index in NEW else index_as_number(index)
        body = Random(
            f"({body.text} + {own.text})",
            lambda grid, body=body: body.run(grid) + own.run(grid),
            body.free | own.free,
        )

    def run(grid: Grid) -> Tensor:
        wider = Grid(grid.tensors, (*grid.scope, index))
        return REDUCTIONS[name](wider.full(body.run(wider)))

    return Random(f"{name}[{index}]({body.text})", run, body.free - {index})


@st.composite
def formulas(draw: st.DrawFn) -> Formula:
    """A formula of none to two indices."""
    outputs = draw(st.sampled_from([("n",), ("n", "m"), ("m",), ("n", "d"), ()]))
    return Formula(outputs, draw(expressions(outputs, 3)))
