"""The kinds of operators: one file and one class each, all with the methods of `Kind`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.define.operator import Definition

if TYPE_CHECKING:
    from pullback.bind.kinds.kind import Kind


def kind_of(definition: Definition) -> Kind:
    """Return an operator as its kind, whose module is imported only when it is needed."""
    if definition.function is not None:  # also one that is taken over with its own derivative
        from pullback.bind.kinds.function import Function  # noqa: PLC0415

        return Function(definition)
    if definition.taken != "no":
        from pullback.bind.kinds.foreign import Foreign  # noqa: PLC0415

        return Foreign(definition)
    if definition.pointwise is not None:
        from pullback.bind.kinds.formula import Pointwise  # noqa: PLC0415

        return Pointwise(definition)
    if definition.formula is not None:
        return _of_indices(definition)
    if definition.python is not None:
        from pullback.bind.kinds.python import Python  # noqa: PLC0415

        return Python(definition)
    from pullback.bind.kinds.native import Native  # noqa: PLC0415

    return Native(definition)


def _of_indices(definition: Definition) -> Kind:
    """Return an operator in index notation: a recurrence, or one without states."""
    if definition.formula and definition.formula.groups:
        from pullback.bind.kinds.recurrent import Recurrent  # noqa: PLC0415

        return Recurrent(definition)
    from pullback.bind.kinds.indexed import Indexed  # noqa: PLC0415

    return Indexed(definition)
