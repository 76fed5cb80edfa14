"""A call's operations, recorded once and replayed in each call of the same shapes.

To find out which operations compute a formula takes Python longer than small operations take, and
depends on shapes and dtypes alone. So the operations of one call are recorded as they come, as a
function without branches. What a call reads from its data, such as whether an index is inside, is
read again and has to come out the same: else the call is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from pullback.bind.dense.value import is_traced
from pullback.bind.memo import Memo

Key = tuple[object, ...]
Outputs = list[Tensor | None]
Replay = Callable[..., Outputs | None]
Found = TypeVar("Found", bound=Outputs | None)

# Other subclasses of tensors may override operations.
PLAIN = (Tensor, Parameter)
MOST_KNOWN = 64  # shapes that one formula remembers
# A call of more operations takes slices of large tensors: Python's part of it is small.
MOST_STEPS = 400
# Methods whose answer does not depend on a tensor's values.
OF_SHAPE = ("dim", "numel", "size", "stride", "element_size", "is_floating_point", "__len__")


@dataclass(frozen=True)
class RecordedStep:
    """One operation.

    Attributes:
        call: the operation, as source.
        used: the tensors in it, by number.
        made: the tensors that it returns, by number; None for a result that is not a tensor.
        is_one: whether it returns one tensor and not a tuple.
        expected: the name of what it has to return; None if that does not matter.
        changes: whether it writes to one of its tensors.
    """

    call: str
    used: frozenset[int]
    made: tuple[int | None, ...] = ()
    is_one: bool = True
    expected: str | None = None
    changes: bool = False


class Recorder(TorchFunctionMode):
    """The operations of one call.

    Attributes:
        is_complete: whether all of them are there, and the same in each call of these shapes.
        steps: the operations, in their order.
        names: the values of the names in their source.
        given: where the memory of the tensors is that were given.
        has_changed: whether a step has written to it.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.is_complete = True
        self.steps: list[RecordedStep] = []
        self.names: dict[str, object] = {}
        self.many, self.has_changed = 0, False
        self.numbers = WeakTensorKeyDictionary()
        self.inputs = [self.number(tensor) for tensor in inputs]
        self.given = {memory_of(tensor) for tensor in inputs} - {0}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Run an operation, and record it."""
        result = func(*args, **(kwargs or {}))
        if self.is_complete:
            self.write(func, args, kwargs or {}, result)
        return result

    def write(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: object,
    ) -> None:
        """Record an operation."""
        name = getattr(func, "__name__", "")
        changes = "out" in kwargs or (name.endswith("_") and not name.endswith("__"))
        results = result if isinstance(result, tuple | list) else [result]
        if not any(isinstance(value, Tensor) for value in results):
            if name == "__get__" or name in OF_SHAPE:
                return
        elif isinstance(result, Tensor) and result in self.numbers and not changes:
            return  # not a new tensor, such as one converted to the dtype that it has
        used: set[int] = set()
        given = [self.source(arg, used) for arg in args]
        given += [f"{key}={self.source(arg, used)}" for key, arg in kwargs.items()]
        call = f"{self.named(func)}({', '.join(given)})"
        if name == "__getitem__" and any(map(is_mask, many_of(args[1]))):
            self.is_complete = False  # data decides how many elements that gives
        elif changes:
            self.steps.append(RecordedStep(call, frozenset(used), changes=True))
            written = kwargs.get("out", args[0] if args else None)
            self.has_changed |= any(memory_of(each) in self.given for each in many_of(written))
        elif not any(isinstance(value, Tensor) for value in results):
            self.steps.append(RecordedStep(call, frozenset(used), expected=self.named(result)))
            # Given up here, a call would leave tensors that it was given as they are not.
            self.is_complete &= not self.has_changed
        else:
            made = tuple(self.number(v) if isinstance(v, Tensor) else None for v in results)
            one = isinstance(result, Tensor)
            self.steps.append(RecordedStep(call, frozenset(used), made, is_one=one))
        self.is_complete &= len(self.steps) <= MOST_STEPS

    def number(self, tensor: Tensor) -> int:
        """Return a new number for a tensor."""
        self.numbers[tensor] = self.many
        self.many += 1
        return self.many - 1

    def named(self, value: object) -> str:
        """Return a name for a value."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def source(self, value: object, used: set[int]) -> str:
        """Return an argument as source, and add the tensors in it to those used."""
        if isinstance(value, Tensor):
            if value not in self.numbers:
                self.is_complete = False  # made by something that is not recorded
                return "None"
            used.add(self.numbers[value])
            return f"t{self.numbers[value]}"
        if type(value) in (tuple, list) and any(isinstance(v, Tensor) for v in many_of(value)):
            inside = "".join(f"{self.source(part, used)}, " for part in many_of(value))
            return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
        return self.named(value)

    def replay(self, outputs: Outputs) -> Replay | None:
        """Return a function that replays the operations on other inputs; None if it cannot.

        The function returns None for inputs that need other operations. It drops each tensor after
        its last use.
        """
        if not self.is_complete or any(o not in self.numbers for o in outputs if o is not None):
            return None
        found = [None if o is None else self.numbers[o] for o in outputs]
        needed = {number for number in found if number is not None} | {*self.inputs}
        lines: list[str] = []
        for step in reversed(self.steps):
            made = {number for number in step.made if number is not None}
            if not (step.changes or step.expected or made & needed):
                continue
            last = sorted((step.used | made) - needed)
            needed |= step.used
            if last:
                lines.append(f"del {', '.join(f't{number}' for number in last)}")
            lines.append(format_step(step))
        inputs = ", ".join(f"t{number}" for number in self.inputs)
        results = ", ".join("None" if number is None else f"t{number}" for number in found)
        body = "\n    ".join([*reversed(lines), f"return [{results}]"])
        names = dict(self.names)
        exec(f"def replay({inputs}):\n    {body}", names)
        replay: Any = names["replay"]
        return replay


def format_step(step: RecordedStep) -> str:
    """Return an operation as a line of source."""
    if step.expected:
        return f"if {step.call} != {step.expected}: return None"
    if not step.made:
        return step.call
    made = ", ".join("_" if number is None else f"t{number}" for number in step.made)
    return f"{made} = {step.call}" if step.is_one else f"({made},) = {step.call}"


def many_of(value: object) -> Sequence[object]:
    """Return the parts of a tuple or list, or the one value."""
    return value if isinstance(value, tuple | list) else (value,)  # pyright: ignore


def memory_of(value: object) -> int:
    """Return where a tensor's memory begins, of which it may be a part."""
    return value.untyped_storage().data_ptr() if isinstance(value, Tensor) else 0


def is_mask(value: object) -> bool:
    """Return whether an index is a boolean mask."""
    return isinstance(value, Tensor) and value.dtype == torch.bool


class Records:
    """The recorded calls of one formula, by their shapes.

    Attributes:
        known: for each key, what replays a call; None if such calls are evaluated each time.
        seen: the keys of calls that were evaluated once. The second one is recorded.
    """

    def __init__(self) -> None:
        self.known: Memo[Key, Replay | None] = Memo(MOST_KNOWN)
        self.seen: Memo[Key, None] = Memo(MOST_KNOWN)

    def outputs(
        self,
        arguments: Mapping[str, object],
        wanted: Key,
        evaluated: Callable[[Mapping[str, object]], Found],
    ) -> Found | Outputs:
        """Return the outputs of a call.

        Args:
            arguments: by name.
            wanted: what else the operations depend on.
            evaluated: evaluates a call; None says that it cannot.
        """
        tensors = [value for value in arguments.values() if isinstance(value, Tensor)]
        if not all(type(t) in PLAIN for t in tensors) or any(map(is_traced, tensors)):
            return evaluated(arguments)
        key = (*map(key_of_argument, arguments.values()), *wanted, torch.get_default_dtype())
        replay = self.known.get(key)
        found = None if replay is None else replay(*tensors)
        if found is not None:
            return found
        if key in self.known or key not in self.seen:
            self.seen[key] = None
            return evaluated(arguments)
        return self.record(key, arguments, evaluated)

    def record(
        self,
        key: Key,
        arguments: Mapping[str, object],
        evaluated: Callable[[Mapping[str, object]], Found],
    ) -> Found:
        """Return the outputs of a call, and record it."""
        # The same tensor may be given twice, and be two in another call of these shapes.
        given = {k: v.detach() if isinstance(v, Tensor) else v for k, v in arguments.items()}
        with Recorder([v for v in given.values() if isinstance(v, Tensor)]) as recorder:
            outputs = evaluated(given)
        self.known[key] = None if outputs is None else recorder.replay(outputs)
        return outputs


def key_of_argument(value: object) -> object:
    """Return all that the operations of a call depend on in an argument."""
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype, value.device)
    return repr(value)  # -0.0 is not 0.0 here
