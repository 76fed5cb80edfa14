"""Index notation: the graph, its derivatives and its printer, against PyTorch's own autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from pullback.define import parse as lines
from pullback.define.math import build, differentiate, node, notation, reduce, show, softmax
from pullback.define.math import derived as derivatives
from pullback.define.math.index import Affine, at, size
from pullback.define.math.node import Node, in_order, is_number, number
from pullback.define.math.program import FormulaFacts
from pullback.define.math.ranges import Ranges
from pullback.define.math.reverse import gradients
from tests.define.dense import Dense, Indexed, parse
from tests.define.indexed import FORMULAS, SIZES
from tests.define.long_reductions import POSITIONS

each_formula = pytest.mark.parametrize(
    ("text", "reference"), FORMULAS.items(), ids=[text.partition("(")[0] for text in FORMULAS]
)


def inputs_of(formula: Indexed, seed: int) -> dict[str, Tensor]:
    """Return random tensors; whole numbers are indices of `v`."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(name: str, shape: list[int]) -> Tensor:
        if name in formula.whole:
            return torch.randint(SIZES["v"], shape, generator=generator)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return {name: drawn(name, [SIZES[d] for d in dims]) for name, dims in formula.dims.items()}


def assert_near(found: Tensor, expected: Tensor) -> None:
    """Compare with what as many roundings as there are index values may do, term by term."""
    assert found.shape == expected.shape
    terms = math.prod(sorted(SIZES.values())[-5:])
    allowed = terms * torch.finfo(torch.float64).eps * (1 + expected.abs().max())
    assert (found - expected).abs().max() <= allowed


def derived(formula: Indexed) -> dict[str, Node | None]:
    """Return the gradients of a formula; what arrives is called `grad`."""
    grad = formula.read("grad", formula.indices)
    wrt = {name: formula.dims[name] for name in formula.real}
    arriving = [(formula.indices, formula.node, grad)]
    return dict(zip(wrt, gradients(arriving, wrt, formula.ranges), strict=True))


@each_formula
def test_value_is_that_of_torch(text: str, reference: Callable[..., Tensor], seed: int) -> None:
    formula = parse(text)
    inputs = inputs_of(formula, seed)
    found = Dense(inputs, SIZES, formula.ranges)(formula.node, formula.indices)
    assert_near(found, reference(*inputs.values()))


@each_formula
def test_gradient_is_that_of_autograd(
    text: str, reference: Callable[..., Tensor], seed: int
) -> None:
    formula = parse(text)
    inputs = inputs_of(formula, seed)
    leaves = [inputs[name].requires_grad_() for name in formula.real]
    value = reference(*inputs.values())
    grad = torch.randn_like(value)
    expected = torch.autograd.grad(value, leaves, grad)
    dense = Dense({**detached(inputs), "grad": grad}, SIZES, formula.ranges)
    for (name, found), wanted in zip(derived(formula).items(), expected, strict=True):
        assert found is not None
        assert found.free <= {*formula.dims[name]}
        assert_near(dense(found, formula.dims[name]), wanted)


@each_formula
def test_gradient_of_the_gradients_is_that_of_autograd(
    text: str, reference: Callable[..., Tensor], seed: int
) -> None:
    formula = parse(text)
    inputs = inputs_of(formula, seed)
    leaves = {name: inputs[name].requires_grad_() for name in formula.real}
    value = reference(*inputs.values())
    leaves["grad"] = torch.randn_like(value).requires_grad_()
    first = torch.autograd.grad(
        value, [inputs[name] for name in formula.real], leaves["grad"], create_graph=True
    )
    arriving = [torch.randn_like(gradient) for gradient in first]
    expected = torch.autograd.grad(
        first, list(leaves.values()), arriving, allow_unused=True, materialize_grads=True
    )

    dims = {**formula.dims, "grad": formula.indices}
    outputs = [
        (dims[name], gradient or number(0.0), formula.read(f"of_{name}", dims[name]))
        for name, gradient in derived(formula).items()
    ]
    second = gradients(outputs, {name: dims[name] for name in leaves}, formula.ranges)
    given = {f"of_{name}": grad for name, grad in zip(formula.real, arriving, strict=True)}
    dense = Dense(detached({**inputs, **leaves, **given}), SIZES, formula.ranges)
    for name, found, wanted in zip(leaves, second, expected, strict=True):
        assert_near(dense(found or number(0.0), dims[name]), wanted)


@pytest.mark.parametrize("text", ["logaddexp(x, y)", "logaddexp2(x, y)", "sinc(x - y)"])
def test_second_derivatives_are_right_where_a_derivative_has_a_case_of_its_own(
    text: str, seed: int
) -> None:
    """A case for one point is differentiated like any other: a 0 there says that the slope is 0."""
    formula = parse(f"f(x[n], y[n]) -> z[n] = {text}")
    first = derived(formula)["x"]
    assert first
    dims = {name: formula.dims[name] for name in ("x", "y")}
    ones = formula.read("ones", formula.indices)
    second = gradients([(formula.indices, first, ones)], dims, formula.ranges)
    x = torch.randn(SIZES["n"], dtype=torch.float64)
    one = torch.ones_like(x)

    def evaluate(what: Node | None, x: Tensor, y: Tensor) -> Tensor:
        given = {"x": x, "y": y, "grad": one, "ones": one}
        return Dense(given, SIZES, formula.ranges)(what or number(0.0), formula.indices)

    step = 1e-5
    for found, dx, dy in zip(second, (step, 0.0), (0.0, step), strict=True):
        change = evaluate(first, x + dx, x + dy) - evaluate(first, x - dx, x - dy)
        assert_close(evaluate(found, x, x), change / (2 * step), rtol=1e-4, atol=1e-4)


SMOOTH: dict[str, Callable[[Any], Any]] = {
    "sigmoid(x)": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus(-x)": lambda x: mpmath.log(1 + mpmath.exp(-x)),
    "silu(x)": lambda x: x / (1 + mpmath.exp(-x)),
    "logaddexp(x, -x)": lambda x: mpmath.log(mpmath.exp(x) + mpmath.exp(-x)),
    "sinc(x)": mpmath.sincpi,
}


@pytest.mark.parametrize(("text", "reference"), SMOOTH.items(), ids=SMOOTH)
def test_derivatives_of_every_order_are_right_at_zero_and_near_it(
    text: str, reference: Callable[[Any], Any]
) -> None:
    """There a smooth function may be written in pieces, whose derivatives differ from its own."""
    formula = parse(f"f(x[n]) -> y[n] = {text}")
    x = torch.tensor([0.0, -0.0, 1e-9, -1e-4, 0.03, 0.3], dtype=torch.float64)
    given, found = {"x": x, "ones": torch.ones_like(x)}, formula.node
    for order in range(1, 6):
        arriving = [(formula.indices, found, formula.read("ones", formula.indices))]
        (gradient,) = gradients(arriving, formula.dims, formula.ranges)
        assert gradient
        found = gradient
        with mpmath.workdps(40):
            expected = [float(mpmath.diff(reference, value, order)) for value in x.tolist()]
        values = Dense(given, {"n": len(x)}, formula.ranges)(found, formula.indices)
        assert_close(values, torch.tensor(expected, dtype=x.dtype), rtol=1e-6, atol=1e-6)


@each_formula
def test_tangent_is_that_of_forward_mode(
    text: str, reference: Callable[..., Tensor], seed: int
) -> None:
    formula = parse(text)
    inputs = inputs_of(formula, seed)
    real = [inputs[name] for name in formula.real]
    directions = [torch.randn_like(tensor) for tensor in real]

    def of_real(*tensors: Tensor) -> Tensor:
        return reference(*{**inputs, **dict(zip(formula.real, tensors, strict=True))}.values())

    expected: Tensor = torch.func.jvp(of_real, tuple(real), tuple(directions))[1]
    names = {name: formula.read(f"to_{name}", formula.dims[name]) for name in formula.real}
    [found] = differentiate.jvp([formula.node], names, formula.ranges)
    given = {f"to_{name}": to for name, to in zip(formula.real, directions, strict=True)}
    dense = Dense({**inputs, **given}, SIZES, formula.ranges)
    assert found is not None
    assert_near(dense(found, formula.indices), expected)


def detached(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}


PRINTED = {
    "linear": {"w": "sum[n](grad[n, o]*x[n, i])", "b": "sum[n](grad[n, o])"},
    "sqdist": {"x": "2*sum[m](grad[n, m]*(x[n, d] - y[m, d]))"},
    "correlate": {
        "x": "sum[p](where(0 <= h - p < size(h) - size(p) + 1, "
        "sum[q](where(0 <= w - q < size(w) - size(q) + 1, grad[h - p, w - q]*k[p, q], 0)), 0))",
        "k": "sum[i, j](grad[i, j]*x[i + p, j + q])",
    },
    "softmax": {
        "x": "t1 = max[n1](x[..., n1]); t2 = exp(x[..., n] - t1); "
        "t3 = sum[n1](exp(x[..., n1] - t1)); "
        "y = grad[..., n]*t2/t3 - sum[n1](grad[..., n1]*exp(x[..., n1] - t1))*t2/t3/t3"
    },
    "gather": {"x": "2*sum[n](where(v == idx[n], grad[n, d]*x[idx[n], d], 0))"},
    "stride": {"x": "sum[i](where(0 <= h - 2*i < size(p), grad[i]*k[h - 2*i], 0))"},
    "rowmax": {"x": "where(m == argmax[m1](x[n, m1]**2), 2*(grad[n]*x[n, m]), 0)"},
    "chamfer": {"x": "2*(grad[n]*(x[n, d] - y[argmax[m](-sum[d1]((x[n, d1] - y[m, d1])**2)), d]))"},
    "cumsum": {"x": "sum[n1](where(n <= n1, grad[n1], 0))"},
}
TEXTS = {text.partition("(")[0]: text for text in FORMULAS}


@pytest.mark.parametrize("name", PRINTED)
def test_gradient_is_printed_readably_and_the_same_every_time(name: str) -> None:
    for _ in range(2):
        found = derived(parse(TEXTS[name]))
        for tensor, expected in PRINTED[name].items():
            gradient = found[tensor]
            assert gradient is not None
            assert show.format_statements([("y", gradient, ())]) == expected


@pytest.mark.parametrize("name", ["softmax", "logsumexp"])
def test_maximum_that_only_prevents_overflow_has_no_gradient(name: str) -> None:
    gradient = derived(parse(TEXTS[name]))["x"]
    assert gradient is not None
    assert not [part for part in in_order([gradient]) if part.op == "argmax"]


def test_it_has_none_where_a_mean_is_taken_of_what_it_is_subtracted_from() -> None:
    text = "f(x[n]) -> y[] = 3*(max[k](x[k]) + log(mean[n](exp(x - max[k](x[k])))))"
    gradient = derived(parse(text))["x"]
    assert gradient is not None
    assert not [part for part in in_order([gradient]) if part.op == "argmax"]


def test_sums_that_differ_in_the_name_of_their_index_are_one_node() -> None:
    ranges = Ranges({"k": size("n"), "l": size("n")})

    def nested(first: str, second: str) -> Node:
        product = build.apply("mul", node.read("x", [at(first)]), node.read("y", [at(second)]))
        return reduce.sums_over([first, second], build.apply("exp", product), ranges)

    assert nested("k", "l") is nested("l", "k") is nested("n", "k")
    assert nested("k", "l") is not nested("k", "m")


def test_substitution_captures_no_index() -> None:
    ranges = Ranges({"k": size("n")})
    product = build.apply("mul", node.read("x", [at("n")]), node.read("y", [at("k")]))
    summed = reduce.sum_over("k", build.apply("exp", product), ranges)
    assert show.format_node(summed) == "sum[n1](exp(x[n]*y[n1]))"
    moved = reduce.substitute(summed, {"n": at("k") + 1}, ranges)
    assert moved.free == {"k"}
    assert show.format_node(moved) == "sum[n](exp(x[k + 1]*y[n]))"


def test_substitution_reaches_the_indices_inside_of_indices() -> None:
    inner = node.read("idx", [at("n")], "int")
    gathered = node.read("x", [node.place_of(inner) + at("n") * 2 - 1])
    moved = reduce.substitute(gathered, {"n": at("m") - 1}, Ranges())
    assert show.format_node(moved) == "x[idx[m - 1] + 2*m - 3]"
    assert moved.free == {"m"}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (at("i") + at("p"), True),
        (at("i") + at("p") + 1, None),
        (at("i") - at("p"), None),
        (at("p") - at("p"), None),  # of nothing the first element is none
        (size("h") - 1, None),
        (Affine(1), None),
        (Affine(-1), False),
        (at("h") + size("h"), False),
        (-at("p") - 1, False),
        (size("h") - 1 - at("h"), True),
    ],
    ids=lambda value: (
        repr(value) if not isinstance(value, Affine) else show.format_node(node.index(value))
    ),
)
def test_guard_is_dropped_exactly_where_sizes_prove_it(
    place: Affine, expected: bool | None
) -> None:
    ranges = Ranges({"i": size("h") - size("p") + 1})
    guard = ranges.inside(place, size("h"))
    assert guard.op == "inside" if expected is None else is_number(guard, expected)


def test_convolution_without_padding_has_no_guard() -> None:
    assert not [part for part in in_order([parse(TEXTS["correlate"]).node]) if part.op == "inside"]


def test_sum_of_what_is_the_same_everywhere_is_a_multiple() -> None:
    ranges = Ranges()
    x, y = node.read("x", [at("n")]), node.read("y", [at("m")])
    assert show.format_node(reduce.sum_over("m", x, ranges)) == "size(m)*x[n]"
    assert reduce.sum_over("m", number(0.0), ranges) is number(0.0)
    both = build.apply("add", y, build.apply("mul", x, number(3.0)))
    assert show.format_node(reduce.sum_over("m", both, ranges)) == "sum[m](y[m]) + size(m)*(3*x[n])"
    product = build.apply("mul", build.apply("exp", x), y)
    assert show.format_node(reduce.sum_over("m", product, ranges)) == "exp(x[n])*sum[m](y[m])"


def test_delta_is_solved_and_its_guard_kept() -> None:
    ranges = Ranges()
    delta = node.equal(at("n") - at("m") + 2)
    chosen = reduce.select([delta], node.read("x", [at("n")]))
    found = reduce.sum_over("n", chosen, ranges)
    assert show.format_node(found) == "where(0 <= m - 2 < size(n), x[m - 2], 0)"


def test_masked_overflow_is_not_nan(seed: int) -> None:
    formula = parse(TEXTS["causal"])
    generator = torch.Generator().manual_seed(seed)
    inputs = {
        name: torch.rand([SIZES[d] for d in dims], generator=generator, dtype=torch.float64)
        for name, dims in formula.dims.items()
    }
    # The last key overflows where it is masked: in every row but its own, where queries are 0.
    inputs["k"][-1] = 1e6
    inputs["q"][-1] = 0
    grad = torch.rand(SIZES["s"], SIZES["d"], generator=generator, dtype=torch.float64)
    dense = Dense({**inputs, "grad": grad}, SIZES, formula.ranges)
    assert dense(formula.node, formula.indices).isfinite().all()
    for name, gradient in derived(formula).items():
        assert gradient is not None
        assert dense(gradient, formula.dims[name]).isfinite().all()


def test_gradient_of_two_outputs_that_share_a_node_is_the_sum() -> None:
    ranges = Ranges()
    x = node.read("x", [at("n"), at("m")])
    squared = build.apply("pow", x, number(2))
    rows = reduce.sum_over("m", squared, ranges)
    outputs = [
        (("n", "m"), squared, node.read("gy", [at("n"), at("m")])),
        (("n",), rows, node.read("gz", [at("n")])),
    ]
    [gradient] = gradients(outputs, {"x": ("n", "m")}, ranges)
    assert gradient is not None
    printed = show.format_inside(gradient)
    assert printed == "2*(gz[n]*x[n, m]) + 2*(gy[n, m]*x[n, m])"


def test_gradient_of_what_is_not_read_is_none() -> None:
    y = node.read("y", [at("n")])
    assert gradients([(("n",), y, y)], {"x": ("n",)}) == [None]


def test_output_that_repeats_a_value_counts_it_that_often() -> None:
    x = node.read("x", [Affine(0)])
    [gradient] = gradients([(("n",), x, number(1.0))], {"x": ("m",)})
    assert gradient is not None
    assert show.format_node(gradient) == "where(m == 0, float(size(n)), 0.0)"


def test_both_indices_of_a_diagonal_are_kept_apart() -> None:
    x = node.read("x", [at("n"), at("n")])
    [gradient] = gradients([(("n",), x, node.read("grad", [at("n")]))], {"x": ("n", "n'")})
    assert gradient is not None
    assert show.format_node(gradient) == "where(n == n', grad[n], 0)"


def test_tensor_that_is_read_in_two_places_is_printed_with_its_indices() -> None:
    product = build.apply("mul", node.read("x", [at("n")]), node.read("x", [at("m")]))
    assert show.format_node(product) == "x[n]*x[m]"


def test_gradient_through_many_choices_stays_small() -> None:
    value = node.read("x", [at("n")])
    for step in range(20):
        over = build.apply("gt", value, number(float(step)))
        doubled = build.apply("where", over, build.apply("exp", value), number(0))
        under = build.apply("lt", value, number(-float(step)))
        value = build.apply("add", doubled, build.apply("where", under, value, number(0)))
    [gradient] = gradients([(("n",), value, number(1.0))], {"x": ("n",)})
    assert gradient is not None
    assert len(list(in_order([gradient]))) < 20 * len(list(in_order([value])))


@pytest.mark.parametrize("name", ["mul", "add", "logical_and"])
def test_operand_that_is_doubled_many_times_is_not_spread_out(name: str) -> None:
    value = node.read("x", [at("n")])
    if name == "logical_and":
        value = build.apply("gt", value, number(0.0))
    for _ in range(40):
        value = build.apply(name, value, value)
    chosen = value if name != "logical_and" else build.to_real(value)
    summed = reduce.sum_over("n", chosen, Ranges())
    gradients([((), summed, number(1.0))], {"x": ("n",)})


def test_a_maximum_of_what_it_is_made_of_has_one_gradient() -> None:
    value = build.apply("maximum", node.read("x", [at("n")]), number(0.0))
    for step in range(40):
        below = build.apply("lt", value, number(float(step)))
        chosen = build.apply("where", below, value, number(0.0))
        value = build.apply("maximum", value, chosen)
    [gradient] = gradients([(("n",), value, number(1.0))], {"x": ("n",)})
    assert gradient is not None


def test_condition_of_a_gradient_stays_outermost_and_its_delta_is_solved() -> None:
    formula = parse("highest(x[n, m], y[n]) -> z[n] = max[m](maximum(x[n, m], y[n]))")
    gradient = derived(formula)["y"]
    assert gradient is not None
    assert not [part for part in in_order([gradient]) if part.op in ("equal", "sum")]


SOFTMAX = "exp(x[n, m] - max[k](x[n, k]))"
SINK = "max(max[k](x[n, k]), v[0, 0])"  # more than all, as of something else to look at
SAFE = "where(max[k](x[n, k]) > -inf, max[k](x[n, k]), 0)"
BESIDE = f"sum[m](exp(x[n, m] - {SINK})*v[m, d])/(sum[m](exp(x[n, m] - {SINK}))"
VANISHING = {
    "softmax": f"{SOFTMAX}/sum[j](exp(x[n, j] - max[k](x[n, k])))",
    "mean": f"sum[m]({SOFTMAX}*v[m, d])/sum[m]({SOFTMAX})",
    "sink": f"{BESIDE} + exp(v[0, 0] - {SINK}))",
    "safe": f"sum[m](exp(x[n, m] - {SAFE})*v[m, d])/sum[m](exp(x[n, m] - {SAFE}))",
    "of_mean": f"log(sum[m]({SOFTMAX}*v[m, d])/sum[m]({SOFTMAX}) + 20)",
}
CAUSAL = "where(m <= n, exp(x[n, m] - max[k](where(k <= n, x[n, k], -inf))), 0)"
STAYING = {
    "not_divided": f"sum[m]({SOFTMAX}*v[m, d])",
    "other_power": f"sum[m]({SOFTMAX}**2*v[m, d])/sum[m]({SOFTMAX})",
    "other_sink": f"{BESIDE} + 1)",
    "other_sum": f"sum[m]({SOFTMAX}*v[m, d])/(1 + sum[m]({SOFTMAX}))",
}


def of_softmax(text: str) -> tuple[str, Callable[..., Tensor]]:
    indices = "n, m" if "v[" not in text else "n, d"
    return f"f(x[n, m], v[m, d]) -> y[{indices}] = {text}", lambda *_: torch.empty(0)


@pytest.mark.parametrize("name", [*VANISHING, *STAYING])
def test_maximum_that_only_keeps_from_overflowing_has_no_gradient(name: str) -> None:
    text, _ = of_softmax({**VANISHING, **STAYING}[name])
    formula = parse(text)
    gradient = derived(formula)["x"]
    assert gradient is not None
    found = [part for part in in_order([gradient]) if part.op == node.ARGMAX]
    assert bool(found) == (name in STAYING)


def test_maximum_under_conditions_has_no_gradient() -> None:
    formula = parse(f"f(x[n, m], v[m, d]) -> y[n, d] = sum[m]({CAUSAL}*v[m, d])/sum[m]({CAUSAL})")
    gradient = derived(formula)["x"]
    assert gradient is not None
    assert not [part for part in in_order([gradient]) if part.op == node.ARGMAX]


def test_scores_of_two_dimensional_positions_stay_products_in_the_gradient_of_their_bias() -> None:
    """What goes to `b[y, x]` is added up at places: solved for rows it would be no product."""
    found = derivatives.backward(notation.parse(lines.parse(f"test::{POSITIONS}")))
    assert found
    nodes = list(in_order(found.formula.nodes))
    assert not [part for part in nodes if part.op == node.ARGMAX]
    assert max(len(part.free) for part in nodes if part.op == "exp") == 4


def test_weights_are_divided_by_their_sum_where_they_stand() -> None:
    formula = parse(of_softmax(VANISHING["mean"])[0])
    gradient = derived(formula)["x"]
    assert gradient is not None
    for root in (formula.node, gradient):
        [again] = softmax.normalize([root])
        divided = [part for part in in_order([again]) if part.op == "div"]
        assert divided
        assert all(softmax.match_softmax(part) for part in divided)
        assert softmax.normalize([again]) == (again,)


@pytest.mark.parametrize("name", STAYING)
def test_other_quotients_stay_as_they_are(name: str) -> None:
    formula = parse(of_softmax(STAYING[name])[0])
    [again] = softmax.normalize([formula.node])
    if name != "other_power":
        assert again is formula.node
    inputs = inputs_of(formula, 1)
    dense = Dense(inputs, SIZES, formula.ranges)
    assert_near(dense(again, formula.indices), dense(formula.node, formula.indices))


@pytest.mark.parametrize("place", [at("n") - at("m") + size("m"), at("m") * 2 + at("n")])
def test_what_differs_in_the_names_of_indices_alone_is_one_value(place: Affine) -> None:
    """In whatever order these names are: so a softmax with a relative bias is computed once."""
    facts = FormulaFacts({}, ())
    own = node.read("b", [place])
    others = node.rename_index(node.rename_index(own, "n", "a"), "m", "z")
    turned = node.rename_index(node.rename_index(own, "n", "z"), "m", "a")
    identities = [facts.identity(each) for each in (own, others, turned)]
    assert len({number for number, _ in identities}) == 1
    order = [{"n": "a", "m": "z"}[name] for name in identities[0][1]]
    assert [*identities[1][1]] == order
    assert [*identities[2][1]] == [{"a": "z", "z": "a"}[name] for name in order]
