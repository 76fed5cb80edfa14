"""An adopted Function -> its operator: what happens at a call, and where it is registered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pullback.bind import kernel, levels, sharding, takeover
from pullback.bind.functions import transforms
from pullback.bind.functions.adopted import Adopted, overrides
from pullback.bind.functions.batched import runs_on_batch
from pullback.bind.functions.eager import make_recorder
from pullback.bind.functions.memory import require_unchanged
from pullback.bind.functions.opaque import Hidden
from pullback.bind.memo import Memo, key_of_argument
from pullback.bind.operator import Operator, find_misuse
from pullback.define.line import Scalar
from pullback.define.operator import Definition

if TYPE_CHECKING:
    from pullback.bind.kinds.kind import Kind

PLAIN = (Tensor, torch.nn.Parameter)
# PyTorch itself calls this before it looks at a single argument.
transforms_active = torch._C._are_functorch_transforms_active
dispatch_modes = torch._C._len_torch_dispatch_stack
function_modes = torch._C._len_torch_function_stack
autocast_enabled = torch._C._is_any_autocast_enabled
is_compiling = torch.compiler.is_compiling


class FunctionOperator(Operator):
    """An operator made from an existing `torch.autograd.Function`."""

    calls: CallChecks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call it: in plain eager mode by the Function's own node, otherwise by the dispatcher.

        Forward's `*tensors` may be given as a list or one by one.
        """
        calls = self.calls
        if calls.spread and len(args) >= calls.count and isinstance(args[calls.count - 1], Tensor):
            args = (*args[: calls.count - 1], list(args[calls.count - 1 :]))
        if kwargs or is_compiling() or function_modes() or autocast_enabled() or not is_eager():
            if not kwargs and calls.batches and is_transform(calls.adopted):
                if wrong := find_misuse(self, args, kwargs):
                    raise wrong
                given = (*args, *calls.defaults[len(args) :])
                if calls.is_vectorized(given):
                    return calls.transformed(given)
            return super().__call__(*args, **kwargs)
        given = args if len(args) >= calls.count else (*args, *calls.defaults[len(args) :])
        key = key_of(given)
        last_key, last = calls.last
        # Comparing two keys takes a fraction of the time of hashing one.
        expected = last if key == last_key else calls.known.get(key)
        if expected is None:  # a call of a new kind is checked on its way through the dispatcher
            return super().__call__(*args)
        calls.last = key, expected
        return calls.run(expected, given)


def is_eager() -> bool:
    """Return whether no transform, tracer or forward mode is active."""
    return not transforms_active() and not dispatch_modes() and forward_ad._current_level < 0


def is_transform(adopted: Adopted) -> bool:
    """Return whether a Function's own rules can be used: only `torch.func` is active.

    PyTorch's own `apply` has no forward mode without a jvp; and a tracer would trace into it.
    """
    if is_compiling() or not transforms_active() or dispatch_modes():
        return False
    return forward_ad._current_level < 0 or adopted.push is not None


def key_of(arguments: Sequence[Any]) -> object:
    """Return everything in a call's arguments on which its checks and outputs' shapes depend.

    It is None if one of them is not plain, so that PyTorch has to see the call.
    """
    key: list[object] = []
    for value in arguments:
        if type(value) in PLAIN:
            key += (value.shape, value.dtype, value.device, value.layout)
        elif isinstance(value, list | tuple):
            own = key_of(value)
            if own is None:
                return None
            key.append(own)
        elif value is None or isinstance(value, int | float | str):
            key += (type(value), value)
        else:
            return None
    return tuple(key)


class CallChecks:
    """The checks around a call of a Function, remembered by the kind of its arguments."""

    def __init__(self, definition: Definition, adopted: Adopted) -> None:
        line = definition.line
        self.definition = definition
        self.adopted = adopted
        self.record = make_recorder(adopted)
        self.batches = adopted.batches
        self.count = len(line.parameters)
        # Forward's `*tensors` may be given one by one too, as to `apply`.
        self.spread = adopted.spread
        self.defaults = [p.default if isinstance(p, Scalar) else None for p in line.parameters]
        # Without a tensor of the shared dtype, the outputs' dtypes depend on PyTorch's default.
        self.remember = any(tensor.dtype is None for tensor in line.tensors)
        self.memo: Memo[object, kernel.Outputs] = Memo()
        # Kinds whose first call was checked closely, and was right.
        self.known: Memo[object, kernel.Outputs] = Memo()
        self.last: tuple[object, kernel.Outputs | None] = (None, None)
        self.vectorized: Memo[object, bool] = Memo()
        self.single = len(line.outputs) == 1

    def outputs(self, arguments: Sequence[object]) -> kernel.Outputs:
        """Check a call's arguments and return a description of its outputs."""
        key = key_of(arguments) if self.remember else None
        if key in self.memo:
            return self.memo[key]
        found = kernel.outputs_of(self.definition, arguments)
        if key is not None:
            self.memo[key] = found
        return found

    def eager(self, arguments: Sequence[Any]) -> Any:  # noqa: ANN401
        """Run the Function as PyTorch does, between the checks of its inputs and outputs."""
        expected = self.outputs(arguments)
        flat, _ = self.adopted.flat(arguments)
        before = kernel.versions(flat)
        returned = self.run(expected, arguments)
        require_unchanged(self.adopted, before, flat)
        if self.remember:
            self.known[key_of(arguments)] = expected
        return returned

    def is_vectorized(self, arguments: Sequence[Any]) -> bool:
        """Return whether a Function with rules of its own runs inside `torch.vmap`.

        PyTorch's own rule, `generate_vmap_rule`, runs code for one element on a batch.
        """
        if overrides(self.adopted.function, "vmap"):
            return True
        key = tuple(map(key_of_argument, arguments))
        return self.vectorized.get_or_make(key, lambda: runs_on_batch(self.adopted, arguments))

    def transformed(self, arguments: Sequence[Any]) -> Any:  # noqa: ANN401
        """Call a Function with rules of its own inside `torch.func`, which uses them."""
        kernel.outputs_of(self.definition, arguments)
        return self.adopted.function.apply(*arguments)

    def run(self, expected: kernel.Outputs, arguments: Sequence[Any]) -> Any:  # noqa: ANN401
        """Run the Function and check its outputs."""
        returned: Any = self.record(*arguments)
        if (
            self.single
            and returned.shape == expected.shapes[0]
            and returned.dtype == expected.dtypes[0]
        ):
            return returned
        values: tuple[Tensor, ...] = (returned,) if self.single else returned
        for index, (shape, dtype) in enumerate(zip(expected.shapes, expected.dtypes, strict=True)):
            if values[index].shape != shape or values[index].dtype != dtype:
                # Raises the right error, unless the line says nothing about the shape.
                kernel.check_output(expected, index, values[index])
        return returned


def install(
    kind: Kind,
    adopted: Adopted,
    library: torch.library.Library,
    overload_of: Callable[[str], torch._ops.OpOverload],
) -> Operator:
    """Register all parts of an adopted Function; return its operator."""
    definition = kind.definition
    line = definition.line
    calls = CallChecks(definition, adopted)
    hidden = Hidden(adopted, definition, calls.outputs)
    hidden.register(library)
    for name in hidden.names:
        overload_of(f"{line.namespace}::{name}")
    transformed = transforms.register(hidden, library)
    overload = overload_of(line.qualname)
    distributed = sharding.Distributed(definition, kind.placements)

    def autograd(keys: Any, *given: Any) -> Any:  # noqa: ANN401
        arguments = kernel.fill_defaults(definition, given, None)
        flat, _ = adopted.flat(arguments)
        if sharding.are_among(flat):
            return distributed.differentiably(overload, arguments)
        if is_eager() and key_of(flat) is not None:
            return calls.eager(arguments)
        if line.changed or levels.is_tracked(flat) or levels.has_tangent(flat):
            return transformed.call(*arguments)
        with levels.BELOW():
            return overload.redispatch(keys & torch._C._after_autograd_keyset, *given)

    if definition.taken == "no":
        library.impl(line.name, hidden.plain, "CompositeExplicitAutograd")
        library.impl(line.name, autograd, "Autograd", with_keyset=True)
        torch.library.register_fake(line.qualname, hidden.fakes.fake, lib=library)
        kind.register_batching(library, overload)
    else:
        # More specific keys than the one of its own derivative.
        for key in ("AutogradCPU", "AutogradCUDA"):
            library.impl(line.name, autograd, key, with_keyset=True)
        takeover.register(kind, library, overload)
    made = FunctionOperator(kind, overload)
    made.calls = calls
    return made
