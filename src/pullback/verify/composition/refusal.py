"""Tells exceptions that say that something is not supported from those that show a fault."""

from __future__ import annotations

import re

from pullback.diagnostic import PullbackError

# PyTorch's messages. Whoever reads one of these knows what is not supported, and gets no number.
REFUSALS = re.compile(
    r"once_differentiable"
    r"|not (yet )?(been )?implemented|is not supported|not currently supported|unsupported"
    r"|(does|do) not support|doesn't support|don't support"
    r"|no autograd formula was registered|[Yy]ou must implement"
    r"|can't be differentiated twice|not differentiable"
    r"|Batching rule|did not declare|Trying to use forward AD"
    r"|(have|has) not registered|not registered a batching"
    r"|In order to use an autograd.Function with functorch"
    r"|\[PB\d+\]:",  # pullback's own, as its C++ says it
    re.IGNORECASE,
)


def is_refusal(error: BaseException) -> bool:
    """Tell whether an exception says clearly that something is not supported."""
    if isinstance(error, NotImplementedError | PullbackError):
        return True
    return bool(REFUSALS.search(str(error)))
