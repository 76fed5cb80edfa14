"""Ways of the matrix through tracers: `torch.compile` and `torch.export`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rows import FIRST, Row
from torch import Tensor, func, nn
from ways import (
    Function,
    Refusal,
    Tensors,
    Way,
    batches,
    both,
    either,
    foreign,
    func_grad,
    func_jvp,
    gradients,
    hessian,
    leaves_of,
    numbers,
    on_tensors,
    once,
    same,
    total,
)


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a whole function; inductor is left to a way of its own, since it takes longer."""
    options = {"backend": "aot_eager", **options}
    return torch.compile(function, fullgraph=True, **options)


def forward_and_backward(function: Function, tensors: Tensors) -> Any:
    with torch.no_grad():
        outputs = function(*tensors)
    return outputs, gradients(function, tensors)


def compiled_both(function: Function, tensors: Tensors) -> Any:
    # In a model, other operators come before.
    return forward_and_backward(compiled(lambda *ts: function(*(t * 1 for t in ts))), tensors)


def dynamic(row: Row, seed: int) -> None:
    """One graph serves other sizes, forward and backward."""
    frames: list[torch.fx.GraphModule] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        frames.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    steps = {}
    for call in (row.operator, row.reference):
        function, _ = on_tensors(row.arguments(seed), call)
        steps[call] = total(function)
    step = compiled(steps[row.operator], backend=count, dynamic=True)
    for grow in (0, 2, 5):
        _, tensors = on_tensors(row.arguments(seed, grow=grow), row.operator)
        leaves = leaves_of(tensors)
        found = torch.autograd.grad(step(*leaves), leaves)
        expected = torch.autograd.grad(steps[row.reference](*leaves), leaves)
        same(found, expected)
    assert len(frames) == 1


def inductor(function: Function, tensors: Tensors) -> Any:
    return gradients(torch.compile(function, fullgraph=True), tensors)


def compiled_vmap(function: Function, tensors: Tensors) -> Any:
    rows = batches(tensors, (0,) * len(tensors))
    return compiled(func.vmap(function))(*rows)


def plain_vmap(function: Function, tensors: Tensors) -> Any:
    return func.vmap(function)(*batches(tensors, (0,) * len(tensors)))


def compiled_grad(function: Function, tensors: Tensors) -> Any:
    return compiled(func.grad(total(function), numbers(tensors)))(*tensors)


def compiled_jvp(function: Function, tensors: Tensors) -> Any:
    return compiled(lambda *ts: func_jvp(function, ts))(*tensors)


def compiled_hessian(function: Function, tensors: Tensors) -> Any:
    return compiled(lambda *ts: hessian(function, ts))(*tensors)


def compiled_vmap_grad(function: Function, tensors: Tensors) -> Any:
    gradient = func.vmap(func.grad(total(function), numbers(tensors)))
    return compiled(gradient)(*batches(tensors, (0,) * len(tensors)))


def plain_vmap_grad(function: Function, tensors: Tensors) -> Any:
    gradient = func.vmap(func.grad(total(function), numbers(tensors)))
    return gradient(*batches(tensors, (0,) * len(tensors)))


def compiled_twice(function: Function, tensors: Tensors) -> Any:
    leaves = leaves_of(tensors)
    # The loss is outside: the gradient that arrives then depends on the leaves.
    loss = total(compiled(function))(*leaves)
    first = torch.autograd.grad(loss, leaves, create_graph=True)
    return torch.autograd.grad(torch.stack([(g**2).sum() for g in first]).sum(), leaves)


class Layer(nn.Module):
    """A module that holds a function."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self.function(*tensors)


def export(*, strict: bool) -> Callable[[Row, int], None]:
    """Return a check that the exported program calls the operator, and agrees."""

    def check(row: Row, seed: int) -> None:
        arguments = row.arguments(seed)
        function, tensors = on_tensors(arguments, row.operator)
        program = torch.export.export(Layer(function), tensors, strict=strict)
        called = [node.target for node in program.graph.nodes if node.op == "call_function"]
        assert row.operator.overload in called
        same(program.module()(*tensors), on_tensors(arguments, row.reference)[0](*tensors))

    return check


def export_dynamic(row: Row, seed: int) -> None:
    """A program with dynamic sizes serves others."""
    function, tensors = on_tensors(row.arguments(seed), row.operator)
    auto = torch.export.Dim.AUTO
    shapes = {
        "tensors": tuple({d: auto for d in range(t.dim()) if t.shape[d] > 1} for t in tensors)
    }
    program = torch.export.export(Layer(function), tensors, dynamic_shapes=shapes)
    module = program.module()
    for grow in (0, 3):
        reference, other = on_tensors(row.arguments(seed, grow=grow), row.reference)
        same(module(*other), reference(*other))


PUSHED = Refusal(
    "PB379",
    "PB379: a tracer cannot look into a Function, of whose backward this is derived",
    "leave it uncompiled, by `torch.compiler.disable` and without `fullgraph`",
)
OUTSIDE = "PyTorch: a compiled function cannot be differentiated twice from outside"
TWICE = Refusal(
    "does not currently support double backward",
    OUTSIDE,
    "take both derivatives inside of what is compiled, by `torch.func`, or leave it uncompiled",
)
TWICE_FUNCTION = Refusal(
    "does not currently support double backward",
    f"{OUTSIDE}, nor a Function from inside (PB379)",
    "leave it uncompiled, by `torch.compiler.disable` and without `fullgraph`",
)


def pushed_traced(row: Row) -> Refusal | None:
    """Return what compiled forward mode raises."""
    return PUSHED if row.is_function else once(row)


TRACED = (
    Way(
        name="compile, forward and backward",
        check=both(compiled_both, forward_and_backward, first=True),
    ),
    Way(name="compile, dynamic shapes", check=dynamic),
    Way(name="compile with inductor", check=both(inductor, gradients, first=True), only=FIRST),
    Way(name="compile of `vmap`", check=both(compiled_vmap, plain_vmap, first=True)),
    Way(
        name="compile of `func.grad`",
        check=both(compiled_grad, func_grad, first=True),
        refusal=foreign,
    ),
    Way(
        name="compile of `vmap(grad)`",
        check=both(compiled_vmap_grad, plain_vmap_grad, first=True),
        refusal=foreign,
        only=FIRST,
    ),
    Way(
        name="compile of `func.jvp`",
        check=both(compiled_jvp, func_jvp, first=True),
        refusal=either(foreign, pushed_traced),
    ),
    Way(
        name="compile of `func.hessian`",
        check=both(compiled_hessian, hessian, first=True),
        refusal=either(foreign, pushed_traced),
        only=FIRST,
    ),
    Way(
        name="double backward of what is compiled",
        check=both(compiled_twice, first=True),
        refusal=lambda row: TWICE_FUNCTION if row.is_function else TWICE,
    ),
    Way(name="export", check=export(strict=False)),
    Way(name="export, strict", check=export(strict=True)),
    Way(name="export, dynamic shapes", check=export_dynamic),
)
