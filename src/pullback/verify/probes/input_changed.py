"""Forward writes into an input."""

from collections.abc import Iterator

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call, Run, format_call
from pullback.verify.invariance.sizes import axes_of, is_small, resize
from pullback.verify.invariance.variants import is_taken
from pullback.verify.nodes import EVERYTHING
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.trace import NodeTrace, watch_calls
from pullback.verify.tracing.memory import count_changed, shares


class InputChanged(Probe):
    """Forward leaves its inputs as they are, or says that it changes them.

    ## Why
    Others may need the values that an input had: the backward of the operation that made it, or a
    second consumer. Autograd raises there, or does not notice at all if a kernel wrote.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleDeclared(Double):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)
    ```

    ## Cannot see
    A write that leaves every value as it was; a change of something that is not an input.
    A buffer without a gradient that is updated by PyTorch's own operations is advice: they count.
    """

    code = "PB502"
    name = "input-changed"
    unnatural = True
    milder = True
    needs = "forward"
    explains = EVERYTHING - {"forward"}

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare every input before forward with the same one after it, at other sizes too."""
        if call.target.kind in ("module", "callable"):
            raise NotApplicable(
                "what a function of tensors does to its arguments is its own affair"
            )
        for own in (call, *uneven_calls(call)):
            found = list(self.changes(own, inputs=None if own is call else format_call(own)))
            yield from found
            if found:
                return

    def changes(self, call: Call, *, inputs: str | None) -> Iterator[Finding]:
        """Say which inputs a call changes that it does not declare."""
        nodes: list[NodeTrace] = []
        versions: list[int] = []

        def counted(value: Tensor) -> Tensor:
            copy = value.clone()
            versions.append(copy._version)
            return copy

        with watch_calls(nodes):
            run = call.forward(prepare=counted)
        declared = declared_of(call, run, nodes)
        for index, (leaf, given) in enumerate(zip(call.leaves, run.given, strict=True)):
            count = count_changed(leaf.value, given)
            if not count or index in declared:
                continue
            moved = given._version != versions[index]
            harmless = call.target.kind == "function" and moved and not leaf.wanted
            yield self.breach(
                describe_change(
                    call, run, leaf.name, given, f"{count} of {given.numel()} elements"
                ),
                level="advice" if harmless else "fault",
                where=line_of(call),
                help=cure(call, run, leaf.name, given),
                inputs=inputs,
                changed=f"{count} of {given.numel()} elements",
                seen_by_autograd=None if moved else "no: the version counter did not move",
            )


def uneven_calls(call: Call) -> Iterator[Call]:
    """Yield the call at odd, small and large sizes: forward may take another path for one."""
    for axes in axes_of(call):
        for size in (axes.size + 1, 2, 67):
            if size == axes.size or not is_small(call, axes, size):
                continue
            other = next(resize(call, axes, size))
            if is_taken(other):
                yield other


def line_of(call: Call) -> SourcePlace | None:
    """Return where forward does something in place, or where it begins."""
    if "forward" not in call.target.parts:
        return None
    text = Text(call.target.parts["forward"])
    return text.writes() or text.place


def describe_change(call: Call, run: Run, name: str, given: Tensor, count: str) -> str:
    """Say what happened to an input, and that it is not declared."""
    target = call.target
    if target.kind != "function":
        return (
            f"{target.name} changes its argument {name} ({count}), a mutation that its schema "
            f"does not declare"
        )
    if any(shares(output, given) for output in run.outputs):
        return (
            f"{target.name}: {name} is changed in place and returned, but not declared: "
            f"ctx.mark_dirty({name})"
        )
    return (
        f"{target.name}: forward changes its input {name} in place ({count}) though it is not an "
        f"output"
    )


def cure(call: Call, run: Run, name: str, given: Tensor) -> str:
    """Return what to do about it."""
    if call.target.kind != "function":
        return f"declare it: mutates_args=('{name}',), or work on a copy: {name} = {name}.clone()"
    if any(shares(output, given) for output in run.outputs):
        return f"ctx.mark_dirty({name}) in forward, or return a new tensor"
    return f"work on a copy, {name}.clone(); or ctx.mark_dirty({name}) and return {name} as well"


def declared_of(call: Call, run: Run, nodes: list[NodeTrace]) -> set[int]:
    """Return the leaves that are declared to be changed."""
    dirty = [
        own
        for node in nodes
        for told in node.told
        if told.method == "mark_dirty"
        for own in told.arguments
    ]
    found = {i for i, given in enumerate(run.given) if any(own is given for own in dirty)}
    if call.target.overload is not None:
        written = {
            argument.name
            for argument in call.target.overload._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        found |= {i for i, leaf in enumerate(call.leaves) if leaf.name.split("[")[0] in written}
    return found
