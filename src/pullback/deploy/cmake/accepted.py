"""Which operators can live without Python."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.deploy import shims
from pullback.deploy.shipped import Shipped
from pullback.diagnostic import PullbackError, Rule

NeedsPython = Rule("PB733", "needs-python")

CURES = {
    "python": "write a kernel in C++, cpu=pb.source(...), or a formula in the line",
    "formula": "write a kernel in C++ and its backward, or a formula without sums over indices",
    "function": "write its kernels, cpu=pb.source(...) and backward=..., or a formula in the line",
    "backward": "write it as expressions, {'x': 'grad * y'}, or as an operator and give its name",
    "jvp": "write it as expressions, {'y': 'tangent_x * y'}, or as an operator and give its name",
}
BUT = "; or ship it with --as wheel"


def require(shipped: Sequence[Shipped]) -> None:
    """Stop at operators that no library without Python can have.

    Raises:
        PullbackError: PB733, PB736.
    """
    for each in shipped:
        if each.python:
            part = each.python[0]
            what = "its formula in index notation" if part == "formula" else f"its {part}="
            raise needs_python(each, what, CURES[part] + BUT)
        if each.definition.taken != "no":
            raise needs_python(
                each, "what was added to it", "it is somebody else's operator: ship it as a wheel"
            )
    shims.require_base_names([each.line.qualname for each in shipped if each.order == 0])


def needs_python(shipped: Shipped, what: str, cure: str) -> PullbackError:
    """Return the error for a part that only Python can run."""
    return NeedsPython.error(
        f"{shipped.line.qualname} cannot be in a library without Python: {what} runs in Python",
        help=cure,
    )
