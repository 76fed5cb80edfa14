"""Run every probe on a call, and first on each Function inside it.

This runs in the forked process: it calls the author's code, and yields plain data.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call, call_of, format_call
from pullback.verify.isolation import silence
from pullback.verify.listing import list_sources
from pullback.verify.probe import Effect, Needs, NotApplicable, Probe
from pullback.verify.probes import every_probe
from pullback.verify.report import Listing, Outcome, Verdict
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten, target_of
from pullback.verify.trace import NodeTrace, Trace, trace
from pullback.verify.tracing.guard import guard


@dataclass(frozen=True, kw_only=True)
class Title:
    """What is known about a unit, the target or a part of it, before the first probe runs."""

    target: str
    notes: tuple[str, ...]
    listings: tuple[Listing, ...]
    whole: bool


@dataclass
class ExaminedUnit:
    """The outcomes for the target, or for a part of it, so far."""

    title: Title
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    begun: bool = False


# None: the ordinary forward and backward have been made.
Message = Title | Outcome | None


def ask_questions(
    call: Call, probes: Sequence[type[Probe]], units: Sequence[ExaminedUnit]
) -> Iterator[Message]:
    """Yield a title for each part and for the whole, and each probe's outcome under it.

    Tensors are guarded meanwhile: a kernel's write beside one spoils no later probe.

    Args:
        call: what is checked.
        probes: in their order.
        units: the outcomes from before a process died, whose probes do not run again. If the caller
            works in the same process, it adds to them as items are yielded.
    """
    with guard():
        yield from ask_probes(call, probes, units)


def ask_probes(
    call: Call, probes: Sequence[type[Probe]], units: Sequence[ExaminedUnit]
) -> Iterator[Message]:
    """Yield the same for a call whose tensors nobody guards."""
    with silence():
        ordinary = trace(call)
        if ordinary.forward_error and call.assumed:
            call = drop_refused_gradients(call)
            ordinary = trace(call)
    before: list[Outcome] = []
    for index, own in enumerate([*parts_of(call, ordinary), call]):
        if index >= len(units):
            yield title_of(own, whole=own is call)
        done = units[index].outcomes if index < len(units) else []
        known = [*before, *done]
        if len(done) < len(probes):
            # The whole has been traced for its parts already.
            first = ordinary if own is call else None
            for outcome in examine_call(own, probes[len(done) :], known, first):
                yield outcome
                known += [outcome] if outcome else []
        before = known


def drop_refused_gradients(call: Call) -> Call:
    """Return the call with gradients only for inputs that forward accepts with one.

    The others were given without: the target of a loss, a buffer that is written to.
    """
    wanted = [False] * len(call.leaves)
    for index in call.wanted:
        more = [own or i == index for i, own in enumerate(wanted)]
        try:
            call.wanting(more).forward()
        except Exception:
            continue
        wanted = more
    return call.wanting(wanted) if any(wanted) else call


def parts_of(call: Call, ordinary: Trace) -> list[Call]:
    """Return the calls of autograd.Functions inside a module or a callable, one for each."""
    if call.target.kind not in ("module", "callable"):
        return []
    found = {node.function: node for node in ordinary.nodes if is_own(node)}
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
    """Tell whether this is a call of a Function that is not PyTorch's and takes part in a graph."""
    return node.ctx is not None and not node.function.__module__.startswith("torch.")


def copy_of(argument: object) -> object:
    """Return a tensor of the same values and strides that is a leaf; anything else as it is."""
    if not isinstance(argument, Tensor):
        return argument
    copy = argument.detach().clone(memory_format=torch.preserve_format)
    return copy.requires_grad_(argument.requires_grad)


def title_of(call: Call, *, whole: bool) -> Title:
    """Return what is to be said about a call first."""
    return Title(
        target=format_call(call),
        notes=notes_on(call),
        listings=tuple(list_sources(call.target)),
        whole=whole,
    )


def notes_on(call: Call) -> tuple[str, ...]:
    """Return what a reader has to know about how the check was done."""
    given = [leaf for leaf in call.leaves if not leaf.parameter]
    if not call.wanted:
        return ("no input is a floating-point or complex tensor: there is no gradient to check",)
    if call.assumed:
        names = ", ".join(leaf.name for leaf in given if leaf.wanted)
        return (f"no input requires a gradient; checked as if these did: {names}",)
    return ()


def skip_probe(probe: type[Probe], reason: str) -> Outcome:
    """Return the outcome of a probe that has no answer."""
    return Outcome(code=probe.code, name=probe.name, verdict="not applicable", reason=reason)


def examine_call(
    call: Call,
    probes: Sequence[type[Probe]],
    before: Sequence[Outcome],
    ordinary: Trace | None = None,
) -> Iterator[Outcome | None]:
    """Yield None once the ordinary call is made, then each probe's outcome.

    It does not look for a fault that an earlier one explains.

    Args:
        call: what is checked.
        probes: in their order.
        before: outcomes that may explain what is seen.
        ordinary: the trace of the call, where there is one.
    """
    if ordinary is None:
        with silence():
            ordinary = trace(call)
    yield None
    broken: dict[Needs, Exception | None] = {
        "nothing": None,
        "forward": ordinary.forward_error,
        "backward": ordinary.forward_error or ordinary.backward_error,
    }
    explained = explained_effects(before)
    for probe in probes:
        began = time.perf_counter()
        found = outcome_of(probe, call, broken[probe.needs], explained)
        yield replace(found, seconds=time.perf_counter() - began)
        explained = explained_effects([found]) | explained


def outcome_of(
    probe: type[Probe],
    call: Call,
    broken: Exception | None,
    explained: Mapping[Effect, str],
) -> Outcome:
    """Run one probe."""
    if declared := probe.intentions & call.intentions:
        return skip_probe(probe, f"declared: {', '.join(sorted(declared))}")
    if causes := [explained[effect] for effect in sorted(probe.about) if effect in explained]:
        return replace(skip_probe(probe, causes[0]), verdict="explained")
    if broken is not None:
        return skip_probe(probe, f"the ordinary {probe.needs} raises {type(broken).__name__}")
    try:
        with silence():
            findings = tuple(dict.fromkeys(probe().examine(call)))
    except NotApplicable as reason:
        return skip_probe(probe, str(reason))
    except Exception as error:
        return skip_probe(probe, describe_error(error))
    return replace(
        skip_probe(probe, ""), verdict=verdict_on(findings), findings=findings, reason=None
    )


def describe_error(error: Exception) -> str:
    """Say what a probe's experiment raised, and on which of the author's lines."""
    place = place_of_error(error)
    text = shorten(str(error).partition("\n")[0])
    return f"{type(error).__name__}: {text}" + (f" ({place.file}:{place.line})" if place else "")


def verdict_on(findings: Sequence[Finding]) -> Verdict:
    """Return the verdict that follows from findings."""
    if not findings:
        return "ok"
    return "fault" if any(finding.level == "fault" for finding in findings) else "advice"


def explained_effects(outcomes: Iterable[Outcome]) -> dict[Effect, str]:
    """Return the effects that faults explain, and the code of the first that does."""
    probes = {probe.code: probe for probe in every_probe()}
    found: dict[Effect, str] = {}
    for outcome in outcomes:
        # A process that died in an experiment shows nothing about the probe's subject.
        if any(f.code == outcome.code and f.level == "fault" for f in outcome.findings):
            for effect in probes[outcome.code].explains:
                found.setdefault(effect, outcome.code)
    return found
