"""`pb.graph`: the nodes, the lines that made them, what they saved, and the text tree."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pullback as pb

MUL = """
template <class T> void mul(T* c, const T* a, const T* b, long n) {
  for (long i = 0; i < n; ++i) c[i] = a[i] * b[i];
}
"""


@pytest.fixture(scope="session")
def mul() -> pb.Operator:
    name = "graphtest::mul"
    return pb.operator(
        f"{name}(a[...], b[...]) -> c[...]",
        cpu=pb.source(MUL, call="mul(c, a, b, numel(c))"),
        backward={"a": f"{name}(grad, b)", "b": f"{name}(grad, a)"},
    )


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.positive = x > 0
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * ctx.positive


class Model(nn.Module):
    def __init__(self, mul: pb.Operator) -> None:
        super().__init__()
        self.mul = mul
        self.linear = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        hidden = Clamp.apply(hidden)
        scaled = self.mul(hidden, self.scale)
        return (scaled + scaled.exp()).sum()


def numbered(text: str) -> str:
    """Take the numbers of this file's lines out."""
    return re.sub(r"test_graph\.py:\d+", "test_graph.py:N", text)


def line_of(code: str) -> int:
    rows = Path(__file__).read_text(encoding="utf-8").splitlines()
    return 1 + next(index for index, row in enumerate(rows) if row.strip() == code)


TREE = """\
graph of Model: 7 nodes, 3 leaves; it alone keeps 104 B alive

sum (SumBackward0)
│  at    test_graph.py:N in forward: return (scaled + scaled.exp()).sum()
add (AddBackward0)
│  at    test_graph.py:N in forward: return (scaled + scaled.exp()).sum()
├─ [1] graphtest::mul (pullback)
│  │  at    test_graph.py:N in forward: scaled = self.mul(hidden, self.scale)
│  │  saved a (4, 2) float32, 32 B
│  │  saved b (2,) float32, 8 B, the memory of scale
│  ├─ Clamp (autograd.Function)
│  │  │  at    test_graph.py:N in forward: hidden = Clamp.apply(hidden)
│  │  │  saved saved_tensors[0] (4, 2) float32, 32 B
│  │  │  saved ctx.positive (4, 2) bool, 8 B
│  │  addmm (AddmmBackward0)
│  │  │  at    test_graph.py:N in forward: hidden = self.linear(x)
│  │  │  saved mat1 (4, 3) float32, 48 B, the memory of x
│  │  ├─ linear.bias: parameter (2,) float32
│  │  └─ t (TBackward0)
│  │     │  at    test_graph.py:N in forward: hidden = self.linear(x)
│  │     └─ linear.weight: parameter (2, 3) float32
│  └─ scale: parameter (2,) float32
└─ exp (ExpBackward0)
   │  at    test_graph.py:N in forward: return (scaled + scaled.exp()).sum()
   │  saved result (4, 2) float32, 32 B
   └─ [1] graphtest::mul, drawn above"""


@pytest.mark.compiler
def test_the_tree_names_nodes_lines_saved_tensors_and_parameters(mul: pb.Operator) -> None:
    assert numbered(str(pb.graph(Model(mul), torch.ones(4, 3)))) == TREE


@pytest.mark.compiler
def test_each_node_knows_the_line_that_made_it(mul: pb.Operator) -> None:
    graph = pb.graph(Model(mul), torch.ones(4, 3))
    sources = {node.operator: node.source for node in graph.nodes}
    made_by = {
        "graphtest::mul": "scaled = self.mul(hidden, self.scale)",
        "Clamp": "hidden = Clamp.apply(hidden)",
        "addmm": "hidden = self.linear(x)",
        "exp": "return (scaled + scaled.exp()).sum()",
    }
    for operator, code in made_by.items():
        source = sources[operator]
        assert source is not None
        assert (source.file, source.line) == (__file__, line_of(code))
        assert (source.function, source.text) == ("forward", code)


@pytest.mark.compiler
def test_what_an_operator_of_pullback_saved_has_the_names_of_its_line(mul: pb.Operator) -> None:
    a = torch.ones(5, dtype=torch.float64, requires_grad=True)
    graph = pb.graph(lambda: mul(a, torch.ones(3, 5, dtype=torch.float64)))
    (node,) = graph.nodes
    assert node.kind == "pullback"
    # Of the two, only the gradient of `a` is needed, and it needs `b` alone.
    assert [(s.name, s.dtype, s.shape, s.bytes) for s in node.saved] == [
        ("b", "float64", (3, 5), 120)
    ]
    assert [leaf.name for leaf in graph.leaves] == ["a"]


@pytest.mark.compiler
def test_an_operator_itself_can_be_the_target(mul: pb.Operator) -> None:
    x = torch.ones(2, requires_grad=True)
    graph = pb.graph(mul, x, b=torch.ones(2))
    assert [(leaf.name, leaf.kind) for leaf in graph.leaves] == [("a", "input")]
    assert graph.nodes[0].source is not None
    assert graph.nodes[0].source.line == line_of("graph = pb.graph(mul, x, b=torch.ones(2))")


def test_a_tensor_has_no_lines_and_the_tree_says_how_to_get_them() -> None:
    x = torch.ones(2, requires_grad=True)
    graph = pb.graph(x.exp().sum())
    assert all(node.source is None for node in graph.nodes)
    assert str(graph) == (
        "graph of a tensor () float32: 2 nodes, 1 leaf; it alone keeps 8 B alive\n\n"
        "sum (SumBackward0)\n"
        "exp (ExpBackward0)\n"
        "│  saved result (2,) float32, 8 B\n"
        "└─ leaf (2,) float32\n\n"
        "No lines are known: the forward call was not recorded. To see which line made each node, "
        "hand over\n"
        "the function and its inputs in place of the tensor: pb.graph(model, x)"
    )


def test_lines_are_pytorchs_where_the_user_wrote_none() -> None:
    graph = pb.graph(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2))
    assert graph.nodes[0].source is not None
    assert str(graph.nodes[0].source).startswith("linear.py:")


def test_inputs_are_named_wherever_they_are() -> None:
    def both(pair: list[Tensor], *, more: dict[str, Tensor]) -> Tensor:
        return pair[0] * pair[1] * more["c"]

    a, b, c = (torch.ones(1, requires_grad=True) for _ in range(3))
    leaves = pb.graph(both, [a, b], more={"c": c}).leaves
    assert sorted(str(leaf.name) for leaf in leaves) == ["more['c']", "pair[0]", "pair[1]"]


def test_several_outputs_are_several_roots() -> None:
    x = torch.ones(2, requires_grad=True)
    graph = pb.graph(lambda: {"a": x.exp(), "b": [x.sin(), 3]})
    assert [graph.nodes[edge.index].operator for edge in graph.outputs] == ["exp", "sin"]
    assert str(graph).count("x: leaf (2,) float32") == 2


def test_a_leaf_has_a_graph_of_itself() -> None:
    graph = pb.graph(torch.ones(2, requires_grad=True))
    assert str(graph) == "graph of a tensor (2,) float32: 0 nodes, 1 leaf\n\nleaf (2,) float32"


@pytest.mark.compiler
def test_what_backward_released_is_shown_as_freed(mul: pb.Operator) -> None:
    x = torch.ones(2, requires_grad=True)
    y = mul(Clamp.apply(x.exp()), x).sum()
    y.backward()
    text = str(pb.graph(y))
    assert "saved its tensors: freed" in text
    assert "saved saved_tensors: freed" in text
    assert "saved result: freed" in text


def test_saved_tensor_hooks_are_not_called() -> None:
    def unpack(_: object) -> Tensor:
        pytest.fail("unpacked")

    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda _: "on a disk", unpack):
        y = Clamp.apply(x.exp())
    text = str(pb.graph(y))
    assert text.count(": packed by a saved-tensor hook") == 2


def test_a_node_that_saved_a_list_shows_each() -> None:
    x = torch.ones(4, requires_grad=True)
    graph = pb.graph(lambda: x[torch.tensor([0, 2])])
    assert [(s.name, s.shape) for s in graph.nodes[0].saved] == [("indices[0]", (2,))]


def test_memory_that_two_nodes_share_is_counted_once() -> None:
    x = torch.ones(8, requires_grad=True)
    graph = pb.graph(lambda: (y := x.exp()) * y)
    assert graph.held == 32


@pytest.mark.compiler
@pytest.mark.parametrize("kind", [pytest.param("built-in", marks=pytest.mark.thorough), "pullback"])
def test_twenty_thousand_nodes_deep(mul: pb.Operator, kind: str) -> None:
    x = torch.ones(1, requires_grad=True)
    ones = torch.ones(1)
    y = x
    for _ in range(20_000):
        y = mul(y, ones) if kind == "pullback" else y * ones
    graph = pb.graph(y)
    assert len(graph.nodes) == 20_000
    assert {node.kind for node in graph.nodes} == {kind}
    text = str(graph)
    assert text.startswith("graph of a tensor (1,) float32: 20,000 nodes, 1 leaf")
    assert max(map(len, text.splitlines())) < 120


def test_branches_in_branches_stay_on_the_page() -> None:
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(2_000):
        y = y + y.exp()
    graph = pb.graph(y)
    lines = str(graph).splitlines()
    assert max(map(len, lines)) < 120
    # Each node is drawn once, wherever it is referred to.
    assert sum("(ExpBackward0)" in line for line in lines) == 2_000
    assert sum("(AddBackward0)" in line for line in lines) == 2_000


def test_a_graph_holds_no_tensor() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    graph = pb.graph(y * y)
    seen = weakref.ref(y)
    del y
    gc.collect()
    assert seen() is None
    assert graph.nodes


def test_recording_leaves_no_mode_behind() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), torch.no_grad():
        pb.graph(fail)
    assert not torch.is_anomaly_enabled()


def test_what_requires_no_gradient_has_no_graph() -> None:
    with pytest.raises(pb.PullbackError, match=r"PB601.*of Linear requires a gradient"):
        pb.graph(nn.Linear(2, 2).requires_grad_(False), torch.ones(2))


@pytest.mark.parametrize("target", [3, None, "model"])
def test_what_is_neither_a_tensor_nor_callable_has_no_graph(target: Any) -> None:
    with pytest.raises(pb.PullbackError, match=r"PB602.*has no graph"):
        pb.graph(target)


def test_a_tensor_takes_no_inputs() -> None:
    with pytest.raises(pb.PullbackError, match=r"PB602.*together with inputs"):
        pb.graph(torch.ones(2, requires_grad=True), torch.ones(2))


@pytest.mark.compiler
def test_an_operator_in_index_notation_is_one_node() -> None:
    rows = pb.operator("graphtest::rows(x[n, m]) -> y[n] = sum[m](exp(x[n, m]))/size(m)")
    text = str(pb.graph(rows, torch.randn(3, 2, requires_grad=True)))
    assert "1 node, 1 leaf" in text
    assert "graphtest::rows (pullback)" in text
    assert "saved x (3, 2) float32" in text
