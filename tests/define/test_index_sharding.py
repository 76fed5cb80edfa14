"""Sharding rules, each tried out: the parts of the inputs give the parts of the outputs."""

from __future__ import annotations

import functools
import operator as operators
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pullback.bind.merge import LAST
from pullback.define.math import derived, extents
from pullback.define.math.formula import Formula
from pullback.define.math.merging import MergedPlacements, of_part
from pullback.define.math.sharding import rules
from pullback.define.sharding import Partial, Placement, Placements, Replicate, Shard, format_table
from tests.define.as_lines import NAMES, made, operator
from tests.define.dense import Dense
from tests.define.indexed import SIZES
from tests.telling import telling

# A process's tensors by name, and the sizes of its dimensions.
Process = tuple[dict[str, Tensor], dict[str, int]]
WHOLE = {**SIZES, "...": 5, "3": 3}
ORDERS = ((), ("backward",), ("jvp",), ("backward", "backward"), ("backward", "jvp"))
SPLIT = {
    **{("linear", "n"): "shard(0)", ("linear", "o"): "shard(1)", ("linear", "i"): "partial(sum)"},
    **{("sqdist", "n"): "shard(0)", ("sqdist", "m"): "shard(1)", ("sqdist", "d"): "partial(sum)"},
    **{("gauss", "n"): "shard(0)", ("gauss", "m"): "partial(sum)", ("gauss", "d"): None},
    **{("gauss", "partial v"): "partial(sum)"},
    **{("softmax", "..."): "shard(-2)", ("softmax", "n"): "shard(-1)"},
    **{("gather", "n"): "shard(0)", ("gather", "d"): "shard(1)", ("gather", "v"): "all"},
    **{("chamfer", "n"): "shard(0)", ("chamfer", "m"): "partial(min)", ("chamfer", "d"): None},
    **{("rowmax", "n"): "shard(0)", ("rowmax", "m"): "partial(max)"},
    **{("correlate", index): None for index in "hwpq"},
    **{("conv2d", "b"): "shard(0)", ("conv2d", "a"): "shard(1)", ("conv2d", "c"): "partial(sum)"},
    **{("attention", "s"): "shard(0)", ("attention", "d"): "shard(1)", ("attention", "t"): "all"},
    **{
        ("rownorm", "n"): "shard(-1)",
        ("layernorm", "n"): "shard(-1)",
        ("pair", "n"): None,
        ("hinge", "n"): None,
    },
    **{("cumsum", "n"): None, ("weighted", "n"): "all", ("entropy", "v"): "all"},
}


def drawn(indexed: Formula, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = known(indexed, WHOLE)
    found: dict[str, Tensor] = {}
    for tensor in indexed.line.tensors:
        shape = [sizes[label.rstrip("'")] for label in tensor.labels]
        if tensor.dtype == "int64":
            found[tensor.name] = torch.randint(WHOLE["v"], shape, generator=generator)
        else:
            found[tensor.name] = torch.randn(shape, generator=generator, dtype=torch.float64)
    return found | {scalar.name: torch.tensor(3) for scalar in indexed.line.scalars}


def known(indexed: Formula, sizes: dict[str, int]) -> dict[str, int]:
    """Return the sizes with those that follow from others."""
    own = {index: extents.evaluate_size(size, sizes) for index, size in indexed.sizes.items()}
    return {**sizes, **{index: int(size) for index, size in own.items() if size is not None}}


def evaluated(indexed: Formula, tensors: dict[str, Tensor], sizes: dict[str, int]) -> list[Tensor]:
    dense = Dense(tensors, known(indexed, sizes), indexed.ranges)
    pairs = zip(indexed.line.outputs, indexed.nodes, strict=True)
    return [dense(node, output.labels).clone() for output, node in pairs]


def parts_of(tensor: Tensor, placement: Placement, ranks: int, seed: int) -> list[Tensor]:
    """Return what each process has of a tensor: parts as `torch.chunk` makes them."""
    match placement:
        case Replicate():
            return [tensor] * ranks
        case Shard(dim=dim):
            own = list(tensor.chunk(ranks, dim))
            return own + [tensor.narrow(dim, 0, 0)] * (ranks - len(own))
        case Partial():
            generator = torch.Generator().manual_seed(seed)
            shape = (ranks - 1, *tensor.shape)
            rest = torch.randn(shape, generator=generator, dtype=tensor.dtype)
            return [*rest, tensor - rest.sum(0)]


def together(parts: list[Tensor], placement: Placement) -> Tensor:
    match placement:
        case Replicate():
            assert all(torch.allclose(part, parts[0]) for part in parts)
            return parts[0]
        case Shard(dim=dim):
            return torch.cat(parts, dim)
        case Partial(by=by):
            fold = {"sum": operators.add, "max": torch.maximum, "min": torch.minimum}[by]
            return functools.reduce(fold, parts)


def simulated(
    indexed: Formula,
    tensors: dict[str, Tensor],
    rule: Placements,
    ranks: int,
    *,
    exchanging: bool = True,
) -> list[Tensor]:
    """Return the outputs as that many processes compute them.

    Args:
        indexed: the operator.
        tensors: its inputs.
        rule: how it is split.
        ranks: how many processes there are.
        exchanging: whether each computes statistics of its part before any of them is merged.
    """
    given = {
        name: parts_of(tensors[name], placement, ranks, k)
        for k, (name, placement) in enumerate(rule.inputs.items())
    }
    processes: list[Process] = []
    for rank in range(ranks):
        local = {**tensors, **{name: parts[rank] for name, parts in given.items()}}
        sizes = dict(WHOLE)
        for tensor in indexed.line.tensors:
            if isinstance(own := rule.inputs.get(tensor.name), Shard):
                label = tensor.labels[own.dim]
                sizes[label] = local[tensor.name].shape[own.dim]
                sizes[rule.split] = sizes[label]
        processes.append((local, sizes))
    if isinstance(rule, MergedPlacements):
        processes, indexed = merged(rule, processes, exchanging=exchanging), rule.merging.rest
    needs_elements = any(str(p) in ("partial(max)", "partial(min)") for p in rule.outputs)
    found = [
        evaluated(indexed, local, sizes)
        for local, sizes in processes
        if not (needs_elements and 0 in sizes.values())  # without elements there is no maximum
    ]
    outputs = zip(*found, strict=True)
    return [together(list(own), rule.outputs[k]) for k, own in enumerate(outputs)]


def merged(
    rule: MergedPlacements, processes: Sequence[Process], *, exchanging: bool
) -> list[Process]:
    """Return what processes have once all statistics are merged."""
    many = [sizes[rule.split] for _, sizes in processes]
    known: list[Process] = []
    for rank, (local, sizes) in enumerate(processes):
        first, every = (torch.tensor(sum(part)) for part in (many[:rank], many))
        numbers = {rule.merging.first: first, rule.merging.every: every}
        known.append(({**local, **numbers}, sizes))
    for level in rule.merging.levels:
        exchanged = level.own if exchanging else None
        if exchanged:
            for local, sizes in known:
                own = statistics_of(rule, exchanged, local, sizes)
                local |= {of_part(name): value for name, value in own.items()}
        for wave in level.waves:
            own = [
                {name: local[of_part(name)] for name in wave.statistics}
                | (of_formula(wave.rescaled, local, sizes) if wave.rescaled else {})
                if exchanged
                else statistics_of(rule, wave.direct, local, sizes)
                for local, sizes in known
            ]
            for name, by in wave.statistics.items():
                if most := wave.places.get(name):
                    for found, (local, _) in zip(own, known, strict=True):
                        has_it = torch.isclose(found[most], local[most], 0, 0, equal_nan=True)
                        found[name] = found[name].where(has_it, LAST)
                whole = together([found[name] for found in own], Partial(by))
                for local, _ in known:
                    local[name] = whole
    return known


def statistics_of(
    rule: MergedPlacements, formula: Formula, local: dict[str, Tensor], sizes: dict[str, int]
) -> dict[str, Tensor]:
    """Return what one process computes; of nothing a maximum is -inf."""
    if sizes[rule.split]:
        return of_formula(formula, local, sizes)
    kinds = {name: by for wave in rule.merging.waves for name, by in wave.statistics.items()}
    of = {o.name: [sizes[label] for label in o.labels] for o in formula.line.outputs}
    neutral = {"max": -torch.inf, "sum": 0.0, "min": LAST}
    dtypes = {name: torch.int64 if by == "min" else torch.float64 for name, by in kinds.items()}
    return {n: torch.full(of[n], neutral[kinds[n]], dtype=dtypes[n]) for n in of}


def of_formula(
    formula: Formula, local: dict[str, Tensor], sizes: dict[str, int]
) -> dict[str, Tensor]:
    names = (output.name for output in formula.line.outputs)
    return dict(zip(names, evaluated(formula, local, sizes), strict=True))


def accepted(indexed: Formula, wanted: Sequence[bool] | None = None) -> list[Placements]:
    return [rule for rule in rules(indexed, wanted) if rule.reason is None]


def assert_right(indexed: Formula, tensors: dict[str, Tensor], rule: Placements) -> None:
    whole = evaluated(indexed, tensors, WHOLE)
    levels = rule.merging.levels if isinstance(rule, MergedPlacements) else ()
    directly = [(2, False)] if any(level.own for level in levels) else []
    for ranks, exchanging in [(2, True), (4, True), *directly]:
        every = simulated(indexed, tensors, rule, ranks, exchanging=exchanging)
        for found, expected in zip(every, whole, strict=True):
            close = torch.allclose(found, expected, rtol=1e-9, atol=1e-9)
            assert close, f"{indexed.line} {rule} {ranks}"


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_accepted_split_is_right(name: str, seed: int) -> None:
    for kinds in ORDERS:
        indexed = operator(name, *kinds)
        tensors = drawn(indexed, seed)
        for rule in accepted(indexed):
            assert_right(indexed, tensors, rule)


PLACES = ("n - m + size(m) - 1", "n + m")


@pytest.mark.parametrize("place", telling({p: p for p in PLACES}, ["n - m + size(m) - 1"]))
def test_the_gradient_of_a_relative_bias_is_a_sum_over_parts_of_the_columns(
    place: str, seed: int
) -> None:
    """Places are counted through all processes, and nothing but numbers of rows is merged."""
    text = (
        "f(q[n, d], k[m, d], v[m, e], b[c]) -> o[n, e] = "
        f"s[n, m] = sum[d](q[n, d]*k[m, d]) + pad(b[{place}]); "
        "p[n, m] = exp(s[n, m] - max[r](s[n, r])); o = sum[m](p[n, m]*v[m, e])/sum[m](p[n, m])"
    )
    found = derived.backward(made(text))
    assert found
    tensors = drawn(found.formula, seed)
    for rule in accepted(found.formula):
        assert_right(found.formula, tensors, rule)
    outputs = by_split(rules(found.formula))["m"]
    assert outputs == "partial(sum), shard(0), shard(0), partial(sum)"


def test_a_wrong_split_is_noticed(seed: int) -> None:
    wrong = {
        "gauss": Placements(
            split="d", inputs={"x": Shard(1), "y": Shard(1), "v": Replicate()}, outputs=(Partial(),)
        ),
        "softmax": Placements(split="n", inputs={"x": Shard(1)}, outputs=(Shard(1),)),
        "rownorm": Placements(split="n", inputs={"x": Shard(1)}, outputs=(Shard(1),)),
        "linear": Placements(
            split="partial x",
            inputs={"x": Partial(), "w": Replicate(), "b": Replicate()},
            outputs=(Partial(),),
        ),
    }
    for name, rule in wrong.items():
        indexed = operator(name)
        with pytest.raises(AssertionError):
            assert_right(indexed, drawn(indexed, seed), rule)


def test_one_gradient_alone_is_split_right(seed: int) -> None:
    for name in NAMES:
        indexed = operator(name, "backward")
        count = len(indexed.nodes)
        for place in range(count):
            alone = replace(
                indexed,
                line=replace(indexed.line, outputs=(indexed.line.outputs[place],)),
                elements=(indexed.nodes[place],),
            )
            for rule in accepted(indexed, wanted=[k == place for k in range(count)]):
                own = replace(rule, outputs=(rule.outputs[place],))
                assert_right(alone, drawn(alone, seed), own)


def test_a_gradient_alone_may_be_split_where_both_may_not() -> None:
    found = rules(operator("attention", "backward"), wanted=[False, False, True])
    assert {rule.split for rule in found if rule.reason is None} > {"s", "d"}


@pytest.mark.parametrize(("name", "split"), SPLIT)
def test_useful_splits_are_accepted_and_dangerous_ones_refused(name: str, split: str) -> None:
    assert by_split(rules(operator(name)))[split] == SPLIT[name, split]


def by_split(found: list[Placements]) -> dict[str, str | None]:
    return {
        rule.split: None if rule.reason else ", ".join(map(str, rule.outputs)) for rule in found
    }


# A formula, what is split, what the output then is or why that is refused.
CASES = [
    ("f(x[n, m]) -> y[n] = 2*max[m](x[n, m])", "m", "all"),
    ("f(x[n, m]) -> y[n] = -max[m](-x[n, m])", "m", "partial(min)"),
    ("f(x[n, m]) -> y[n] = min[m](x[n, m])", "m", "partial(min)"),
    ("f(x[n, m]) -> y[n] = max[m](x[n, m]) + 1", "m", "all"),
    ("f(x[n, m]) -> y[n] = exp(max[m](x[n, m]))", "m", "all"),
    ("f(x[n, m]) -> y[] = max[n, m](x[n, m])", "m", "partial(max)"),
    ("f(x[n, m]) -> y[n]: int64 = argmax[m](x[n, m])", "m", "all"),
    ("f(x[n, m]) -> y[n]: int64 = argmax[m](round(x[n, m]))", "m", "all"),
    ("f(x[n, m]) -> y[n]: int64 = argmax[m](x[n, m] - max[r](x[n, r]))", "m", "all"),
    ("f(x[n, m], v[m, d]) -> y[n, d] = v[argmax[m](x[n, m]), d]", "m", "partial(sum)"),
    ("f(x[n, m]) -> y[] = max[n](sum[m](x[n, m]))", "m", "all"),
    ("f(x[n, m]) -> y[] = sum[n](max[m](x[n, m]))", "m", "all"),
    ("f(x[n, m]) -> y[n] = sum[m](x[n, m])/size(n)", "m", "partial(sum)"),
    ("f(x[n, m]) -> y[n] = mean[m](x[n, m])", "m", "partial(sum)"),
    ("f(x[n, m]) -> y[n] = 3*sum[m](x[n, m]) - sum[m](x[n, m]**2)", "m", "partial(sum)"),
    ("f(x[m], y[m]) -> z[] = sum[m](x[m])*sum[m](y[m])", "m", "all"),
    ("f(x[m], y[m]) -> z[] = sum[m](x[m])/sum[m](exp(y[m]))", "m", "all"),
    ("f(x[m], y[m]) -> z[] = sum[m](exp(x[m] - sum[n](y[n])))", "m", "all"),
    ("f(x[n]) -> z[] = sum[n](x[n] + 1)", "n", "all"),
    ("f(x[n]) -> z[] = sum[n](x[n]) + 1", "n", "all"),
    ("f(x[n], c[d]) -> z[d] = sum[n](x[n]) + c[d]", "n", "partial(sum)"),
    ("f(x[n], c[d]) -> z[d] = sum[n](x[n]) + exp(c[d])", "n", "all"),
    ("f(x[n], c[d]) -> z[d] = where(c[d] > 0, sum[n](x[n]), 0)", "n", "partial(sum)"),
    ("f(x[n], c[d]) -> z[d] = where(c[d] > 0, sum[n](x[n]), 1)", "n", "all"),
    ("f(x[n], c[d]) -> z[d] = where(sum[n](x[n]) > 0, c[d], 0)", "n", "all"),
    ("f(x[n]) -> y[n] = x[n]*where(n < 2, 1, 2)", "n", "shard(0)"),
    ("f(x[n], t: int) -> y[] = sum[n](where(n < t, x[n], 0))", "n", "partial(sum)"),
    ("f(x[n]) -> y[] = exp(sum[n](n*x[n]))", "n", "all"),
    ("f(x[n, m]) -> y[n] = sum[m](where(m <= n, x[n, m], 0))", "n", "shard(0)"),
    ("f(x[n, m], b[c]) -> y[n] = sum[m](x[n, m]*pad(b[m - n]))", "m", "partial(sum)"),
    (
        "f(q[n, d], k[m, d]) -> y[n] = sum[m](exp(sum[d](q[n, d]*k[m, d])))",
        "d",
        "the sum is inside",
    ),
    ("f(x[n], y[n]) -> z[n] = sum[m](exp(x[n]*y[m]))", "n", "sum[...] takes all of it"),
    ("f(x[n]) -> y[n] = pad(x[n + 1])", "n", "a shifted read needs parts of other processes"),
    ("f(x[n]) -> y[n] = x[size(n) - 1 - n]", "n", "x is also read elsewhere along it"),
    (
        "f(x[n], y[m]) -> z[n] = x[n]*pad(y[n])",
        "n",
        "shard(0)",
    ),
    ("f(x[n, m]) -> y[i] = exp(x[i, 0])", "n", "shard(0)"),
    ("f(x[n, m]) -> y[i] = exp(x[i, 0])", "m", "all"),
    ("f(x[n]) -> y[i] = x[i + 1] - x[i]", "n", "the size of i depends on its size"),
    ("f(x[v], k[v]: int64) -> y[v] = x[k[v]]", "v", "x is also read elsewhere along it"),
    ("f(x[v], k[n]: int64) -> y[n] = exp(x[k[n]])", "n", "shard(0)"),
    ("f(x[v], k[n]: int64) -> y[] = sum[n](exp(x[k[n]]))", "n", "partial(sum)"),
    ("f(x[n]) -> y[] = max[n](x[n] - sum[d](x[d]))", "n", "all"),
    ("f(x[n, m]) -> y[] = log(sum[n, m](exp(x[n, m] - max[i, j](x[i, j]))))", "m", "all"),
    ("f(x[n, m]) -> y[n] = sum[m](exp(x[n, m] - max[i, j](x[i, j])))", "m", "partial(sum)"),
    ("f(x[n, m]) -> y[n] = sum[m](exp(x[n, m] - max[i, j](x[i, j])))", "n", "shard(0)"),
    ("f(x[n], y[n]) -> z[n] = x[n] + y[n]", "partial x, y", "partial(sum)"),
    ("f(x[n], y[n]) -> z[n] = x[n]*y[n]", "partial x", "partial(sum)"),
    ("f(x[n], y[n]) -> z[n] = x[n]/y[n]", "partial x", "partial(sum)"),
    ("f(x[v], k[n]: int64) -> y[n] = x[k[n]]", "partial x", "partial(sum)"),
    ("f(x[n, 3]) -> y[n] = sum[k](x[n, k])", "3", "the size 3 is fixed"),
    ("f(x[n, n]) -> y[n] = sum[m](x[n, m])", "n", "x has it twice"),
]


@pytest.mark.parametrize(("text", "split", "expected"), CASES)
def test_split(text: str, split: str, expected: str, seed: int) -> None:
    indexed = made(text)
    [rule] = [rule for rule in rules(indexed) if rule.split == split]
    if rule.reason is not None:
        assert rule.reason.startswith(expected)
        return
    assert ", ".join(map(str, rule.outputs)) == expected
    assert_right(indexed, drawn(indexed, seed), rule)


def test_a_nonlinear_tensor_may_not_arrive_as_a_partial_sum() -> None:
    for text in (
        "f(x[n]) -> y[n] = exp(x[n])",
        "f(x[n]) -> y[n] = x[n]**2",
        "f(x[n]) -> y[n] = x + 1",
    ):
        assert "partial x" not in by_split(rules(made(text)))
    product = by_split(rules(made("f(x[n], y[n]) -> z[n] = x[n]*y[n]")))
    assert set(product) == {"n", "partial x", "partial y"}


def test_a_tensor_that_is_none_adds_nothing() -> None:
    found = rules(operator("linear"), absent=frozenset({"b"}))
    [rule] = [rule for rule in found if rule.split == "i"]
    assert rule.inputs == {"x": Shard(1), "w": Shard(1)}
    assert rule.outputs == (Partial(),)
    assert {"partial x", "partial w"} <= {rule.split for rule in found}


def test_how_many_are_accepted(record_property: Callable[[str, object], None]) -> None:
    found = [
        rule for name in NAMES for kinds in ORDERS[:3] for rule in rules(operator(name, *kinds))
    ]
    whole = sum(rule.reason is None for rule in found)
    record_property("accepted", whole)
    record_property("refused", len(found) - whole)
    assert whole > len(found) - whole


def test_table() -> None:
    gauss = operator("gauss")
    assert (
        format_table(rules(gauss), gauss.line)
        == """\
split      x         y         v             ->  u
n          shard(0)  all       all           ->  shard(0)
m          all       shard(0)  shard(0)      ->  partial(sum)
partial v  all       all       partial(sum)  ->  partial(sum)
d          refused: the sum is inside exp(...)"""
    )
