"""What the benchmark of formulas prints."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.formula_peers import COMPILED, EAGER, EXACT, FUSED, JITERATOR, OURS, Case
from benchmarks.measure import Figure, show

COPY = "copy"
LARGE = 2**20  # from here on a call is limited by memory, not by what surrounds it


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a row is measured."""

    device: str
    size: int
    threads: int

    def __str__(self) -> str:
        elements = f"{self.device}, 2**{self.size.bit_length() - 1} elements"
        return f"{elements}, threads: {self.threads}" if self.device == "cpu" else elements


@dataclass(frozen=True, kw_only=True)
class Row:
    """One direction of one operator: seconds and largest errors in ulp, by candidate.

    `COPY` among the seconds is a copy that reads and writes as many bytes as have to be moved.
    `busy` is how many processors other programs had meanwhile.
    """

    setting: Setting
    case: Case
    direction: str
    seconds: dict[str, float]
    errors: dict[str, float]
    busy: float

    def ratio(self, peer: str) -> float:
        """How many times as long as ours a peer takes."""
        return self.seconds[peer] / self.seconds[OURS]

    @property
    def disturbed(self) -> bool:
        """Whether threads had to wait for a processor, and then for each other."""
        threads = self.setting.threads
        return threads > 1 and self.busy + threads > (os.cpu_count() or 1) + 0.2


def number(value: float | None) -> str:
    """Return three digits of a number that may be absent, large or small."""
    if value is None:
        return ""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def print_rows(setting: Setting, rows: Sequence[Row]) -> None:
    """Print the table of one setting: forward and backward of each operator."""
    peers = [EXACT, EAGER, FUSED, COMPILED, *([JITERATOR] if setting.device == "cuda" else [])]
    judged = [OURS, EXACT, EAGER, COMPILED]
    limit = ["limit"] if setting.size >= LARGE else []
    table: list[list[str]] = []
    for row in rows:
        name = "  backward" if row.direction == "backward" else row.case.name
        ratios = [number(row.ratio(peer)) if peer in row.seconds else "" for peer in peers]
        reached = [f"{row.ratio(COPY):.2f}" for _ in limit]
        errors = [number(row.errors.get(candidate)) for candidate in judged]
        table.append([name, number(1e6 * row.seconds[OURS]), *ratios, *reached, *errors])
    notes = (
        ["limit: a copy that reads and writes as many bytes as have to be moved"] if limit else []
    )
    if disturbed := [row for row in rows if row.disturbed]:
        busy = statistics.mean(row.busy for row in disturbed)
        notes.append(f"{len(disturbed)} rows mean little: other programs had {busy:.1f} processors")
    show(
        f"Formulas: {setting}: pullback's µs; × pullback; largest ulp",
        ["", "µs", *peers, *limit, "ulp", *judged[1:]],
        table,
        notes,
    )


def mean_ratio(rows: Iterable[Row]) -> float:
    """Return the geometric mean of torch.compile's times over ours, of rows not disturbed."""
    ratios = [row.ratio(COMPILED) for row in rows if not row.disturbed]
    return statistics.geometric_mean(ratios) if ratios else math.nan


def print_means(rows: Sequence[Row], first: dict[str, Figure]) -> None:
    """Print how ours compare with torch.compile, and the aims."""

    def means(rows: Iterable[Row]) -> list[str]:
        rows = list(rows)
        ways = [[row for row in rows if row.direction == way] for way in ("forward", "backward")]
        return [f"{mean_ratio(some):.2f}".replace("nan", "disturbed") for some in (*ways, rows)]

    table: list[list[str]] = []
    for device in dict.fromkeys(row.setting.device for row in rows):
        there = [row for row in rows if row.setting.device == device]
        for setting in dict.fromkeys(row.setting for row in there):
            table.append([str(setting), *means(row for row in there if row.setting == setting)])
        table.append([f"{device}, all", *means(there)])
    show(
        "Formulas: torch.compile's time over pullback's, geometric means of undisturbed rows",
        ["", "forward", "backward", "both"],
        table,
        aims(rows, first),
    )


def aims(rows: Sequence[Row], first: dict[str, Figure]) -> list[str]:
    """Return the aims, and whether they are met."""

    def aim(text: str, value: float, met: bool) -> str:
        return f"aim: {text}: {value:.2f}, {'yes' if met else 'no'}"

    found: list[str] = []
    for device in dict.fromkeys(row.setting.device for row in rows):
        there = [row for row in rows if row.setting.device == device and not row.disturbed]
        large = [row for row in there if row.setting.size >= LARGE]
        if device == "cpu":
            mean = mean_ratio(there)
            found.append(aim("cpu: ≥ 3 × faster than torch.compile", mean, mean >= 3))
            cheap = [row.ratio(COPY) for row in large if row.case.cheap]
            least = min(cheap, default=math.nan)
            found.append(aim("cpu: cheap, ≥ 0.8 of the copy's bandwidth", least, least >= 0.8))
        else:
            slowest = min((row.ratio(COMPILED) for row in there), default=math.nan)
            found.append(aim("cuda: no row slower than torch.compile", slowest, slowest >= 1))
            least = min((row.ratio(COPY) for row in large), default=math.nan)
            found.append(aim("cuda: ≥ 0.9 of the copy's bandwidth", least, least >= 0.9))
    soon = first[OURS].median
    found.append(aim("definition to first result, gelu_tanh, ≤ 0.5 s", soon, soon <= 0.5))
    return [*found, f"torch.compile to first result, empty cache: {first[COMPILED].median:.1f} s"]
