"""What an operator of any kind can do, and how most kinds do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from pullback.bind import batching, entry_points, kernel, sharding
from pullback.bind.batching import BatchedCall
from pullback.bind.operator import NoFormula, Operator, native_operator
from pullback.bind.program import Program
from pullback.bind.rule import DerivativeRule
from pullback.bind.runtime import Runtime
from pullback.define.line import Line
from pullback.define.math.formula import Formula
from pullback.define.operator import Definition
from pullback.define.sharding import Placements, of_line
from pullback.diagnostic import PullbackError
from pullback.kernels.glue import Device

if TYPE_CHECKING:
    from pullback.bind.math.flops import Cost
    from pullback.bind.math.plan import Plan
    from pullback.bind.math.shown import Derivative


@dataclass(frozen=True, kw_only=True)
class Derivatives:
    """The derivatives of an operator as programs, and the Python functions among them."""

    backward: Program | None = None
    jvp: Program | None = None
    rules: tuple[DerivativeRule, ...] = ()


class KeptBy(NamedTuple):
    """How a call keeps something when it is recorded.

    Attributes:
        forward: the operator that returns it too.
        backward: that of the gradients that read it.
        is_scaled: whether what is kept is the gradients, for a gradient of 1.
    """

    forward: Definition
    backward: Definition
    is_scaled: bool


class Kind:
    """One operator, and what is particular to its kind.

    Attributes:
        definition: the operator.
        derivatives: those that are wired when it is defined.
        addresses: the entry points of its compiled kernels.
        is_differentiable_forever: whether each derivative is made from the one before it.
        uncompiled: why nothing can be compiled ahead of a call; None if something can.
    """

    is_differentiable_forever: ClassVar[bool] = False
    uncompiled: ClassVar[str | None] = None

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.derivatives = Derivatives()
        self.addresses: dict[Device, int] = {}

    # Registration: the steps in their order.

    @cached_property
    def runtime(self) -> Runtime | None:
        """The C++ runtime that calls it; None if it does without."""
        return None

    @property
    def known_calls(self) -> object | None:
        """The runtime's `Shortcuts`, if it makes calls that are known without Python."""
        return None

    def prepare(self) -> None:
        """Do all that can fail, before an earlier definition is given up."""
        self.addresses = entry_points.compile_kernels(self.definition)

    def register(self, library: torch.library.Library, overload: torch._ops.OpOverload) -> Operator:
        """Register all but the runtime's part with PyTorch's dispatcher; return the operator.

        Args:
            library: the registration.
            overload: PyTorch's object for the operator.
        """
        library.impl(self.definition.line.name, self.kernel(), "CompositeExplicitAutograd")
        self.register_rules(library, overload)
        return (native_operator(self.runtime) if self.runtime else Operator)(self, overload)

    def register_rules(
        self, library: torch.library.Library, overload: torch._ops.OpOverload
    ) -> None:
        """Register what follows from the line: the fake kernel, batching, sharding."""
        name = self.definition.line.qualname
        torch.library.register_fake(name, self.fake(), lib=library)
        self.register_batching(library, overload)
        sharding.register(self.definition, self.placements, library, self.operator_of)

    def register_batching(
        self, library: torch.library.Library, overload: torch._ops.OpOverload
    ) -> None:
        """Register the rule of `torch.vmap`."""
        rule = batching.make_batching_rule(self.definition, overload, self.batched)
        torch.library.register_vmap(self.definition.line.qualname, rule, lib=library)

    def install(self) -> None:
        """Hand the definition to the runtime; called only if there is one."""

    def reload(self) -> None:
        """Compile what has changed; the dispatcher calls it from now on.

        Raises:
            PullbackError: PB2xx, it does not compile; the earlier kernels stay.
        """

    @property
    def runs_on_a_gpu(self) -> bool:
        """Whether it has CUDA that may run on the CPU."""
        return False

    # What runs.

    def kernel(self) -> Callable[..., object]:
        """Return the kernel for devices for which nothing is compiled."""
        raise NotImplementedError

    def fake(self) -> Callable[..., object]:
        """Return the fake kernel."""
        return kernel.make_fake_kernel(self.definition)

    def batched(self, call: BatchedCall) -> tuple[Any, Any]:
        """Compute a call under `torch.vmap` that cannot be one call of the operator."""
        return call.one_by_one()

    def placements(
        self, wanted: Sequence[bool] | None = None, absent: frozenset[str] = frozenset()
    ) -> list[Placements]:
        """Return the ways to split it over processes, and the ways that are refused.

        Args:
            wanted: whether each output is wanted; None for all.
            absent: the optional tensors that are None.
        """
        del wanted, absent
        return of_line(self.definition.line)

    def operator_of(self, formula: Formula) -> Operator:
        """Return the operator of a formula that processes compute on the way."""
        raise NotImplementedError

    # How it is shipped.

    def references(self) -> dict[str, Callable[..., Any]]:
        """Return functions that compute the same in PyTorch, by their names in messages."""
        reference = self.definition.reference
        return {} if reference is None else {"its reference": reference}

    def in_python(self) -> str | None:
        """Return the part that only Python can run, by the name of `pb.operator`'s parameter."""
        return next((k for k in ("backward", "jvp") if callable(getattr(self.definition, k))), None)

    # How it describes itself.

    def described(self) -> list[str]:
        """Return what computes it, for its docstring."""
        raise NotImplementedError

    def keeping(self, given: Iterable[object]) -> KeptBy | None:
        """Return how a call keeps what its gradients read; None if it keeps nothing."""
        del given
        return None

    @property
    def has_derivative(self) -> bool:
        """Whether it can be differentiated."""
        return self.definition.backward is not None

    def wired(self) -> Derivatives:
        """Return its first derivatives, made if they are not there yet."""
        return self.derivatives

    def tables(self) -> list[tuple[Line, list[Placements]]]:
        """Return the ways to split it, and its gradients where those are known, by their lines."""
        return [(self.definition.line, self.placements())]

    def derivative(self) -> Derivative:
        """Return the derivative of a formula, to print.

        Raises:
            PullbackError: PB343, it is not a formula.
        """
        raise NoFormula.error(
            f"{self.definition.line.qualname}: it has no formula whose derivative could be shown",
            help="pb.graph shows what is recorded for its backward",
        )

    def plan(self, operator: Operator, given: tuple[object, ...], device: str | None) -> Plan:
        """Return how a call in index notation, and its backward, are computed.

        Raises:
            PullbackError: PB343, it is not in index notation.
        """
        raise self.not_in_index_notation("be planned")

    def cost(self, operator: Operator, given: tuple[object, ...]) -> Cost:
        """Return what a call in index notation costs.

        Raises:
            PullbackError: PB343, it is not in index notation.
        """
        raise self.not_in_index_notation("be counted")

    def not_in_index_notation(self, what: str) -> PullbackError:
        """Return the error for what only index notation can answer."""
        return NoFormula.error(
            f"{self.definition.line.qualname}: it is not in index notation, so it cannot {what}",
            help="a kernel is called as it is; a pointwise formula is one loop",
        )
