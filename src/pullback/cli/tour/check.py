"""The chapter of the tour on the checker: a backward with a fault, and the mended one."""

from __future__ import annotations

from types import ModuleType

from rich.console import Console

from pullback.cli.screen import say
from pullback.verify.check import check


def show(console: Console, loss: ModuleType) -> bool:
    """Check both; return whether a report is not as it should be."""
    say(console, "\nprint(pb.check(Squared)), which is given no inputs and finds some:\n")
    report = check(loss.Squared)
    say(console, indent(str(report)))
    say(console, "\ngradcheck passes it, unless it is told to try the other option.")
    say(console, "Divided by `ctx.count` in place of `x.numel()`, print(pb.check(Mended)):\n")
    mended = check(loss.Mended)
    say(console, indent(str(mended)))
    return report.ok or not mended.ok


def indent(text: str) -> str:
    """Set a text off."""
    return "\n".join(f"  {line}".rstrip() for line in text.split("\n"))
