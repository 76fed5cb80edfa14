"""Formula operators in the C++ runtime: loops written here by hand, in place of generated ones."""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from pullback.bind import native, program, runtime
from pullback.bind.native import Finish, NativeFormula
from pullback.bind.operator import refine_error
from pullback.bind.program import Program
from pullback.define.dimension import Batch, Name
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition
from pullback.define.parse import parse
from pullback.define.schema import schema
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags

pytestmark = pytest.mark.compiler

C_TYPES = {"float32": "float", "float64": "double", "int64": "int64_t", "bool": "bool"}
MEMBERS = {"int": "integer", "bool": "integer", "float": "real"}
Asked = tuple[str, str, int, int]

Refused = Rule("PB999", "refused-for-a-test")
keeping: list[object] = []
numbers = itertools.count()


@functools.cache
def address_of_loop(body: str) -> int:
    """Compile a loop over `i`; `at<T>(k)` is the element of operand `k`."""
    text = f"""
        #include <stdint.h>
        namespace pullback {{ union Scalar {{ int64_t integer; double real; const char* text; }}; }}
        extern "C" __attribute__((visibility("default")))
        void loop(char** data, const int64_t* strides, int64_t n, const pullback::Scalar* scalars)
        {{
            for (int64_t i = 0; i < n; ++i) {{ {body} }}
        }}"""
    compiler = toolchain.find("c++")
    plan = BuildPlan(
        name="a-loop",
        compiler=compiler,
        units=(TranslationUnit("loop.cpp", text),),
        sources=(),
        flags=kernel_flags(compiler),
        abi="formula-test",
    )
    library = compilation.open_library(compilation.compile(plan))
    keeping.append(library)
    return native.address_of(library.loop)


@dataclass
class Formula:
    """An operator: its line, the space, and a C++ expression for each output."""

    line: Line
    space: TensorSpec
    expressions: dict[str, str]
    alignments: tuple[tuple[int, ...] | None, ...] = ()
    finishes: tuple[Finish, ...] = ()
    complete: Callable[[str], None] = lambda _: None
    backward: Program | None = None
    jvp: Program | None = None
    asked: list[Asked] = field(default_factory=list[Asked])

    @property
    def definition(self) -> Definition:
        return Definition(line=self.line, python=lambda: None)

    def loop(self, device: str, dtype: str, wanted: int, present: int) -> tuple[int, int]:
        self.asked.append((device, dtype, wanted, present))
        line = self.line
        outputs = [o for k, o in enumerate(line.outputs) if wanted >> k & 1]
        text = " ".join(self.expressions[output.name] for output in outputs)
        words = set(re.findall(r"\w+", text))
        used = [k for k, t in enumerate(line.tensors) if t.name in words and present >> k & 1]
        operands = [*outputs, *(line.tensors[k] for k in used)]
        rows = [
            f"auto& {t.name} = *reinterpret_cast<{C_TYPES[t.dtype or dtype]}*>"
            f"(data[{k}] + i * strides[{k}]);"
            for k, t in enumerate(operands)
        ]
        rows += [
            f"const auto {s.name} = scalars[{k}].{MEMBERS[s.type]};"
            for k, s in enumerate(line.scalars)
        ]
        rows += [f"{output.name} = {self.expressions[output.name]};" for output in outputs]
        return address_of_loop("\n".join(rows)), sum(1 << k for k in used)

    @functools.cached_property
    def native(self) -> NativeFormula:
        return NativeFormula(
            space=self.space,
            alignments=self.alignments or tuple(None for _ in self.line.tensors),
            finishes=self.finishes or tuple(Finish((), False) for _ in self.line.outputs),
            devices=("cpu",),
        )

    @functools.cached_property
    def supply(self) -> native.Supply:
        # A function of its own: by it the runtime tells operators apart.
        return native.Supply(complete=functools.partial(self.complete), request=self.loop)

    def define(self) -> None:
        runtime.load().define(
            native.definition_fields(
                self.definition,
                self.backward,
                self.jvp,
                {},
                formula=self.native,
                supply=self.supply,
            )
        )

    def register(self) -> Any:
        library = torch.library.Library(self.line.namespace, "FRAGMENT")
        keeping.append(library)
        library.define(schema(self.line, masked=self.definition.masked))
        self.define()
        return getattr(getattr(torch.ops, self.line.namespace), self.line.name).default


def formula(text: str, space: str, **expressions: str) -> Formula:
    """Return the formula of a line whose operator is called `f`, under a fresh name."""
    line = parse(f"pbformula::f{next(numbers)}{text}")
    dims = tuple(Batch() if d == "..." else Name(name=d) for d in space.split())
    return Formula(line, TensorSpec(name=line.outputs[0].name, dims=dims), expressions)


def operator(text: str, space: str, **expressions: str) -> Any:
    return formula(text, space, **expressions).register()


@pytest.fixture(name="add", scope="session")
def add_fixture() -> Any:
    return operator("(a[...], b[...]) -> c[...]", "...", c="a + 2 * b")


LAYOUTS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "contiguous": lambda: (torch.randn(3, 4), torch.randn(3, 4)),
    "broadcast": lambda: (torch.randn(3, 1), torch.randn(2, 1, 4)),
    "one element": lambda: (torch.randn(3, 4), torch.randn(1, 1)),
    "0-dim beside a matrix": lambda: (torch.randn(()), torch.randn(3, 4)),
    "0-dim": lambda: (torch.randn(()), torch.randn(())),
    "transposed": lambda: (torch.randn(4, 3).t(), torch.randn(3, 4)),
    "both transposed": lambda: (torch.randn(4, 3).t(), torch.randn(4, 3).t()),
    "expanded": lambda: (torch.randn(1, 4).expand(3, 4), torch.randn(3, 1).expand(3, 4)),
    "sliced": lambda: (torch.randn(7, 9)[1::2, 1::2], torch.randn(3, 4)),
    "empty": lambda: (torch.randn(3, 0), torch.randn(1, 0)),
    "empty by broadcasting": lambda: (torch.randn(3, 1), torch.randn(1, 0)),
    "negated": lambda: (
        torch._neg_view(torch.randn(3, 4)),  # pyright: ignore[reportPrivateImportUsage]
        torch.randn(3, 4),
    ),
    "enough for threads": lambda: (torch.randn(300, 200), torch.randn(200)),
    "contiguous and enough for threads": lambda: (torch.randn(70000), torch.randn(70000)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_layout_gives_what_pytorch_gives(add: Any, layout: str, dtype: torch.dtype) -> None:
    a, b = (tensor.to(dtype) for tensor in LAYOUTS[layout]())
    result, expected = add(a, b), a + 2 * b
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride() or result.numel() == 0


SHORT: dict[str, Callable[[int, int], tuple[Tensor, Tensor]]] = {
    "a bias": lambda n, d: (torch.randn(n, d), torch.randn(d)),
    "a factor a row": lambda n, d: (torch.randn(n, d), torch.randn(n, 1)),
    "an outer sum": lambda n, d: (torch.randn(n, 1), torch.randn(d)),
    "turned": lambda n, d: (torch.randn(n, d), torch.randn(d, n).t()),
    "with gaps": lambda n, d: (torch.randn(n, d + 3)[:, :d], torch.randn(2 * d)[::2]),
    "one number": lambda n, d: (torch.randn(n, d + 1)[:, 1:], torch.randn(())),
    "channels": lambda n, d: (torch.randn(3, n, d), torch.randn(n, 1)),
    "into gaps": lambda n, d: (torch.randn(d, n).t(), torch.randn(d)),
}


@pytest.mark.parametrize("layout", SHORT)
def test_short_rows_are_computed_together(add: Any, layout: str) -> None:
    """Each one was a call of the loop: a bias of two numbers took ten times as long as PyTorch."""
    rows, lengths = (1, 7, 8, 9, 300, 9000), (1, 2, 3, 16, 31, 100, 255, 256, 511, 512)
    for n, d in itertools.product(rows, lengths):
        if n * d > 1_000_000:
            continue
        for dtype in (torch.float32, torch.float64):
            a, b = (tensor.to(dtype) for tensor in SHORT[layout](n, d))
            assert torch.equal(add(a, b), a + 2 * b), (n, d, dtype)


def test_short_rows_of_several_dtypes_are_computed_together() -> None:
    """Inputs and outputs of 1, 4 and 8 bytes an element."""
    line = "(a[n, d], k[d]: int64, b[n]: bool) -> (c[n, d], m[n, d]: int64, l[n, d]: bool)"
    mixed = formula(line, "n d", c="a * k", m="k + b", l="a > k")
    mixed.alignments = (None, None, (0, -1))
    op = mixed.register()
    for n, d in ((500, 3), (500, 17), (40, 300)):
        a, k, b = torch.randn(n, d), torch.randint(-2, 2, (d,)), torch.rand(n) < 0.5
        want = a * k, k + b[:, None].long(), a > k
        assert all(map(torch.equal, op(a, k, b), want)), (n, d)


def test_an_output_is_channels_last_where_the_inputs_are(add: Any) -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert add(x, x).is_contiguous(memory_format=torch.channels_last)
    assert add(x, torch.randn(3, 1, 1)).is_contiguous(memory_format=torch.channels_last)


def test_a_loop_may_write_what_it_never_reads_over_the_whole_space() -> None:
    ones = operator("(a[n], b[m]) -> c[n, m]", "n m", c="1")
    assert torch.equal(ones(torch.zeros(2), torch.zeros(3)), torch.ones(2, 3))
    assert torch.equal(ones(torch.zeros(200), torch.zeros(300)), torch.ones(200, 300))
    rows = formula("(a[n], b[m]) -> c[n, m]", "n m", c="a")
    rows.alignments = ((0, -1), (-1, 0))
    a = torch.randn(200)
    assert torch.equal(rows.register()(a, torch.zeros(300)), a[:, None].expand(200, 300))


def test_a_space_with_more_dimensions_than_the_inputs_that_are_read() -> None:
    pick = operator("(a[...], b[...]) -> c[...]", "...", c="b")
    b = torch.randn(3)
    assert torch.equal(pick(torch.zeros(1, 1, 1), b), b[None, None])
    assert torch.equal(pick(torch.zeros(2, 1), b), b.expand(2, 3))


def test_named_dimensions_line_up_by_name() -> None:
    outer = formula("(a[n], b[m]) -> c[n, m]", "n m", c="a * b")
    outer.alignments = ((0, -1), None)
    a, b = torch.randn(3), torch.randn(4)
    torch.testing.assert_close(outer.register()(a, b), torch.outer(a, b))
    turned = formula("(x[m, n], y[n, m]) -> z[n, m]", "n m", z="x - y")
    turned.alignments = ((1, 0), (0, 1))
    x, y = torch.randn(4, 3), torch.randn(3, 4)
    torch.testing.assert_close(turned.register()(x, y), x.t() - y)
    bias = operator("(x[..., n], b[n]) -> y[..., n]", "... n", y="x + b")
    x, b = torch.randn(2, 3, 4), torch.randn(4)
    torch.testing.assert_close(bias(x, b), x + b)


def test_named_dimensions_stand_on_both_sides_of_the_batch() -> None:
    both = formula("(x[n, ..., m], y[m, ...], b[n]) -> z[n, ..., m]", "n ... m", z="x + y * b")
    both.alignments = ((0, 1), (-1, 0), (0, -1))
    run = both.register()
    for x_batch, y_batch in [((2, 5), (2, 5)), ((5,), (2, 1)), ((), (2,)), ((1,), ()), ((), ())]:
        x, y, b = torch.randn(3, *x_batch, 4), torch.randn(4, *y_batch), torch.randn(3)
        batch = torch.broadcast_shapes(x_batch, y_batch)
        rank = len(batch)
        wide = x.reshape(3, *(1,) * (rank - len(x_batch)), *x_batch, 4)
        other = y.reshape(4, *(1,) * (rank - len(y_batch)), *y_batch).movedim(0, -1)
        expected = wide + other * b.reshape(3, *(1,) * (rank + 1))
        torch.testing.assert_close(run(x, y, b), expected)


def test_inputs_and_outputs_of_a_dtype_of_their_own_keep_it() -> None:
    line = "(x[...], k[...]: int64) -> (y[...], m[...]: bool)"
    run = operator(line, "...", y="x * k", m="x > k")
    for x in (torch.randn(4, 3), torch.randn(3, 4).t(), torch.randn(2, 3, 4, 5).transpose(1, 3)):
        k = torch.randint(-2, 3, x.shape[-1:])
        y, m = run(x, k)
        torch.testing.assert_close(y, x * k)
        assert m.dtype == torch.bool
        assert torch.equal(m, x > k)
        assert y.stride() == m.stride() == (x * k).stride()
    y, m = run(torch.randn(0, 3), torch.ones(1, dtype=torch.int64))
    assert y.shape == m.shape == (0, 3)


def test_a_first_output_of_its_own_dtype_keeps_the_strides_too() -> None:
    run = operator("(x[...]) -> (m[...]: bool, y[...])", "...", y="-x", m="x > 0")
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)[:, :, 1:]
    m, y = run(x)
    assert torch.equal(m, x > 0)
    assert torch.equal(y, -x)
    assert m.stride() == y.stride() == (-x).stride()


def test_scalars_of_each_kind_reach_the_loop() -> None:
    line = "(x[...], k: int, flag: bool, a: float = 0.5) -> y[...]"
    run = operator(line, "...", y="(flag ? x : -x) * a + k")
    x = torch.randn(5)
    torch.testing.assert_close(run(x, 3, True), x * 0.5 + 3)
    torch.testing.assert_close(run(x[::2], -3, False, 2.0), -x[::2] * 2 - 3)


def test_an_output_is_summed_over_batch_and_named_dimensions() -> None:
    line = "(x[..., n], w[n]) -> (t[...], v[n], s[], y[..., n])"
    sums = formula(line, "... n", t="x * w", v="x * w", s="x * w", y="x * w")
    summed = (((0,), False), ((), True), ((0,), True), ((), False))
    sums.finishes = tuple(Finish(*each) for each in summed)
    run = sums.register()
    for shape in [(2, 3, 4), (4,), (0, 4), (2, 0), (300, 200)]:
        x = torch.randn(shape, dtype=torch.float64)
        w = torch.randn(shape[-1], dtype=torch.float64)
        t, v, s, y = run(x, w)
        torch.testing.assert_close(y, x * w)
        torch.testing.assert_close(t, (x * w).sum(-1))
        torch.testing.assert_close(v, (x * w)[None].flatten(0, -2).sum(0))
        torch.testing.assert_close(s, (x * w).sum())


def test_an_output_may_have_the_dimensions_in_another_order() -> None:
    line = "(x[n, ..., m]) -> (a[n, ..., m], b[m, ..., n], c[..., m, n], d[m, ...], e[m])"
    turn = formula(line, "n ... m", a="x", b="x", c="x", d="x", e="x")
    summed = (((), False), ((), False), ((), False), ((0,), False), ((0,), True))
    turn.finishes = tuple(Finish(*each) for each in summed)
    run = turn.register()
    for batch in [(), (2,), (2, 5)]:
        x = torch.randn(3, *batch, 4, dtype=torch.float64)
        a, b, c, d, e = run(x)
        assert torch.equal(a, x)
        assert torch.equal(b, x.transpose(0, -1))
        assert torch.equal(c, x.movedim(0, -1))
        torch.testing.assert_close(d, x.sum(0).movedim(-1, 0))
        torch.testing.assert_close(e, x.reshape(-1, 4).sum(0))


def test_an_output_that_is_not_made_of_the_space_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"'c\[n\]' is not what is left of 'c\[n, m\]'"):
        operator("(a[n], b[m]) -> c[n]", "n m", c="a * b")


def test_only_wanted_outputs_are_computed_and_the_others_are_none() -> None:
    line = "(grad[...], a[...], b[...]) -> (grad_a[...], grad_b[...])"
    backward = formula(line, "...", grad_a="grad * b", grad_b="grad * a")
    run = backward.register()
    g, a, b = torch.randn(3), torch.randn(3), torch.randn(3)
    grad_a, grad_b = run(g, a, b, output_mask=[False, True])
    assert grad_a is None
    torch.testing.assert_close(grad_b, g * a)
    assert run(g, a, b, output_mask=[False, False]) == (None, None)
    torch.testing.assert_close(run(g, a, b), (g * b, g * a))
    torch.testing.assert_close(run(g, a, b, output_mask=[True, False])[0], g * b)
    assert [wanted for _, _, wanted, _ in backward.asked] == [0b10, 0b11, 0b01]


def test_an_input_that_is_none_is_not_passed_to_the_loop() -> None:
    line = "(x[..., n], b[n]?, c[...]) -> y[..., n]"
    optional = formula(line, "... n", y="x + c")
    optional.alignments = (None, None, (-1,))
    run = optional.register()
    x, c = torch.randn(2, 3), torch.randn(2)
    torch.testing.assert_close(run(x, None, c), x + c[:, None])
    torch.testing.assert_close(run(x, torch.randn(3), c), x + c[:, None])
    assert [present for _, _, _, present in optional.asked] == [0b101, 0b111]


def test_mistakes_in_the_inputs_are_those_of_other_kernels(add: Any) -> None:
    with pytest.raises(RuntimeError, match=r"PB113.*does not broadcast"):
        add(torch.zeros(2), torch.zeros(3))
    with pytest.raises(RuntimeError, match="PB116"):
        add(torch.zeros(2), torch.zeros(2, dtype=torch.float64))


def test_a_loop_is_asked_for_once_for_each_dtype() -> None:
    counted = formula("(x[...]) -> y[...]", "...", y="x + 1")
    run = counted.register()
    for dtype in (torch.float32, torch.float64) * 3:
        run(torch.zeros(3, dtype=dtype))
        run(torch.zeros(3, 0, 2, dtype=dtype))
    assert counted.asked == [("cpu", "float32", 1, 1), ("cpu", "float64", 1, 1)]


def test_two_threads_may_call_for_the_first_time_at_once() -> None:
    slow = formula("(x[...]) -> y[...]", "...", y="x + 1")
    both_are_here = threading.Barrier(2, timeout=20)
    loop = slow.loop

    def request(*asked: Any) -> tuple[int, int]:
        both_are_here.wait()
        return loop(*asked)

    slow.__dict__["supply"] = replace(slow.supply, request=request)
    run = slow.register()
    results: list[Tensor] = []
    threads = [
        threading.Thread(target=lambda: results.append(run(torch.zeros(3)))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.tolist() for result in results] == [[1, 1, 1]] * 2
    run(torch.zeros(3))
    assert len(slow.asked) == 2


def test_what_request_raises_is_raised_by_the_call_and_the_next_call_asks_again() -> None:
    refused = Refused.error("pbformula::f does not take this", help="another dtype", at="here")
    errors: list[Exception] = [refused, KeyError("a bug"), TypeError("")]
    failing = formula("(x[...]) -> y[...]", "...", y="x + 1")
    loop = failing.loop

    def request(*asked: Any) -> tuple[int, int]:
        if errors:
            raise errors.pop(0)
        return loop(*asked)

    failing.__dict__["supply"] = replace(failing.supply, request=request)
    run = failing.register()
    with pytest.raises(RuntimeError) as raised:
        run(torch.zeros(3))
    again = refine_error(raised.value)
    assert isinstance(again, PullbackError)
    assert again.finding == refused.finding
    with pytest.raises(RuntimeError, match=r"KeyError: 'a bug'"):
        run(torch.zeros(3))
    with pytest.raises(RuntimeError, match="TypeError"):
        run(torch.zeros(3))
    assert run(torch.zeros(1)).item() == 1


def test_an_answer_that_is_no_loop_is_an_error() -> None:
    odd = formula("(x[...]) -> y[...]", "...", y="x")
    odd.__dict__["supply"] = replace(odd.supply, request=lambda *_: "nothing")  # pyright: ignore
    with pytest.raises(RuntimeError):
        odd.register()(torch.zeros(3))


class Scaling:
    """`y = x * x * x` and its derivatives, each an operator that `complete` registers."""

    def __init__(self) -> None:
        self.completed: list[str] = []
        self.threads: set[int] = set()
        self.formula = formula("(x[...]) -> y[...]", "...", y="x * x * x")
        self.formula.complete = self.complete
        self.operator = self.formula.register()

    def complete(self, kind: str) -> None:
        self.completed.append(kind)
        self.threads.add(threading.get_ident())
        incoming = "grad" if kind == "backward" else "tangent"
        target = "grad_x" if kind == "backward" else "tangent_y"
        expression = f"3 * x * x * {incoming}"
        first = formula(
            f"({incoming}[...], x[...]) -> {target}[...]", "...", **{target: expression}
        )
        first.complete = lambda kind: self.twice(first, kind)
        first.register()
        name = first.line.qualname
        lines = {name: first.line}
        if kind == "backward":
            declared = {"x": f"{name}(grad, x)"}
            self.formula.backward = program.backward(self.formula.definition, declared, lines)
        else:
            declared = {"y": f"{name}(tangent_x, x)"}
            self.formula.jvp = program.jvp(self.formula.definition, declared, lines)
        self.formula.define()

    def twice(self, first: Formula, kind: str) -> None:
        """Complete the backward: only its own backward is asked for here."""
        assert kind == "backward"
        self.completed.append("second backward")
        self.threads.add(threading.get_ident())
        line = "(grad_grad_x[...], grad[...], x[...]) -> (grad_grad[...], grad_x[...])"
        both = {"grad_grad": "3 * x * x * grad_grad_x", "grad_x": "6 * x * grad * grad_grad_x"}
        second = formula(line, "...", **both)
        second.register()
        name = second.line.qualname
        first.backward = program.backward(first.definition, name, {name: second.line})
        first.define()


@pytest.fixture(name="cube")
def cube_fixture() -> Scaling:
    return Scaling()


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_a_call_without_gradients_derives_nothing(cube: Scaling) -> None:
    with torch.no_grad():
        cube.operator(leaf(3))
    cube.operator(torch.zeros(3))
    assert cube.completed == []


def test_the_backward_is_derived_once_when_a_gradient_is_needed(cube: Scaling) -> None:
    for _ in range(3):
        x = leaf(3)
        cube.operator(x).sum().backward()
        torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)
    assert cube.completed == ["backward"]
    assert cube.formula.asked == [("cpu", "float64", 1, 1)]  # the loop was kept


def test_a_double_backward_is_derived_in_the_backward_that_needs_it(cube: Scaling) -> None:
    x = leaf(3)
    (first,) = torch.autograd.grad(cube.operator(x).sum(), x, create_graph=True)
    assert cube.completed == ["backward", "second backward"]
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


def test_a_derivative_is_derived_in_a_thread_of_its_own(cube: Scaling) -> None:
    x = leaf(3)

    def second() -> None:
        (first,) = torch.autograd.grad(cube.operator(x).sum(), x, create_graph=True)
        first.sum().backward()

    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    torch.testing.assert_close(x.grad, 6 * x.detach())
    assert threading.get_ident() not in cube.threads


def test_forward_mode_is_derived_when_a_tangent_arrives(cube: Scaling) -> None:
    x, v = leaf(3).detach(), leaf(3).detach()
    for _ in range(2):
        tangent = torch.func.jvp(cube.operator, (x,), (v,))[1]
        torch.testing.assert_close(tangent, 3 * x**2 * v)
    assert cube.completed == ["jvp"]


def test_derivatives_are_derived_inside_of_torch_func(cube: Scaling) -> None:
    x = leaf(3).detach()
    gradient = torch.func.grad(lambda x: cube.operator(x).sum())
    torch.testing.assert_close(gradient(x), 3 * x**2)
    hessian = torch.func.grad(lambda x: gradient(x).sum())(x)
    torch.testing.assert_close(hessian, 6 * x)
    assert cube.completed == ["backward", "second backward"]


def test_derivatives_are_derived_while_a_tracer_watches(cube: Scaling) -> None:
    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.grad(cube.operator(x).sum(), x)[0]

    x = leaf(3)
    traced = make_fx(gradient)(x)
    assert cube.completed == ["backward"]
    torch.testing.assert_close(traced(x), 3 * x**2)


def test_two_threads_may_need_a_derivative_at_once(cube: Scaling) -> None:
    gradients: list[Tensor] = []

    def run() -> None:
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        gradients.extend(torch.autograd.grad(cube.operator(x).sum(), x))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [gradient.tolist() for gradient in gradients] == [[3, 3, 3]] * 4


def test_what_complete_raises_is_raised_by_the_call() -> None:
    failing = formula("(x[...]) -> y[...]", "...", y="x + 1")

    def complete(kind: str) -> None:
        raise Refused.error(f"no {kind} for this formula")

    failing.complete = complete
    run = failing.register()
    with pytest.raises(RuntimeError, match=r"refused-for-a-test \[PB999\]: no backward"):
        run(leaf(3))
    with pytest.raises(RuntimeError, match=r"PB999\]: no jvp"):
        torch.func.jvp(run, (torch.zeros(3),), (torch.zeros(3),))
    assert run(torch.zeros(1)).item() == 1


def test_no_derivative_is_asked_for_where_no_output_has_one(cube: Scaling) -> None:
    assert cube.completed == []
    sign = formula("(x[...]) -> m[...]: bool", "...", m="x > 0")

    def complete(kind: str) -> None:
        raise AssertionError(kind)

    sign.complete = complete
    run, x = sign.register(), leaf(3)
    assert torch.equal(run(x), x > 0)
    mask, tangent = torch.func.jvp(run, (x.detach(),), (x.detach(),))[:2]
    assert torch.equal(mask, x > 0)
    assert not tangent.any()


def test_a_formula_may_be_redefined_as_another(add: Any) -> None:
    first = formula("(x[...]) -> y[...]", "...", y="x + 1")
    run = first.register()
    assert run(torch.zeros(1)).item() == 1
    replace(first, expressions={"y": "x + 2"}, asked=[]).define()
    assert run(torch.zeros(1)).item() == 2
