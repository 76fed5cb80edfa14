"""`pb.operator(..., check=True)`: an operator is checked where it is defined."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.bind import checker
from pullback.bind.operator import Operator
from pullback.diagnostic import Rule
from pullback.verify.check import check

CheckFailed = Rule("PB407", "check-failed")


def require_sound(operator: Operator, example: Sequence[object]) -> None:
    """Check an operator.

    Args:
        operator: just defined.
        example: arguments to call it with; if there are none, some are found.

    Raises:
        PullbackError: PB407, it has a fault; PB404, no arguments were found that it takes.
    """
    report = check(operator, *example)
    if not report.ok:
        count = len(report.faults)
        raise CheckFailed.error(
            f"{operator.line.qualname} is defined, but its derivative has "
            f"{'a fault' if count == 1 else f'{count} faults'}",
            report=report,
            help="mend it, or declare what is meant: pb.check(op, ..., straight_through=True)",
        )


checker.require_sound = require_sound
