"""`pb.check`: ask every probe about a target, and report."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pullback.diagnostic import Finding, Rule, did_you_mean
from pullback.verify import forks, isolation
from pullback.verify.call import Call, call_of
from pullback.verify.examine import (
    ExaminedUnit,
    Message,
    Title,
    ask_questions,
    skip_probe,
    title_of,
)
from pullback.verify.inputs.contracts import hedge
from pullback.verify.inputs.inputs import find_inputs, needs_inputs
from pullback.verify.probe import Probe
from pullback.verify.probes import every_probe
from pullback.verify.randomness import keep_numpy_state
from pullback.verify.report import Outcome, Report
from pullback.verify.target import target_of

WrongOption = Rule("PB402", "wrong-check-option")
ProcessDied = Rule("PB403", "process-died")
NoAnswer = Rule("PB405", "no-answer")

# Seconds for a probe, and for one that makes calls that no user would make.
LONGEST, SHORTER = 60.0, 10.0
SAID: dict[isolation.Why, str] = {
    "killed": "the process dies",
    "late": "forward and backward do not return",
    "stopped": "the process is ended",
}
CURES: dict[isolation.Why, str] = {
    "killed": "a kernel may read or write outside of its tensors: look at its sizes and strides",
    "late": "give smaller inputs, or more time: timeout=seconds",
    "stopped": "raise an exception instead: this ends a training, without a traceback",
}


def check(  # noqa: PLR0913  (each is a thing to choose)
    target: Any,  # noqa: ANN401
    *inputs: Any,  # noqa: ANN401
    keywords: Mapping[str, Any] | None = None,
    seed: int = 0,
    probes: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    isolate: bool = True,
    timeout: float = LONGEST,
    **intentions: bool,
) -> Report:
    """Find the faults of a hand-written derivative and name their causes.

    Args:
        target: an `autograd.Function`, an operator of pullback or of `torch.library`, a module,
            or any callable of tensors.
        inputs: its arguments, of any shapes and dtypes; gradients are checked for the tensors that
            require one, and if none does, for every floating-point and complex one. Without
            inputs, some are found: from the operator's line, from annotations, or by trying.
        keywords: its keyword arguments.
        seed: of all random numbers.
        probes: codes or names of the only probes to run.
        skip: codes or names of probes not to run.
        isolate: run in a forked process, so that a crash or a hang is a finding.
        timeout: the longest that a probe may take, in seconds.
        intentions: deliberate deviations that would otherwise be faults: `straight_through`,
            `reversal`, `nonlinear_grad`, `once_differentiable`, ... = True.

    Returns:
        The report; it is true if there is no fault.

    Raises:
        PullbackError: PB401, the target cannot be called; PB402, an option that does not exist;
            PB404, no inputs were given, and none were found that it takes.
    """
    examination = Examination(
        probes=choose(probes, skip),
        seed=seed,
        isolate=isolate,
        seconds=seconds_of(timeout),
        intentions=parse_intentions(intentions),
    )
    return examination.report(target, inputs, keywords or {})


@dataclass(frozen=True, kw_only=True)
class Examination:
    """How to check: the common part of `pb.check` and `pullback check`.

    Attributes:
        probes: to run, in their order.
        seed: of all random numbers.
        isolate: work in forked processes.
        seconds: the longest that a probe may take.
        intentions: declared deviations.
        tell: is called with each outcome as it comes.
    """

    probes: Sequence[type[Probe]]
    seed: int = 0
    isolate: bool = True
    seconds: float = LONGEST
    intentions: frozenset[str] = frozenset()
    tell: Callable[[Outcome], None] = field(default=lambda _: None)

    @keep_numpy_state()
    def report(self, target: object, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Report:
        """Check a target."""
        began = time.monotonic()
        subject = target_of(target)
        found = None
        if needs_inputs(subject, inputs, keywords):
            found = find_inputs(subject, seed=self.seed, isolate=self.forks)
            inputs, keywords = found.arguments, found.keywords
        call = call_of(subject, inputs, keywords, seed=self.seed, intentions=self.intentions)
        report = self.of_call(call)
        if found is not None:
            report = hedge(call, found.ungraded, report, self.ask)
        notes = (*([found.note] if found else []), *self.notes(), *report.notes)
        replay = self.replay(call, found=found is not None, report=report)
        return replace(report, notes=notes, replay=replay, took=time.monotonic() - began)

    def ask(self, call: Call, codes: Collection[str] | None) -> Report:
        """Run some of the probes, or all, on another call; `tell` hears nothing of it."""
        probes = [p for p in self.probes if codes is None or p.code in codes]
        return replace(self, probes=probes, tell=lambda _: None).of_call(call)

    def notes(self) -> tuple[str, ...]:
        """Return what a reader has to know about the process in which it was checked."""
        if self.isolate and forks.has_process_group():
            return (
                "torch.distributed is initialised, and its threads do not survive a fork: checked "
                "in this process, as by isolate=False",
            )
        return ()

    @property
    def forks(self) -> bool:
        """Whether the author's code runs in forked processes."""
        return self.isolate and forks.can_fork()

    def replay(self, call: Call, *, found: bool, report: Report) -> str | None:
        """Return the call that shows a report's faults again."""
        if report.ok:
            return None
        codes = sorted({finding.code for finding in report.faults} & {p.code for p in self.probes})
        given = call.target.name if found else f"{call.target.name}, *inputs"
        meant = "".join(f", {name}=True" for name in sorted(self.intentions))
        only = f", probes={codes}" if codes else ""
        longer = "" if self.seconds == LONGEST else f", timeout={self.seconds:g}"
        return f"pb.check({given}, seed={self.seed}{only}{longer}{meant})"

    def of_call(self, call: Call) -> Report:
        """Run the probes on a call, and first on each Function inside it."""
        for name in {name for probe in self.probes for name in probe.imports}:
            with suppress(ImportError):
                importlib.import_module(name)
        units: list[ExaminedUnit] = []
        while not (units and units[-1].title.whole and not self.rest(units)):
            known, began = len(outcomes_of(units)), time.monotonic()
            died = self.collect(self.messages(call, units), units)
            if died is None:
                break
            if died.why == "killed" and self.spoilt(units, known):
                continue
            if died.why == "failed":
                raise RuntimeError(f"the checker failed: {died.how}\n{died.said}")
            if not units or not self.rest(units):
                units.append(ExaminedUnit(title_of(call, whole=True)))
            answered = sum(outcome.seconds for outcome in outcomes_of(units)[known:])
            self.note_death(call, units, died, seconds=time.monotonic() - began - answered)
        *parts, whole = [report_of(unit, call.seed) for unit in units]
        return replace(whole, parts=tuple(parts))

    def messages(
        self, call: Call, units: list[ExaminedUnit]
    ) -> Generator[Message, None, isolation.Died | None]:
        """Run the probes that have no outcome yet; return how the process died if it did."""
        if not self.forks:
            return run_inline(ask_questions(call, self.probes, units))
        work = partial(ask_questions, call, self.probes, units)
        return isolation.run_forked(work, seconds=partial(self.patience, units))

    def patience(self, units: list[ExaminedUnit]) -> float:
        """Return how long to wait for the next answer."""
        rest = self.rest(units) if units else []
        # A call that nobody would make may never end: such values can make a solver diverge.
        return min(self.seconds, SHORTER) if rest and rest[0].unnatural else self.seconds

    def collect(
        self, messages: Generator[Message, None, isolation.Died | None], units: list[ExaminedUnit]
    ) -> isolation.Died | None:
        """Add each message to its unit; return how the process died if it did."""
        while True:
            try:
                message = next(messages)
            except StopIteration as stopped:
                return stopped.value
            if isinstance(message, Title):
                units.append(ExaminedUnit(message))
            elif isinstance(message, Outcome):
                units[-1].outcomes.append(message)
                self.tell(message)
            else:
                units[-1].begun = True

    def rest(self, units: list[ExaminedUnit]) -> list[type[Probe]]:
        """Return the probes that have not run on the last unit."""
        return list(self.probes[len(units[-1].outcomes) :])

    def spoilt(self, units: list[ExaminedUnit], known: int) -> bool:
        """Tell whether a process may have died because an unnatural experiment spoilt its memory.

        Then the probe that was running runs again, as the first in a new process.
        """
        unnatural = {probe.code for probe in self.probes if probe.unnatural}
        asked = [
            outcome for outcome in outcomes_of(units)[known:] if outcome.verdict != "explained"
        ]
        return any(outcome.code in unnatural for outcome in asked)

    def note_death(
        self, call: Call, units: list[ExaminedUnit], died: isolation.Died, *, seconds: float
    ) -> None:
        """Attribute a death to the probe that was running, or to the ordinary call."""
        unit = units[-1]
        first, *others = self.rest(units)
        known = any(o.reason == died.how for own in units for o in own.outcomes)
        own = outcome_of_death(call, first, died, ordinary=not unit.begun, known=known)
        said = [replace(own, seconds=seconds)]
        if not unit.begun:
            # Then no probe can run.
            reason = f"the ordinary call: {died.how}"
            said += [skip_probe(probe, reason) for probe in others]
        for outcome in said:
            unit.outcomes.append(outcome)
            self.tell(outcome)


def outcomes_of(units: Sequence[ExaminedUnit]) -> list[Outcome]:
    """Return every outcome so far."""
    return [outcome for unit in units for outcome in unit.outcomes]


def run_inline(messages: Iterator[Message]) -> Generator[Message, None, isolation.Died | None]:
    """Yield messages; what would end the process ends only the messages."""
    try:
        yield from messages
    except SystemExit as stop:
        return isolation.Died(how=f"SystemExit: {stop.code}", said="", why="stopped")
    return None


def report_of(unit: ExaminedUnit, seed: int) -> Report:
    """Return what is known about a target as a report."""
    title = unit.title
    return Report(
        target=title.target,
        outcomes=tuple(unit.outcomes),
        notes=title.notes,
        seed=seed,
        listings=title.listings,
    )


def seconds_of(timeout: float) -> float:
    """Return the longest that a probe may take."""
    if timeout > 0:
        return float(timeout)
    raise WrongOption.error(f"timeout={timeout!r} is no time", help="seconds, more than 0")


def parse_intentions(intentions: Mapping[str, bool]) -> frozenset[str]:
    """Return the declared intentions; refuse one that no probe knows."""
    known = {name for probe in every_probe() for name in probe.intentions}
    for name in intentions:
        if name not in known:
            raise WrongOption.error(
                f"pb.check has no option '{name}'",
                intentions=", ".join(sorted(known)),
                help=did_you_mean(name, known)
                or f"to give it to the target: keywords={{'{name}': ...}}",
            )
    return frozenset(name for name, declared in intentions.items() if declared)


def choose(only: Iterable[str] | None, skip: Iterable[str]) -> list[type[Probe]]:
    """Return the probes to ask."""
    everything = every_probe()
    known = {word: probe for probe in everything for word in (probe.code, probe.name)}
    skip = [skip] if isinstance(skip, str) else list(skip)
    wanted = None if only is None else [only] if isinstance(only, str) else list(only)
    for word in [*(wanted or []), *skip]:
        if word not in known:
            raise WrongOption.error(
                f"there is no probe '{word}'",
                help=did_you_mean(word, known) or "pullback explain lists them",
            )
    asked = set(everything) if wanted is None else {known[word] for word in wanted}
    asked -= {known[word] for word in skip}
    # In their order: an earlier probe may explain what a later one sees.
    return [probe for probe in everything if probe in asked]


def outcome_of_death(
    call: Call, probe: type[Probe], died: isolation.Died, *, ordinary: bool, known: bool
) -> Outcome:
    """Return the outcome of a probe during which the process ended.

    Args:
        call: what is checked.
        probe: that was running.
        died: how it ended.
        ordinary: in an ordinary forward and backward, before any probe ran.
        known: it ended in this way before: one cause, one finding.
    """
    outcome = skip_probe(probe, died.how)
    if not ordinary and (died.why == "late" or died.how == "SIGKILL"):  # slow, or out of memory
        return outcome
    if not ordinary and probe.unnatural:
        return replace(outcome, reason=f"the process died in this experiment ({died.how})")
    if known:
        return replace(outcome, verdict="explained", reason=ProcessDied.code)
    rule = NoAnswer if died.why == "late" else ProcessDied
    while_ = "an ordinary forward and backward" if ordinary else f"looking for {probe.name}"
    words = died.words if died.why == "killed" else None
    finding = Finding(
        code=rule.code,
        name=rule.name,
        message=f"{call.target.name}: {SAID[died.why]} ({died.how})",
        evidence=(("while", while_), *([("last words", words)] if words else [])),
        where=str(died.place) if died.place else None,
        file=died.place.file if died.place else None,
        help=CURES["stopped" if died.how.startswith("exit code") else died.why],
    )
    return replace(outcome, verdict="fault", findings=(finding,))
