"""Operators in index notation called with DTensors: each process computes its part.

Which parts go together follows from the line (`define/index/sharding.py`). The rule is registered
for the class DTensor by `torch.library.register_torch_dispatch`, and not with DTensor's own tables
(`register_sharding`): those remember their decision by the tensors alone, so that a backward asked
for one gradient would be taken for one asked for both, and an optional tensor for another.

Nothing of `torch.distributed` is imported here: there is no DTensor before somebody imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.bind.index.spread import Plan, plan_of, ways_of
from pullback.define.index import derived as indexed_derived
from pullback.define.index import sharding
from pullback.define.index.sharding import Placements
from pullback.define.operator import Definition
from pullback.diagnostic import Rule
from pullback.imported import when_imported

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

MixedTensors = Rule("PB357", "mixed-tensors")

MODULE = "torch.distributed.tensor"
Key = tuple[object, ...]


def register(definition: Definition, library: torch.library.Library) -> None:
    """Let an operator in index notation take DTensors, as soon as there are any.

    Args:
        definition: the operator.
        library: its registration, with which the rule goes.
    """
    rule = Distributed(definition)

    def act() -> None:
        tensor = sys.modules[MODULE].DTensor
        name = definition.line.qualname
        torch.library.register_torch_dispatch(name, tensor, rule, lib=library)

    when_imported(MODULE, definition.line.qualname, act)


def splits(definition: Definition) -> str:
    """Return how an operator in index notation and its gradients may be split, as tables."""
    assert definition.indexed
    backward = indexed_derived.backward(definition.indexed)
    every = [definition.indexed, *([backward.formula] if backward else [])]
    tables = [(i.line, sharding.shown(sharding.rules(i), i)) for i in every]
    return "\n\n".join(f"{str(line).partition(' = ')[0]}\n{table}" for line, table in tables)


class Distributed:
    """One operator's rule: places the inputs, calls it on each process's part, says what comes."""

    def __init__(self, definition: Definition) -> None:
        assert definition.indexed
        self.definition = definition
        self.indexed = definition.indexed
        self.rules: dict[Key, list[Placements]] = {}
        self.plans: dict[Key, Plan] = {}

    def __call__(
        self,
        cls: type,
        operator: Callable[..., Any],
        types: Sequence[type],
        arguments: tuple[object, ...],
        keywords: dict[str, Any] | None = None,
    ) -> object:
        """Return the outputs as DTensors, None for those that nobody wants."""
        keywords = keywords or {}
        given = kernel.completed(self.definition, arguments, keywords.get("output_mask"))
        names = [parameter.name for parameter in self.definition.line.parameters]
        named = dict(zip(names, given, strict=False))
        # Autograd is above this: what is moved and computed here is not recorded.
        with torch.no_grad():
            tensors = self.tensors(named)
            plan = self.plan(given, tensors)
            local = [
                placed(tensors[name], plan, name) if name in tensors else value
                for name, value in zip(names, arguments, strict=False)
            ]
            if plan.mesh.get_coordinate() is None:
                return plan.without()
            return plan.wrapped(operator(*local, **keywords))

    def tensors(self, named: Mapping[str, object]) -> dict[str, DTensor]:
        """Return the DTensors of a call, by name.

        Raises:
            PullbackError: PB357, a plain tensor is among them that is no single number, or one of
                another mesh.
        """
        module: Any = sys.modules[MODULE]
        line = self.definition.line
        found = {
            name: cast("DTensor", value)
            for name, value in named.items()
            if isinstance(value, module.DTensor)
        }
        first = next(iter(found))
        mesh = found[first].device_mesh
        for name, value in named.items():
            if isinstance(value, Tensor) and name not in found:
                if value.dim():
                    raise MixedTensors.error(
                        f"{line.qualname}: '{first}' is a DTensor, and '{name}' is a plain tensor",
                        help="distribute it too: distribute_tensor, or DTensor.from_local",
                    )
                everywhere = [module.Replicate()] * mesh.ndim
                found[name] = module.DTensor.from_local(value, mesh, everywhere)
            elif name in found and found[name].device_mesh != mesh:
                raise MixedTensors.error(
                    f"{line.qualname}: '{first}' and '{name}' are on two meshes",
                    help="distribute all of its tensors over one mesh",
                )
        return found

    def plan(self, given: tuple[object, ...], tensors: Mapping[str, DTensor]) -> Plan:
        """Return what is to be done, worked out once for each placement and shape."""
        key = tuple(map(described, given))
        if None in key:
            return self.planned(given, tensors)  # while it is traced with sizes that are symbols
        if key not in self.plans:
            if len(self.plans) >= kernel.MOST_KNOWN:
                self.plans.clear()
            self.plans[key] = self.planned(given, tensors)
        return self.plans[key]

    def planned(self, given: tuple[object, ...], tensors: Mapping[str, DTensor]) -> Plan:
        """Decide what is to be done."""
        outputs = kernel.outputs_of(self.definition, given)
        values = zip(self.definition.line.parameters, given, strict=False)
        absent = frozenset(parameter.name for parameter, value in values if value is None)
        ways = ways_of(self.ways(tuple(outputs.wanted), absent), outputs, tensors)
        return plan_of(ways, outputs, tensors)

    def ways(self, wanted: tuple[bool, ...], absent: frozenset[str]) -> list[Placements]:
        """Return the ways to split the operator, worked out once."""
        key = (wanted, absent)
        if key not in self.rules:
            found = sharding.rules(self.indexed, wanted, absent)
            self.rules[key] = [rule for rule in found if rule.reason is None]
        return self.rules[key]


def described(value: object) -> object:
    """Return all of an argument that the plan depends on; None if that cannot be compared."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, Tensor):
        return value is None
    if any(isinstance(size, torch.SymInt) for size in value.shape):
        return None
    where = getattr(value, "device_mesh", None), getattr(value, "placements", None)
    return (tuple(value.shape), value.dtype, *where)


def placed(tensor: DTensor, plan: Plan, name: str) -> Tensor:
    """Return what this process needs of a tensor."""
    if tensor.placements != plan.moved[name]:
        # Of what requires a gradient, PyTorch 2.11 would detach the copy in place, which it cannot.
        leaf = cast("DTensor", tensor.detach())
        tensor = leaf.redistribute(plan.mesh, plan.moved[name])
    local = tensor.to_local()
    coordinate = plan.mesh.get_coordinate()
    if coordinate and any(coordinate[dim] for dim in plan.once[name]):
        # All have it, and it is added to a sum over the processes: the first one adds it.
        return torch.zeros_like(local)
    return local
