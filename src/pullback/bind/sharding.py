"""Operators called with DTensors: each process computes its part.

Which parts go together follows from the line (`define/sharding.py`, and of index notation
`define/math/sharding.py`). The rule is registered for the class DTensor by
`torch.library.register_torch_dispatch`, and not with DTensor's own tables (`register_sharding`):
those remember their decision by the tensors alone, so that a backward asked for one gradient would
be taken for one asked for both, and an optional tensor for another.

A Function keeps state of its own between forward and backward, so it is called as a whole, above
autograd, and PyTorch differentiates the moving of its tensors.

Nothing of `torch.distributed` is imported here: there is no DTensor before somebody imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from pullback.bind import kernel, notebook
from pullback.bind.memo import Memo
from pullback.bind.merge import Merger
from pullback.bind.redistribute import Redistribution, plan_of, ways_of
from pullback.define import sharding
from pullback.define.line import Line
from pullback.define.math.formula import Formula
from pullback.define.operator import Definition
from pullback.define.sharding import Placements
from pullback.diagnostic import Rule
from pullback.imported import when_imported

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

    from pullback.bind.operator import Operator

MixedTensors = Rule("PB357", "mixed-tensors")
NotDistributed = Rule("PB358", "not-distributed")

MODULE = "torch.distributed.tensor"
Key = tuple[object, ...]
# `Kind.placements`: takes the outputs that are wanted and the optional tensors that are None.
Ways = Callable[[Sequence[bool], frozenset[str]], list[Placements]]


def register(
    definition: Definition,
    ways: Ways,
    library: torch.library.Library,
    operator_of: Callable[[Formula], Operator],
) -> None:
    """Let an operator take DTensors, as soon as there are any.

    Args:
        definition: the operator.
        ways: returns the ways to split it.
        library: its registration, which holds the rule too.
        operator_of: returns the operator of a formula.
    """
    rule = Distributed(definition, ways, operator_of)

    def act() -> None:
        tensor = sys.modules[MODULE].DTensor
        name = definition.line.qualname
        torch.library.register_torch_dispatch(name, tensor, rule, lib=library)

    when_imported(MODULE, definition.line.qualname, act)


def are_among(values: Sequence[object]) -> bool:
    """Return whether a DTensor is among the arguments of a call."""
    module: Any = sys.modules.get(MODULE)
    return module is not None and any(isinstance(value, module.DTensor) for value in values)


@dataclass(frozen=True)
class Sharding:
    """How an operator may be split over processes; printed as tables."""

    tables: str

    def __str__(self) -> str:
        return self.tables

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.show_text(self.tables)


def show_tables(tables: Sequence[tuple[Line, list[Placements]]]) -> Sharding:
    """Return the ways to split some operators as tables, each under its line."""
    text = (
        f"{str(line).partition(' = ')[0]}\n{sharding.format_table(found, line)}"
        for line, found in tables
    )
    return Sharding("\n\n".join(text))


class Distributed:
    """One operator's rule: places the inputs, calls it on a process's parts, wraps the results."""

    def __init__(
        self,
        definition: Definition,
        ways: Ways,
        operator_of: Callable[[Formula], Operator] | None = None,
    ) -> None:
        self.definition = definition
        self.ways_of = ways
        self.operator_of = operator_of
        self.rules: Memo[Key, list[Placements]] = Memo()
        self.plans: Memo[Key, Redistribution] = Memo()

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
        given = kernel.fill_defaults(self.definition, arguments, keywords.get("output_mask"))
        # Autograd is above this: what is moved and computed here is not recorded.
        with torch.no_grad():
            return self.called(
                lambda local: operator(*local, **keywords), given, arguments, place_tensor
            )

    def differentiably(self, call: Callable[..., Any], arguments: tuple[object, ...]) -> object:
        """Return the outputs of a call whose own autograd is below the moving of its tensors.

        Args:
            call: takes plain tensors.
            arguments: of the call.
        """
        return self.called(lambda local: call(*local), arguments, arguments, place_for_autograd)

    def called(
        self,
        call: Callable[[list[object]], object],
        given: tuple[object, ...],
        arguments: tuple[object, ...],
        place: Callable[[DTensor, Redistribution, str], Tensor],
    ) -> object:
        """Place the tensors, call with this process's parts of them, and wrap the results.

        Args:
            call: takes the arguments of one process.
            given: the arguments, with defaults and the mask of outputs.
            arguments: those to pass on.
            place: returns what this process needs of a tensor.
        """
        self.require_possible()
        names = [parameter.name for parameter in self.definition.line.parameters]
        tensors = self.tensors(dict(zip(names, given, strict=False)))
        plan = self.plan(given, tensors)
        local = [
            place(tensors[name], plan, name) if name in tensors else value
            for name, value in zip(names, arguments, strict=False)
        ]
        if plan.mesh.get_coordinate() is None:
            return plan.without()
        if plan.merging:
            values = (*local, *given[len(local) :])
            return plan.wrapped(self.merged(plan, dict(zip(names, values, strict=False))))
        return plan.wrapped(call(local))

    def merged(self, plan: Redistribution, values: Mapping[str, object]) -> object:
        """Return this process's outputs where processes merge statistics."""
        assert plan.merging
        assert plan.share
        assert self.operator_of
        merger = Merger(plan.merging, plan.share, values, self.operator_of, plan.operators)
        wanted = plan.outputs.wanted
        if plan.merging.picks:
            merger.require_inside(self.definition, wanted)
        results = iter(merger.run())
        return kernel.unwrap_single([next(results) if asked else None for asked in wanted])

    def require_possible(self) -> None:
        """Stop at a line that says too little of its tensors, or an operator that writes to them.

        Raises:
            PullbackError: PB358.
        """
        line = self.definition.line
        reasons = {
            "is a list of tensors": [tensor.name for tensor in line.tensors if tensor.many],
            "is changed in place": line.changed,
            "may have any shape": [output.name for output in line.outputs if output.has_any_shape],
        }
        for reason, names in reasons.items():
            for name in names:
                raise NotDistributed.error(
                    f"{line.qualname} takes no DTensors: '{name}' {reason}",
                    help="call it with each process's own part: to_local(), and DTensor.from_local",
                )

    def tensors(self, named: Mapping[str, object]) -> dict[str, DTensor]:
        """Return the DTensors of a call, by name.

        Raises:
            PullbackError: PB357, among them is a plain tensor that is not a single number, or a
                DTensor of another mesh.
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

    def plan(self, given: tuple[object, ...], tensors: Mapping[str, DTensor]) -> Redistribution:
        """Return the plan of a call, made once for each placement and shape."""
        key = tuple(map(key_of_argument, given))
        if None in key:
            return self.planned(given, tensors)  # while it is traced with sizes that are symbols
        return self.plans.get_or_make(key, lambda: self.planned(given, tensors))

    def planned(self, given: tuple[object, ...], tensors: Mapping[str, DTensor]) -> Redistribution:
        """Make the plan of a call."""
        outputs = kernel.outputs_of(self.definition, given)
        values = zip(self.definition.line.parameters, given, strict=False)
        absent = frozenset(parameter.name for parameter, value in values if value is None)
        ways = ways_of(self.ways(tuple(outputs.wanted), absent), outputs, tensors)
        return plan_of(ways, outputs, tensors)

    def ways(self, wanted: tuple[bool, ...], absent: frozenset[str]) -> list[Placements]:
        """Return the ways to split the operator, worked out once."""
        key = (wanted, absent)
        if key not in self.rules:
            rules = self.ways_of(wanted, absent)
            self.rules[key] = [rule for rule in rules if rule.reason is None]
        return self.rules[key]


def key_of_argument(value: object) -> object:
    """Return all of an argument that the plan depends on; None if that cannot be compared."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, Tensor):
        return value is None
    if any(isinstance(size, torch.SymInt) for size in value.shape):
        return None
    where = getattr(value, "device_mesh", None), getattr(value, "placements", None)
    return (tuple(value.shape), value.dtype, *where)


def place_for_autograd(tensor: DTensor, plan: Redistribution, name: str) -> Tensor:
    """Return what this process needs of a tensor, such that its gradient is moved back."""
    moved = tensor.redistribute(plan.mesh, plan.moved[name])
    return moved.to_local(grad_placements=plan.gradients(name))


def place_tensor(tensor: DTensor, plan: Redistribution, name: str) -> Tensor:
    """Return what this process needs of a tensor."""
    if tensor.placements != plan.moved[name]:
        # If it requires a gradient, PyTorch 2.11 tries to detach the copy in place, and fails.
        leaf = cast("DTensor", tensor.detach())
        tensor = leaf.redistribute(plan.mesh, plan.moved[name])
    local = tensor.to_local()
    coordinate = plan.mesh.get_coordinate()
    if coordinate and any(coordinate[dim] for dim in plan.once[name]):
        # All processes have it, and a sum over them counts it once: the first one keeps it.
        return torch.zeros_like(local)
    return local
