"""A recurrence is one operator to tracers: what they write does not depend on how long it runs."""

from __future__ import annotations

import pytest
import torch
from rows import BY_NAME
from torch import Tensor, func
from torch.fx.experimental.proxy_tensor import make_fx
from traced import Layer, compiled
from ways import numbers, total

RECURRENCES = ("recurrent_lru", "recurrent_filtered", "recurrent_averaged")
SHORT, LONG = 10, 10_000


def of_length(name: str, length: int) -> tuple[Tensor, ...]:
    """Return inputs whose sequential index, of size 4 or 5 in the example, is so long."""
    row = BY_NAME[name]
    shapes = [t.shape for t in row.arguments(0)]
    sequential = {"recurrent_lru": 4, "recurrent_filtered": 5, "recurrent_averaged": 4}[name]
    sizes = [[length if n == sequential else n for n in shape] for shape in shapes]
    return tuple(torch.full(own, 0.5, dtype=torch.float64) for own in sizes)


def targets_of(graph: torch.fx.Graph) -> list[str]:
    """Return what a graph calls, in order."""
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("name", RECURRENCES)
def test_an_exported_program_is_one_call_at_any_length(name: str) -> None:
    operator = BY_NAME[name].operator
    for length in (SHORT, LONG):
        module = Layer(operator)
        program = torch.export.export(module, of_length(name, length))
        calls = targets_of(program.graph)
        assert calls.count(str(operator.overload)) == 1
        assert set(calls) <= {str(operator.overload), "<built-in function getitem>"}


@pytest.mark.parametrize("name", RECURRENCES)
def test_a_trace_of_two_derivatives_is_as_long_at_any_length(name: str) -> None:
    operator = BY_NAME[name].operator

    def loss(*tensors: Tensor) -> Tensor:
        outputs = operator(*tensors)
        return total(lambda *_: outputs if isinstance(outputs, tuple) else (outputs,))(*tensors)

    def norm(*tensors: Tensor) -> Tensor:
        grads = func.grad(loss, numbers(tensors))(*tensors)
        return torch.stack([(grad**2).sum() for grad in grads]).sum()

    def traced(length: int) -> list[str]:
        tensors = of_length(name, length)
        second = func.grad(norm, numbers(tensors))
        return targets_of(make_fx(second, tracing_mode="fake")(*tensors).graph)

    short = traced(SHORT)
    assert short == traced(LONG)
    assert short.count(str(operator.overload)) == 1


@pytest.mark.compiler
def test_one_compiled_graph_serves_all_lengths() -> None:
    operator = BY_NAME["recurrent_lru"].operator
    torch._dynamo.reset()
    graphs: list[list[str]] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(targets_of(graph.graph))
        return graph

    step = compiled(operator, backend=count, dynamic=True)
    for length in (SHORT, LONG):
        a, x, h0 = of_length("recurrent_lru", length)
        # Of h = h/2 + 1/2 from 1/2: the distance to 1 halves in each step.
        torch.testing.assert_close(step(a, x, h0)[:4, 0], 1 - 0.5 ** torch.arange(2.0, 6).double())
    assert len(graphs) == 1
    assert sum(operator.line.name in target for target in graphs[0]) == 1
