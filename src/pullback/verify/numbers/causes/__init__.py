"""Why a derivative is wrong: hypotheses, one a file, each fitted to small samples of it."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress

from pullback.verify.call import Call
from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample, samples
from pullback.verify.numbers.gradient import Mismatch

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)


def name_cause(call: Call, mismatch: Mismatch) -> Cause | None:
    """Return why backward is wrong for one input and output, None if nothing known fits.

    A hypothesis has to fit a sample of the given values, cut to a small size, and one of fresh
    values, in the same way.
    """
    return cause_of(list(samples(call, mismatch.leaf, mismatch.output)))


def cause_of(found: list[Sample]) -> Cause | None:
    """Return the first cause that fits all samples."""
    if not found or found[0].pair.same(found[0].pair.analytic, found[0].pair.numeric):
        # In a large call not every element is looked at.
        return None
    for hypothesis in sorted(Hypothesis.registry, key=lambda own: own.order):
        with suppress(Exception):
            first = hypothesis().explain(found[0])
            if first is not None and all(
                (other := hypothesis().explain(sample)) is not None and other.key == first.key
                for sample in found[1:]
            ):
                return first
    return None


__all__ = ["Cause", "Hypothesis", "Sample", "cause_of", "name_cause", "samples"]
