"""A trace of one forward and backward: what each autograd.Function was given, kept and returned.

It sees what backward returns before the engine sums, casts or refuses it, and records forward's
calls on ctx with the author's line. Functions are watched wherever they are called: by the target
itself, inside a module, or by PyTorch for an operator that was registered with `torch.library`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction, FunctionCtx

from pullback.verify.call import tensors_in
from pullback.verify.source import SourcePlace, authors_place
from pullback.verify.target import Part, parts_of
from pullback.verify.tracing.memory import count_changed, is_same_memory
from pullback.verify.tracing.patch import Apply, apply_watched, forward_noted

if TYPE_CHECKING:
    from pullback.verify.call import Call, Run

FunctionBase: Any = torch._C._FunctionBase

TOLD = (
    "save_for_backward",
    "save_for_forward",
    "mark_dirty",
    "mark_non_differentiable",
    "set_materialize_grads",
)


@dataclass(frozen=True)
class Told:
    """One call of a method of ctx in forward."""

    method: str
    arguments: tuple[Any, ...]
    place: SourcePlace | None


@dataclass
class SavedTensor:
    """One tensor that a node keeps through save_for_backward.

    Attributes:
        tensor: what backward gets.
        before: its values after forward.
        what: "input x", "output 0", "x.detach()", "intermediate".
    """

    tensor: Tensor
    before: Tensor
    what: str

    @property
    def changed(self) -> int:
        """How many of its elements differ now, NaN counted as equal to itself."""
        return count_changed(self.before, self.tensor)


@dataclass
class NodeTrace:
    """One call of an autograd.Function.

    Attributes:
        function: its class; `torch.library` makes one for each operator.
        arguments: what `apply` was given.
        inputs: the tensors in them, by place: also in lists, where autograd does not see them.
        returned: what `apply` returned.
        raw: what forward returned, before PyTorch made outputs of it; None for PyTorch's own.
        ctx: the node; None if nothing required a gradient.
        told: the calls of methods of ctx in forward, in order.
        attributes: those that forward set on ctx.
        saved: the tensors that were saved for backward.
        unpacks: how often backward read `ctx.saved_tensors`.
        arrived: for each backward, the gradients that it was given.
        copies: of these, from before backward saw them.
        gave: for each backward, what it returned, untouched.
        errors: for each backward, what it raised.
    """

    function: type[Function]
    arguments: tuple[Any, ...]
    returned: Any = None
    raw: Any = None
    ctx: Any = None
    told: list[Told] = field(default_factory=list[Told])
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    saved: list[SavedTensor] = field(default_factory=list[SavedTensor])
    unpacks: list[SourcePlace | None] = field(default_factory=list["SourcePlace | None"])
    arrived: list[tuple[Tensor | None, ...]] = field(default_factory=list[Any])
    copies: list[tuple[Tensor | None, ...]] = field(default_factory=list[Any])
    gave: list[tuple[Any, ...]] = field(default_factory=list[Any])
    errors: list[Exception | None] = field(default_factory=list[Any])

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that `apply` was given, also those in lists."""
        return tensors_in(self.arguments)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that it returned."""
        return tensors_in(self.returned)

    @property
    def parts(self) -> Mapping[Part, Callable[..., Any]]:
        """The functions that its author wrote, also for an operator of `torch.library`."""
        return parts_of(self.function)


@dataclass
class Trace:
    """One forward and one backward with Gaussian gradients.

    Attributes:
        run: None if forward raised.
        nodes: the Functions that ran, innermost first.
        gradients: of the leaves; None if backward raised.
        forward_error: what forward raised.
        backward_error: what the engine raised, or backward through it.
    """

    run: Run | None = None
    nodes: list[NodeTrace] = field(default_factory=list[NodeTrace])
    gradients: tuple[Tensor | None, ...] | None = None
    forward_error: Exception | None = None
    backward_error: Exception | None = None

    def of(self, function: type[Function] | None) -> NodeTrace | None:
        """Return the last call of a Function; of the outermost one for None."""
        found = [node for node in self.nodes if function is None or node.function is function]
        return found[-1] if found else None


def trace(call: Call, *, grads: Sequence[Tensor | None] | None = None) -> Trace:
    """Run a forward and a backward and record everything about them.

    Args:
        call: what is called.
        grads: of the outputs; Gaussian where not given.
    """
    found = Trace()
    with watch_calls(found.nodes):
        try:
            found.run = call.forward()
        except Exception as error:
            found.forward_error = error
            return found
        try:
            found.gradients = found.run.backward(
                found.run.random_grads() if grads is None else grads
            )
        except Exception as error:
            found.backward_error = error
    return found


@contextmanager
def watch_calls(nodes: list[NodeTrace]) -> Generator[None]:
    """Record each call of an autograd.Function in `nodes`, and what its backward does later."""
    calling: list[NodeTrace] = []
    methods = {name: getattr(FunctionCtx, name) for name in TOLD}

    def apply(original: Apply, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        node = NodeTrace(function=cls, arguments=args)
        calling.append(node)
        try:
            with forward_noted(cls, partial(setattr, node, "raw")):
                node.returned = original(cls, args, kwargs)
        finally:
            calling.pop()
            nodes.append(node)
        attach(node)
        if node.ctx is not None and type(node.ctx) not in counted:
            counted.add(type(node.ctx))
            type(node.ctx).saved_tensors = property(count_reads(nodes))
        return node.returned

    def telling(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def tell(ctx: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if calling:
                given = (*args, *kwargs.values())
                calling[-1].told.append(Told(name, given, authors_place()))
            return method(ctx, *args, **kwargs)

        return tell

    counted: set[type] = set()
    for name, method in methods.items():
        setattr(FunctionCtx, name, telling(name, method))
    try:
        with apply_watched(apply):
            yield
    finally:
        for name, method in methods.items():
            setattr(FunctionCtx, name, method)
        for own in counted:
            del own.saved_tensors


def count_reads(nodes: list[NodeTrace]) -> Callable[[Any], tuple[Tensor, ...]]:
    """Return a getter of `ctx.saved_tensors` that records where backward reads it."""

    def saved_tensors(ctx: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
        place = authors_place()
        for node in nodes:
            if node.ctx is ctx and len(node.arrived) > len(node.errors):
                node.unpacks.append(place)
        return FunctionBase.saved_tensors.__get__(ctx)

    return saved_tensors


def attach(node: NodeTrace) -> None:
    """Find a Function's node in the graph, record what it keeps, and watch its backward."""
    found = [
        output.grad_fn
        for output in node.outputs
        if getattr(type(output.grad_fn), "_forward_cls", None) is node.function
    ]
    if not found:
        return
    ctx: Any = found[0]
    assert isinstance(ctx, BackwardCFunction)
    node.ctx = ctx
    node.attributes = dict(ctx.__dict__)
    node.saved = [
        SavedTensor(tensor, tensor.detach().clone(), describe_tensor(tensor, node))
        for tensor in saved_by(node)
    ]
    real = ctx.apply

    def backward(*grads: Any) -> Any:  # noqa: ANN401
        node.arrived.append(grads)
        node.copies.append(tuple(None if grad is None else grad.detach().clone() for grad in grads))
        try:
            gave = real(*grads)
        except Exception as error:
            node.gave.append(())
            node.errors.append(error)
            raise
        node.gave.append(gave if isinstance(gave, tuple) else (gave,))
        node.errors.append(None)
        return gave

    ctx.apply = backward


def saved_by(node: NodeTrace) -> tuple[Tensor, ...]:
    """Return the tensors that a node has saved."""
    if getattr(node.function, "clear_saved_tensors_on_access", False):
        # They can be read only once, by backward.
        told = [one for one in node.told if one.method == "save_for_backward"]
        return tensors_in(told[-1].arguments) if told else ()
    try:
        return tensors_in(FunctionBase.saved_tensors.__get__(node.ctx))
    except RuntimeError:  # forward changed one in place after saving it
        return ()


def describe_tensor(tensor: Tensor, node: NodeTrace) -> str:
    """Return which of a call's tensors a saved one is."""
    for index, own in enumerate(node.inputs):
        if tensor is own:
            return f"input {index}"
    for index, own in enumerate(node.outputs):
        if tensor is own or (tensor.grad_fn is own.grad_fn and tensor.output_nr == own.output_nr):
            return f"output {index}"
    for index, own in enumerate(node.inputs):
        if is_same_memory(tensor, own):
            return f"input {index} detached"
    for index, own in enumerate(node.outputs):
        if is_same_memory(tensor, own):
            return f"output {index} detached"
    return "intermediate"
