"""`pb.check`: ask every probe about a target, and report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from pullback.diagnostic import Finding, Rule, did_you_mean
from pullback.verify import contained
from pullback.verify.call import Call, call_of
from pullback.verify.probe import Effect, Needs, NotApplicable, Probe, every_probe
from pullback.verify.report import Outcome, Report, Verdict
from pullback.verify.target import shortened, target_of
from pullback.verify.trace import NodeTrace, trace

WrongOption = Rule("PB402", "wrong-check-option")
ProcessDied = Rule("PB403", "process-died")

LONGEST = 60.0


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
        inputs: its arguments, of any shapes and dtypes; gradients are checked of the tensors that
            require one, and where none does, of every floating-point and complex one. Without
            inputs they are found: from the operator's line, from annotations, or by trying.
        keywords: its keyword arguments.
        seed: draws everything that is drawn.
        probes: codes or names of the only probes to ask.
        skip: codes or names of probes not to ask.
        isolate: run in a forked process, so that a crash or a hang is a finding.
        timeout: the longest that a probe may take, in seconds.
        intentions: what is meant that would be a fault elsewhere: `straight_through`, `reversal`,
            `nonlinear_grad`, `once_differentiable`, ... = True.

    Returns:
        The report; it is true if there is no fault.

    Raises:
        PullbackError: PB401, the target cannot be called; PB402, an option that does not exist.
    """
    subject = target_of(target)
    chosen = choose(probes, skip)
    call = call_of(subject, inputs, keywords or {}, seed=seed, intentions=meant(intentions))
    return report_of(call, chosen, isolate=isolate, seconds=timeout)


def report_of(
    call: Call, probes: Sequence[type[Probe]], *, isolate: bool, seconds: float
) -> Report:
    """Ask the probes about a call, and first about each Function inside of it."""
    inside = parts_of(call, isolate=isolate, seconds=seconds)
    parts = tuple(report_of(own, probes, isolate=isolate, seconds=seconds) for own in inside)
    before = [outcome for part in parts for outcome in part.outcomes]
    outcomes = tuple(ask(call, probes, before, isolate=isolate, seconds=seconds))
    return Report(
        target=shown(call),
        outcomes=outcomes,
        notes=notes_on(call),
        seed=call.seed,
        parts=parts,
    )


def parts_of(call: Call, *, isolate: bool, seconds: float) -> list[Call]:
    """Return the calls of autograd.Functions inside of a module or a callable, one of each."""
    if call.target.kind not in ("module", "callable"):
        return []
    if isolate and contained.can_fork():
        # Once where it cannot do harm: a forward that dies is told of by the first probe.
        rehearsal = contained.stream(lambda: iter([bool(trace(call).run)]), seconds=seconds)
        if list(rehearsal) != [True]:
            return []
    found = {node.function: node for node in trace(call).nodes if is_own(node)}
    return [
        call_of(
            target_of(function),
            [copy_of(argument) for argument in node.arguments],
            {},
            seed=call.seed,
            intentions=call.intentions,
        )
        for function, node in found.items()
    ]


def is_own(node: NodeTrace) -> bool:
    """Tell whether a Function was called that is not PyTorch's, and that takes part in a graph."""
    return node.ctx is not None and not node.function.__module__.startswith("torch.")


def copy_of(argument: object) -> object:
    """Return a tensor of the same values and strides that is a leaf; anything else as it is."""
    if not isinstance(argument, Tensor):
        return argument
    copy = argument.detach().clone(memory_format=torch.preserve_format)
    return copy.requires_grad_(argument.requires_grad)


def notes_on(call: Call) -> tuple[str, ...]:
    """Return what a reader has to know of how the check was done."""
    given = [leaf for leaf in call.leaves if not leaf.parameter]
    if not call.wanted:
        return ("no input is a floating-point or complex tensor: there is no gradient to check",)
    if call.assumed:
        names = ", ".join(leaf.name for leaf in given if leaf.wanted)
        return (f"no input requires a gradient; checked as if these did: {names}",)
    return ()


def shown(call: Call) -> str:
    """Print a call: "Square(x: float64 (2, 3))"."""
    inputs = [
        f"{leaf.name}: {str(leaf.value.dtype).removeprefix('torch.')} {tuple(leaf.value.shape)}"
        for leaf in call.leaves
    ]
    return f"{call.target.name}({', '.join(inputs)})"


def meant(intentions: Mapping[str, bool]) -> frozenset[str]:
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
    skip = list(skip)
    wanted = None if only is None else list(only)
    for word in [*(wanted or []), *skip]:
        if word not in known:
            raise WrongOption.error(
                f"there is no probe '{word}'",
                help=did_you_mean(word, known) or "pullback explain lists them",
            )
    asked = everything if wanted is None else [known[word] for word in dict.fromkeys(wanted)]
    return [probe for probe in asked if probe not in [known[word] for word in skip]]


def ask(
    call: Call,
    probes: Sequence[type[Probe]],
    before: Sequence[Outcome],
    *,
    isolate: bool,
    seconds: float,
) -> Iterator[Outcome]:
    """Yield each probe's outcome; where one ends the process, the next ones get a new process.

    Args:
        call: what is checked.
        probes: in their order.
        before: outcomes for the parts of the target, which may explain what is seen here.
        isolate: work in forked processes.
        seconds: the longest that a probe may take.
    """
    if not isolate or not contained.can_fork():
        yield from examined(call, probes, before)
        return
    done: list[Outcome] = []
    while len(done) < len(probes):
        known, rest = [*before, *done], probes[len(done) :]
        outcomes = contained.stream(partial(started, call, rest, known), seconds=seconds)
        running, died = False, None
        while True:
            try:
                outcome = next(outcomes)
            except StopIteration as stopped:
                died = cast("contained.Died | None", stopped.value)
                break
            if outcome is not None:
                done.append(outcome)
                yield outcome
            running = True
        if died is not None:
            last = outcome_of_death(call, probes[len(done)], died)
            done.append(last)
            yield last
            if not running:
                # The ordinary call ends the process: no question can be asked.
                reason = "the ordinary call ends the process"
                yield from (unasked(probe, reason) for probe in probes[len(done) :])
                return


def started(
    call: Call, probes: Sequence[type[Probe]], before: Sequence[Outcome]
) -> Iterator[Outcome | None]:
    """Yield None once the ordinary call has been made, then each probe's outcome."""
    trace(call)
    yield None
    yield from examined(call, probes, before)


def unasked(probe: type[Probe], reason: str) -> Outcome:
    """Return the outcome of a probe that has no answer."""
    return Outcome(code=probe.code, name=probe.name, verdict="not applicable", reason=reason)


def examined(
    call: Call, probes: Sequence[type[Probe]], before: Sequence[Outcome]
) -> Iterator[Outcome]:
    """Yield each probe's outcome; a fault that an earlier one explains is not looked for."""
    ordinary = trace(call)
    broken: dict[Needs, Exception | None] = {
        "nothing": None,
        "forward": ordinary.forward_error,
        "backward": ordinary.forward_error or ordinary.backward_error,
    }
    explained = explanations(before)
    for probe in probes:
        began = time.perf_counter()
        found = outcome_of(probe, call, broken[probe.needs], explained)
        yield replace(found, seconds=time.perf_counter() - began)
        explained = explanations([found]) | explained


def outcome_of(
    probe: type[Probe],
    call: Call,
    broken: Exception | None,
    explained: Mapping[Effect, str],
) -> Outcome:
    """Ask one probe."""
    if declared := probe.intentions & call.intentions:
        return unasked(probe, f"declared: {', '.join(sorted(declared))}")
    if causes := [explained[effect] for effect in sorted(probe.about) if effect in explained]:
        return replace(unasked(probe, causes[0]), verdict="explained")
    if broken is not None:
        return unasked(probe, f"the ordinary {probe.needs} raises")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            findings = tuple(probe().examine(call))
    except NotApplicable as reason:
        return unasked(probe, str(reason))
    except Exception as error:
        return unasked(probe, f"{type(error).__name__}: {shortened(str(error))}")
    return replace(unasked(probe, ""), verdict=verdict_on(findings), findings=findings, reason=None)


def verdict_on(findings: Sequence[Finding]) -> Verdict:
    """Return what findings amount to."""
    if not findings:
        return "ok"
    return "fault" if any(finding.level == "fault" for finding in findings) else "advice"


def explanations(outcomes: Iterable[Outcome]) -> dict[Effect, str]:
    """Return the effects that faults explain, and the code of the first that does."""
    probes = {probe.code: probe for probe in every_probe()}
    found: dict[Effect, str] = {}
    for outcome in outcomes:
        if outcome.verdict == "fault":
            for effect in probes[outcome.code].explains:
                found.setdefault(effect, outcome.code)
    return found


def outcome_of_death(call: Call, probe: type[Probe], died: contained.Died) -> Outcome:
    """Return the outcome of a probe during which the process ended."""
    if died.how.startswith("no answer"):
        return unasked(probe, died.how)
    finding = Finding(
        code=ProcessDied.code,
        name=ProcessDied.name,
        message=f"{call.target.name}: the process dies ({died.how})",
        evidence=(("looking for", probe.name), *died.evidence()),
        help="a kernel may read or write outside of its tensors: look at its sizes and strides",
    )
    return replace(unasked(probe, died.how), verdict="fault", findings=(finding,))
