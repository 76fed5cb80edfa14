"""How CUDA kernels run on the CPU: what is checked, the order of threads, the time limit."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

from pullback.diagnostic import Rule, did_you_mean
from pullback.kernels.cuda_on_cpu.environment import OFF, ON, OPTIONS, SWITCH, is_wanted

Check = Literal["none", "race", "memory"]
ORDER = re.compile(r"all|forward|reverse|random(:\d+)?")

# The orders that "all" stands for.
EACH_ORDER = ("forward", "reverse", "random:1")

UnknownMode = Rule("PB235", "unknown-cuda-mode")
OrderMatters = Rule("PB232", "cuda-order")


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One way to run kernels.

    Attributes:
        check: "race" finds accesses that nothing orders; "memory" those out of bounds, by
            AddressSanitizer, with which the process has to start.
        order: of the threads of a block: "forward", "reverse", "random", "random:SEED"; or "all",
            which runs an operator in each and compares.
        workers: CPU threads that run blocks; 0 means as many as there are cores.
        timeout: seconds until a launch is stopped; 0 means no limit, and None the variable's value
            or else the runtime's default: a minute in the checks.
    """

    check: Check = "none"
    order: str = "forward"
    workers: int = 0
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.check not in get_args(Check):
            raise _unknown("check", self.check, get_args(Check))
        if not ORDER.fullmatch(self.order):
            raise _unknown("order", self.order, ("all", "forward", "reverse", "random", "random:7"))

    def environment(self) -> dict[str, str]:
        """Return the variables that pass the mode to another process."""
        variables = {SWITCH: "cpu" if self.check == "none" else self.check}
        said = {name: getattr(self, key) for key, name in OPTIONS.items()}
        return {
            **variables,
            **{name: str(value) for name, value in said.items() if value is not None},
        }


def read_mode(environment: Mapping[str, str] = os.environ) -> Mode:
    """Return the mode that the variables give.

    Raises:
        PullbackError: PB235, an unknown value.
    """
    mode = Mode()
    said = environment.get(SWITCH, "").lower()
    if said in get_args(Check):
        mode = replace(mode, check=said)
    elif said not in (*OFF, *ON):
        raise _unknown(SWITCH, said, ("cpu", "race", "memory"))
    if order := environment.get(OPTIONS["order"]):
        mode = replace(mode, order=order)
    for key, kind in (("workers", int), ("timeout", float)):
        if text := environment.get(OPTIONS[key]):
            try:
                mode = replace(mode, **{key: kind(text)})
            except ValueError:
                raise _unknown(OPTIONS[key], text, ("a number",)) from None
    return mode


def current_mode() -> Mode:
    """Return the mode in which kernels run now."""
    return _entered[-1] if _entered else read_mode()


def is_chosen() -> bool:
    """Tell whether someone chose the CPU, rather than having nothing else."""
    return bool(_entered) or is_wanted()


@contextmanager
def set_mode(mode: Mode) -> Generator[Mode]:
    """Make it the current mode within the block."""
    _entered.append(mode)
    try:
        yield mode
    finally:
        # An equal mode may have been entered before: leave the last one.
        del _entered[max(place for place, own in enumerate(_entered) if own == mode)]


_entered: list[Mode] = []


def _unknown(what: str, value: object, have: tuple[str, ...]) -> Exception:
    return UnknownMode.error(
        f"{what} is {value!r}", have=", ".join(have), help=did_you_mean(str(value), have)
    )
