"""Ways of the matrix that are modes around a call: autocast, memory, anomaly, copies, threads."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import processes
import pytest
import torch
from rows import FIRST, OWN_FIRST, ROWS, Row
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from traced import compiled
from ways import (
    Function,
    Tensors,
    Way,
    both,
    gradients,
    leaves_of,
    on_tensors,
    same,
    total,
)

import pullback as pb
from pullback.define.operator import Autocast

# --- autocast

LOWER = torch.float16
# Of a sum of few products of numbers below two.
ROUNDED = {"rtol": 5e-3, "atol": 5e-3}


def cast(policy: Autocast, tensors: Tensors) -> Tensors:
    """Return what a policy makes of tensors, in plain PyTorch."""
    if policy == "as_is":
        return tensors
    dtype = {"lower": LOWER, "float32": torch.float32}.get(policy)
    widest = functools.reduce(torch.promote_types, (t.dtype for t in tensors))
    return tuple(t.to(dtype or widest) for t in tensors)


def inputs_for(policy: Autocast, tensors: Tensors) -> Tensors:
    """Return inputs that the policy has something to do with: of mixed dtypes to promote."""
    if policy == "promote":
        return tuple(t.to(LOWER if i else torch.float32) for i, t in enumerate(tensors))
    return tuple(t.to(LOWER if policy == "float32" else torch.float32) for t in tensors)


def pulled(function: Function, leaves: list[Tensor], *, inside: bool) -> Any:
    """Return outputs and gradients, with backward inside or outside of the autocast region."""
    with torch.autocast("cpu", dtype=LOWER):
        outputs = function(*leaves)
        loss = torch.stack([(i + 1) * o.float().sum() for i, o in enumerate(outputs)]).sum()
        if inside:
            return outputs, torch.autograd.grad(loss, leaves)
    return outputs, torch.autograd.grad(loss, leaves)


def autocast(policy: Autocast, run: Callable[[Function], Function]) -> Callable[[Row, int], None]:
    """Return a check of a policy: dtypes and values, forward and backward."""

    def check(row: Row, seed: int) -> None:
        arguments = row.arguments(seed)
        function, tensors = on_tensors(arguments, row.casting(policy))
        reference, _ = on_tensors(arguments, row.reference)
        given = inputs_for(policy, tensors)
        ready = run(function)
        for inside in (False, True):
            leaves = leaves_of(given)
            found = pulled(ready, leaves, inside=inside)
            plain = leaves_of(given)
            outputs = reference(*cast(policy, tuple(plain)))
            loss = torch.stack([(i + 1) * o.float().sum() for i, o in enumerate(outputs)]).sum()
            exact = all(o.dtype == torch.float32 for o in outputs) and policy != "promote"
            bounds = {} if exact else ROUNDED
            same(found, (outputs, torch.autograd.grad(loss, plain)), **bounds)

    return check


# --- what is kept for backward


def checkpointed(*, reentrant: bool) -> Callable[[Function, Tensors], Any]:
    """Return what gives gradients through a checkpoint; a reentrant one wants `backward()`."""

    def use(function: Function, tensors: Tensors) -> Any:
        leaves = leaves_of(tensors)
        around: Any = functools.partial(checkpoint, function, use_reentrant=reentrant)
        total(around)(*leaves).backward()
        return [leaf.grad for leaf in leaves]

    return use


def seen_by_modes(operator: pb.Operator) -> Any:
    """Return what a dispatch mode sees of an operator made of a Function: its forward."""
    line = operator.line
    return getattr(getattr(torch.ops, line.namespace), f"_{line.name}_forward").default


def selective(row: Row, seed: int) -> None:
    """A checkpoint that is told to keep the operator's outputs."""
    own = {seen_by_modes(row.operator) if row.is_function else row.operator.overload}
    seen: list[Any] = []

    def policy(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        seen.append(operator)
        keep = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE
        return keep[operator not in own]

    def use(function: Function, tensors: Tensors) -> Any:
        around: Any = functools.partial(
            checkpoint,
            lambda *ts: function(*(t * 1 for t in ts)),
            use_reentrant=False,
            context_fn=functools.partial(create_selective_checkpoint_contexts, policy),
        )
        return gradients(around, tensors)

    function, tensors = on_tensors(row.arguments(seed), row.operator)
    found = use(function, tensors)
    same(found, gradients(on_tensors(row.arguments(seed), row.reference)[0], tensors))
    # A Function in C++ calls its kernel itself, so that nobody sees the operator below autograd.
    assert "foreign" in row.limits or own <= set(seen)


def hooked(function: Function, tensors: Tensors) -> Any:
    """Return gradients where a hook packs every saved tensor, as one that offloads to disk does."""
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        packed.append(tensor.detach().clone())
        return len(packed) - 1

    leaves = leaves_of(tensors)
    with saved_tensors_hooks(pack, lambda index: packed[index].clone()):
        loss = total(function)(*leaves)
    return torch.autograd.grad(loss, leaves)


def offloaded(function: Function, tensors: Tensors) -> Any:
    leaves = leaves_of(tensors)
    with save_on_cpu():
        loss = total(function)(*leaves)
    return torch.autograd.grad(loss, leaves)


# --- anomaly mode


def user_line(function: Function, tensors: list[Tensor]) -> Tensors:
    return function(*tensors)  # the line that anomaly mode has to name


def anomaly(row: Row, seed: int) -> None:
    """The error names the node, the warning this file's line of the forward call."""
    function, tensors = on_tensors(row.arguments(seed), row.operator)
    leaves = leaves_of(tensors)
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = user_line(function, leaves)[0]
        with pytest.raises(RuntimeError, match=r"Function '.*' returned nan values"):
            output.backward(torch.full_like(output, torch.nan))
    texts = [str(each.message) for each in caught]
    line = user_line.__code__.co_firstlineno + 1
    wanted = f'{__file__}", line {line}, in user_line'
    assert any("Traceback of forward call" in text and wanted in text for text in texts), texts


# --- modules


class Layer(nn.Module):
    """Holds an operator as an attribute and in a partial, and its inputs as parameters."""

    def __init__(self, call: Any, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.operator = call
        self.partial = functools.partial(call)
        self.fixed = tuple(None if isinstance(a, Tensor) else a for a in arguments)
        self.places = [i for i, a in enumerate(arguments) if isinstance(a, Tensor)]
        self.weights = nn.ParameterList([a.clone() for a in arguments if isinstance(a, Tensor)])

    def forward(self) -> Tensor:
        """Return a loss."""
        given = list(self.fixed)
        for place, weight in zip(self.places, self.weights, strict=True):
            given[place] = weight
        outputs = self.operator(*given), self.partial(*given)
        flat = [o for each in outputs for o in (each if isinstance(each, tuple) else (each,))]
        return torch.stack([(i + 1) * (o**2).sum() for i, o in enumerate(flat)]).sum()


def saved_and_loaded(module: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def copies(row: Row, seed: int) -> None:
    """A copied module has the same operator and weights of its own; it trains as the first does."""
    arguments = row.arguments(seed)
    module = Layer(row.operator, arguments)
    reference = Layer(row.reference, arguments)
    reference().backward()
    expected = [w.grad for w in reference.weights]
    for made in (
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        saved_and_loaded(module),
    ):
        assert made.operator is module.operator
        made().backward()
        same([w.grad for w in made.parameters()], expected)
    assert all(w.grad is None for w in module.weights)


# --- threads


def threads(row: Row, seed: int) -> None:
    """Each of several threads gets the gradients of its own inputs, of another size."""
    count = 4
    start = threading.Barrier(count)

    def work(index: int) -> None:
        arguments = row.arguments(seed + index, grow=index)
        function, tensors = on_tensors(arguments, row.operator)
        expected = gradients(on_tensors(arguments, row.reference)[0], tensors)
        start.wait()
        for _ in range(10):
            same(gradients(function, tensors), expected)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, index) for index in range(count)]:
            done.result()


def one_graph_in_threads(row: Row, seed: int) -> None:
    """Several threads go backward through one graph at the same time."""
    arguments = row.arguments(seed)
    function, tensors = on_tensors(arguments, row.operator)
    leaves = leaves_of(tensors)
    loss = total(function)(*leaves)
    expected = gradients(on_tensors(arguments, row.reference)[0], tensors)

    def work(_: int) -> Any:
        return torch.autograd.grad(loss, leaves, retain_graph=True)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(20)):
            same(found, expected)


# --- processes


REST = tuple(row for row in ROWS if row not in OWN_FIRST)


def in_processes(how: str) -> Callable[[Row, int], None]:
    """Return a check of what two processes wrote down about a row."""

    def check(row: Row, seed: int) -> None:
        together = next(rows for rows in (OWN_FIRST, REST) if row in rows)
        failure = processes.outcomes(together)[how][row.name]
        assert failure is None, failure

    return check


POLICIES: tuple[Autocast, ...] = ("lower", "float32", "promote", "as_is")
MODES = (
    *(
        Way(name=f"autocast, `{policy}`", check=autocast(policy, lambda f: f))
        for policy in POLICIES
    ),
    Way(name="autocast, compiled", check=autocast("lower", compiled), only=FIRST),
    Way(name="checkpoint, reentrant", check=both(checkpointed(reentrant=True), gradients)),
    Way(name="checkpoint, not reentrant", check=both(checkpointed(reentrant=False), gradients)),
    Way(name="checkpoint, selective", check=selective),
    Way(name="saved-tensor hooks", check=both(hooked, gradients)),
    Way(name="`save_on_cpu`", check=both(offloaded, gradients)),
    Way(name="anomaly mode", check=anomaly),
    Way(name="deepcopy, pickle, `torch.save`", check=copies),
    Way(name="threads, a graph each", check=threads),
    Way(name="threads, one graph", check=one_graph_in_threads),
    Way(name="DDP", check=in_processes("ddp")),
    Way(name="FSDP2", check=in_processes("fsdp")),
)
