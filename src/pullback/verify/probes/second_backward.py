"""A second backward through the same graph."""

from collections.abc import Iterator
from typing import Any

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import backward_text, nodes_of_target, require_own
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, place_of_error
from pullback.verify.trace import NodeTrace, Trace, watch_calls
from pullback.verify.tracing.difference import copy_values, find_difference
from pullback.verify.tracing.memory import tensors_held


class SecondBackward(Probe):
    """Backward can be run again through a retained graph.

    ## Why
    `retain_graph=True`, a gradient for each of several losses and a Jacobian row by row run the
    same backward more than once.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.twice = (2 * x).clone()
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            twice = ctx.twice
            del ctx.twice
            return grad * twice


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareAgain(Square):
        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * ctx.twice
    ```

    ## Cannot see
    Faults that only a third backward would show.
    """

    code = "PB518"
    name = "second-backward"
    about = frozenset({"repeat"})
    explains = frozenset({"repeat"})
    help = "leave ctx as forward left it"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Run backward twice with the same gradients and random state."""
        require_own(call)
        nodes: list[NodeTrace] = []
        with watch_calls(nodes):
            run = call.forward()
            before = {id(node): contents(node) for node in nodes}
            first = copy_values(run.backward(run.random_grads()))
        own = nodes_of_target(call, Trace(nodes=nodes))
        changes = [change for node in own for change in describe_changes(node, before[id(node)])]
        gone = changes[0] if changes else None
        where = next((p for node in own if (p := line_of(node, gone))), None) if gone else None
        said = f"backward {gone}" if gone else None
        try:
            second = run.backward(run.random_grads())
        except Exception as error:
            text = " ".join(str(error).split())
            if "clear_saved_tensors_on_access" in text:
                raise NotApplicable("clear_saved_tensors_on_access: one backward") from error
            yield self.breach(
                f"{call.target.name}: {said + ': ' if said else ''}a second backward through the "
                f"same graph (retain_graph=True) fails",
                where=where or place_of_error(error),
                raised=f"{type(error).__name__}: {text[:300]}",
            )
            return
        found = find_difference(first, second)
        if found is not None:
            yield self.breach(
                f"{call.target.name}: {said + ': ' if said else ''}a second backward through the "
                f"same graph (retain_graph=True) gives another gradient of "
                f"{call.leaves[found.index].name}",
                where=where,
                first_and_second=found.evidence,
            )


def contents(node: NodeTrace) -> dict[str, tuple[Any, int, Any]]:
    """Return what forward has put on ctx: each value, its length, and what identifies it."""
    own: dict[str, Any] = dict(node.ctx.__dict__) if node.ctx is not None else {}
    own.pop("apply", None)  # the trace's own
    return {name: (value, length_of(value), mark_of(value)) for name, value in own.items()}


def length_of(value: object) -> int:
    """Return the length of a container, -1 of anything else."""
    return len(value) if isinstance(value, list | dict | set | tuple) else -1


def mark_of(value: object) -> object:
    """Return what changes when a value does."""
    if value is None or isinstance(value, int | float | str):
        return value
    return [(id(tensor), tensor._version) for _, tensor in tensors_held(value, "")]


def describe_changes(node: NodeTrace, before: dict[str, tuple[Any, int, Any]]) -> list[str]:
    """Say what backward has done to ctx."""
    if node.ctx is None:
        return []
    now: dict[str, Any] = node.ctx.__dict__
    found: list[str] = []
    for name, (value, length, mark) in before.items():
        if name not in now:
            found.append(f"deletes ctx.{name}")
        elif now[name] is None and value is not None:
            found.append(f"sets ctx.{name} to None")
        elif length_of(value) != length:
            found.append(f"changes the list ctx.{name}")
        elif now[name] is not value or mark_of(value) != mark:
            found.append(f"changes ctx.{name}")
    return found


def line_of(node: NodeTrace, change: str) -> SourcePlace | None:
    """Return the line that does it."""
    name = change.rpartition("ctx.")[2].partition(" ")[0]
    text = backward_text(node)
    return text.deletes(name) or text.assigns(name) or text.mentions(name)
