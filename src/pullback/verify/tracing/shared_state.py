"""The state that calls of one target share: its class's attributes, globals, closures, module."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress

from torch import Tensor

from pullback.verify.call import Call
from pullback.verify.source import SourcePlace, Text
from pullback.verify.tracing.memory import tensors_held


def state_of(call: Call) -> dict[str, tuple[int, int]]:
    """Return the tensors that calls share: by name, the object and its version."""
    return {name: (id(tensor), tensor._version) for name, tensor in shared_tensors(call)}


def shared_tensors(call: Call) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that the author's functions reach beside their arguments."""
    for path, value in reachable(call):
        yield from tensors_held(value, path)


def reachable(call: Call) -> Iterator[tuple[str, object]]:
    """Yield the class's attributes, and what its functions have in closures and globals."""
    function = call.target.function
    if function is not None:
        for owner in function.__mro__:
            if not owner.__module__.startswith("torch.") and owner is not object:
                own = list(vars(owner).items())
                yield from ((f"{owner.__name__}.{k}", v) for k, v in own if not k.startswith("__"))
    for part in call.target.parts.values():
        with suppress(TypeError, ValueError):
            found = inspect.getclosurevars(inspect.unwrap(part))
            yield from found.nonlocals.items()
            yield from ((k, v) for k, v in found.globals.items() if not inspect.ismodule(v))
            for name, value in [*found.nonlocals.items(), *found.globals.items()]:
                if isinstance(value, type) and value is not function:
                    own = list(vars(value).items())
                    yield from ((f"{name}.{k}", v) for k, v in own if not k.startswith("__"))
    names = list(call.target.signature.parameters) if call.target.signature else []
    for name, value in [*zip(names, call.arguments, strict=False), *call.keywords.items()]:
        if not isinstance(value, Tensor):
            yield name, value


def written_between(call: Call, before: dict[str, tuple[int, int]]) -> list[str]:
    """Return the names of the shared tensors that a call has set or written to."""
    return [name for name, now in state_of(call).items() if before.get(name) != now]


def line_that_sets(call: Call, name: str) -> SourcePlace | None:
    """Return the line of the author's that sets a shared tensor."""
    attribute = name.split("[", maxsplit=1)[0].rsplit(".", maxsplit=1)[-1]
    texts = [Text(call.target.parts[p]) for p in ("forward", "setup") if p in call.target.parts]
    for text in texts:
        place = text.assigns(attribute) or text.writes()
        if place is not None:
            return place
    return None
