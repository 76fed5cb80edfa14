"""The report on a program that ran on the CPU: its launches' findings, and how it ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pullback.diagnostic import Finding, parse
from pullback.kernels.cuda_on_cpu.mode import Mode

COUNT = re.compile(r"launches (\d+)")


@dataclass(frozen=True, kw_only=True)
class Report:
    """One run of a program or script, or one in each order of threads.

    Attributes:
        file: what ran.
        mode: how kernels ran.
        findings: of its kernels, in the order in which they occurred.
        launches: how many there were.
        returncode: of the process, as in `subprocess`.
        output: what it wrote, unless that went to the terminal.
    """

    file: Path
    mode: Mode
    findings: tuple[Finding, ...]
    launches: int
    returncode: int
    output: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing was found and the process ended well."""
        return not self.findings and self.returncode == 0

    @property
    def summary(self) -> str:
        """One line: what was looked for, what was found."""
        what = "run" if self.mode.check == "none" else self.mode.check
        where = f"in {_count(self.launches, 'launch', 'launches')}"
        if self.findings:
            said = f"{_count(len(self.findings), 'fault', 'faults')} found {where}"
        elif self.returncode:
            said = f"{self.file.name} {describe_ending(self.returncode)}; no fault found {where}"
        elif self.launches == 0:
            said = f"{self.file.name} launched no kernel"
        else:
            said = f"no fault found {where}"
        return f"{what}: {said}"

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.findings), self.summary])


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def describe_ending(returncode: int) -> str:
    """Say how a process ended that did not end well."""
    if returncode < 0:
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended with exit code {returncode}"


def read(path: Path) -> tuple[tuple[Finding, ...], int]:
    """Return the findings and the count of launches that processes left in a file."""
    if not path.is_file():
        return (), 0
    texts = path.read_text(encoding="utf-8", errors="replace").split("\0")
    counts = [int(match[1]) for text in texts if (match := COUNT.fullmatch(text))]
    return tuple(_deduplicate(finding for text in texts if (finding := parse(text)))), sum(counts)


def _deduplicate(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out repeated findings, as from a loop that continues after an error."""
    return list(dict.fromkeys(findings))
