"""All that an author declares about an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pullback.define.derivative import Declared
from pullback.define.line import Line, is_int_scalar
from pullback.define.source import Source

if TYPE_CHECKING:
    from pullback.define.math.formula import Formula

Autocast = Literal["as_is", "lower", "float32", "promote"]
AUTOCAST: tuple[Autocast, ...] = get_args(Autocast)
Accuracy = Literal["4ulp", "1ulp"]
ACCURACY: dict[str, int] = {"4ulp": 4, "1ulp": 1}
Taken = Literal["no", "yes", "with own derivative"]


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One operator: its line, its kernels and its derivatives.

    Attributes:
        line: what it is.
        cpu: its C++ kernel.
        cuda: its CUDA kernel.
        python: a function of tensors and scalars in place of kernels.
        formula: the mathematics, from which everything else is generated.
        function: a `torch.autograd.Function`, which brings its own backward.
        reference: the same function in plain PyTorch, for checks and exporters.
        backward: the gradients of the inputs.
        jvp: the tangents of the outputs.
        autocast: what `torch.autocast` does to its inputs.
        taken: whether somebody else registered it, and whether with a derivative.
    """

    line: Line
    cpu: Source | None = None
    cuda: Source | None = None
    python: Callable[..., object] | None = None
    formula: Formula | None = None
    function: type | None = None
    reference: Callable[..., object] | None = None
    backward: Declared | None = None
    jvp: Declared | None = None
    autocast: Autocast = "as_is"
    taken: Taken = "no"

    @property
    def kernels(self) -> tuple[str, ...]:
        """What computes it, by the names of `pb.operator`'s parameters."""
        names = ("cpu", "cuda", "python", "formula", "function")
        return tuple(name for name in names if getattr(self, name) is not None)

    @property
    def sources(self) -> dict[Literal["cpu", "cuda"], Source]:
        """The kernels in C++ and CUDA, by the device that they are for."""
        given: dict[Literal["cpu", "cuda"], Source | None] = {"cpu": self.cpu, "cuda": self.cuda}
        return {device: source for device, source in given.items() if source is not None}

    @property
    def pointwise(self) -> Formula | None:
        """Its formula, if that is pointwise."""
        return self.formula if self.formula and self.formula.pointwise else None

    @property
    def shaped(self) -> Line:
        """The line with the size of every output dimension: a formula may give them new names."""
        return self.line if self.formula is None or self.pointwise else self.formula.shaped

    @property
    def counts(self) -> tuple[str, ...]:
        """The int scalars that are sizes: a formula's index runs up to them."""
        return self.formula.counts if self.formula else ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """The int scalars that may be symbolic while PyTorch traces: all of index notation.

        Those that are no sizes may be made of one: were they fixed to a number, so would it be.
        """
        if self.formula is None or self.pointwise:
            return ()
        return tuple(scalar.name for scalar in self.line.scalars if is_int_scalar(scalar))

    @property
    def masked(self) -> bool:
        """Whether it is a backward with `output_mask`, which says which gradients are wanted."""
        # An operator that somebody else registered has no such parameter.
        return self.taken == "no" and self.line.returns_gradients
