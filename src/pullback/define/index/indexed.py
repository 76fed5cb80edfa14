"""Another name of formulas in index notation, for those that have not been renamed yet."""

from pullback.define.formula.formula import Formula as Indexed

__all__ = ["Indexed"]
