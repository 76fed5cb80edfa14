"""Inputs that a target takes, if its user gave none.

Candidates are enumerated from likely to unlikely, and tried in a forked process. It takes the first
that forward accepts and whose backward returns a gradient of the right shape for each tensor; if
there is none, the best.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from pullback.diagnostic import Rule
from pullback.verify import isolation
from pullback.verify.call import call_of
from pullback.verify.inputs.shapes import Shape, basic_shapes_for, of_line, of_modules, shapes_for
from pullback.verify.inputs.slots import ParameterSlot, Role, slots_of, strings_of
from pullback.verify.isolation import silence
from pullback.verify.randomness import make_generator
from pullback.verify.target import Target, shorten
from pullback.verify.trace import NodeTrace, trace

NoInputs = Rule("PB404", "no-inputs")

# Seconds: for all trials; for better ones once something is accepted; for one trial.
ALTOGETHER, LONGER, ONE = 10.0, 2.0, 5.0
# How good an input is: everything works; it works for somebody who reads more into the names than
# they say; some value is not finite; a gradient has the wrong shape; backward raises; nothing
# requires a gradient; forward raises.
PERFECT, UNLIKELY, NOT_FINITE, WRONG, RAISES, CUT, REFUSED = range(7)
CRASHES = 12
NUMBERS: dict[Role, tuple[Any, ...]] = {
    "float": (0.5,),
    "int": (1, 2, 0, -1),
    "count": (5, 3, 2, 1),
    "bool": (True,),
    "ints": ((1, 1), (2,)),
    "none": (None,),
}


@dataclass(frozen=True)
class Drawn:
    """A tensor to draw; a list of two if `many`."""

    shape: Shape
    dtype: torch.dtype
    positive: bool = False
    many: bool = False


Spec = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class FoundInputs:
    """Inputs, and what the reader has to know about them.

    Attributes:
        arguments: the positional ones.
        keywords: the others.
        note: what was found.
        ungraded: the inputs for which backward returns None.
    """

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    note: str
    ungraded: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of inputs: how good they are, what forward raised, what backward gave None."""

    rank: int
    error: str | None = None
    ungraded: tuple[str, ...] = ()


def needs_inputs(target: Target, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Tell whether inputs have to be found: none are given, and the target has parameters."""
    if inputs or keywords:
        return False
    slots = slots_of(target)
    return slots is None or bool(slots)


def find_inputs(target: Target, *, seed: int, isolate: bool) -> FoundInputs:
    """Find inputs that a target takes.

    Raises:
        PullbackError: PB404, there are none among those that were tried.
    """
    known = slots_of(target)
    search = None
    for slots in [known] if known is not None else map(unknown_slots, (1, 2, 3)):
        search = InputSearch(target, slots, seed)
        search.run(isolate=isolate)
        if search.best is not None:
            break
    assert search is not None
    slots = search.slots
    if search.best is None:
        raise inputs_missing(target, search.tried, search.error)
    spec = next(itertools.islice(iter_specs(target, slots), search.best, None))
    arguments, keywords = draw_inputs(slots, spec, seed)
    shown = ", ".join(
        f"{slot.name}: {text_of(own)}" if isinstance(own, Drawn) else f"{slot.name}={own!r}"
        for slot, own in zip(slots, spec, strict=True)
    )
    trials = "trial" if search.tried == 1 else "trials"
    note = f"no inputs were given; found in {search.tried} {trials}: {shown}"
    return FoundInputs(arguments=arguments, keywords=keywords, note=note, ungraded=search.ungraded)


def unknown_slots(count: int) -> list[ParameterSlot]:
    """Return so many tensors, if nothing is known about the parameters."""
    return [ParameterSlot(name=f"input {index}", roles=("tensor",)) for index in range(count)]


def inputs_missing(target: Target, tried: int, error: str | None) -> Exception:
    """Return the error that says what was tried."""
    return NoInputs.error(
        f"{target.name}: no inputs were given, and none were found that it takes",
        tried=f"{tried} combinations of tensors and numbers" if tried else None,
        first=error,
        help="give them: pb.check(target, x, ...)",
    )


def text_of(drawn: Drawn) -> str:
    """Print what is drawn: "float64 (3, 4)"."""
    dtype = str(drawn.dtype).removeprefix("torch.")
    positive = " above 0" if drawn.positive else ""
    return f"{'2 x ' * drawn.many}{dtype} {drawn.shape}{positive}"


class InputSearch:
    """Tries one after the other; continues after one that ends the process."""

    def __init__(self, target: Target, slots: Sequence[ParameterSlot], seed: int) -> None:
        self.target, self.slots, self.seed = target, slots, seed
        self.best: int | None = None
        self.rank = REFUSED
        self.tried = 0
        self.error: str | None = None
        self.ungraded: tuple[str, ...] = ()

    def run(self, *, isolate: bool) -> None:
        """Try until one is perfect, none is left, or the time is up."""
        began, accepted, crashes = time.monotonic(), None, 0
        while crashes < CRASHES:
            work = partial(self.trials, self.tried)
            trials = isolation.run_forked(work, seconds=ONE) if isolate else run_inline(work())
            for trial in trials:
                self.error = self.error or trial.error
                if trial.rank < self.rank:
                    self.rank, self.best, self.ungraded = trial.rank, self.tried, trial.ungraded
                    accepted = accepted or time.monotonic()
                self.tried += 1
                now = time.monotonic()
                enough = accepted is not None and now - accepted > LONGER
                if self.rank == PERFECT or enough or now - began > ALTOGETHER:
                    trials.close()
                    return
            if self.exhausted(self.tried):
                return
            self.error = self.error or "it ended the process"
            self.tried, crashes = self.tried + 1, crashes + 1

    def exhausted(self, index: int) -> bool:
        """Tell whether there is no trial of this number."""
        return (
            next(itertools.islice(iter_specs(self.target, self.slots), index, None), None) is None
        )

    def trials(self, start: int) -> Iterator[Trial]:
        """Yield what comes of each."""
        for spec in itertools.islice(iter_specs(self.target, self.slots), start, None):
            with silence():
                arguments, keywords = draw_inputs(self.slots, spec, self.seed)
                trial = tried(self.target, arguments, keywords, self.seed)
            likely = all(map(is_likely, self.slots, spec))
            yield trial if likely else replace(trial, rank=max(trial.rank, UNLIKELY))


def is_likely(slot: ParameterSlot, own: object) -> bool:
    """Tell whether a name or an annotation allows for the index, or the mask, that was given."""
    if not isinstance(own, Drawn) or own.dtype not in (torch.int64, torch.bool) or slot.dtype:
        return True
    return ("mask" if own.dtype == torch.bool else "index") in slot.roles[:2]


def run_inline(trials: Iterator[Trial]) -> Generator[Trial, None, None]:
    """Yield the trials from this process."""
    yield from trials


def tried(
    target: Target, arguments: Sequence[Any], keywords: Mapping[str, Any], seed: int
) -> Trial:
    """Call a target, forward and backward, and return what came of it."""
    call = call_of(target, arguments, keywords, seed=seed)
    seen = trace(call)
    if seen.forward_error is not None or seen.run is None:
        error = seen.forward_error
        text = shorten(f"{type(error).__name__}: {error}".partition("\n")[0])
        return Trial(rank=REFUSED, error=text)
    if not seen.run.differentiable:
        return Trial(rank=CUT if any(map(torch.is_floating_point, seen.run.outputs)) else REFUSED)
    if seen.backward_error is not None or seen.gradients is None:
        return Trial(rank=RAISES)
    pairs = list(zip(call.leaves, seen.gradients, strict=True))
    ungraded = tuple(leaf.name for leaf, g in pairs if leaf.wanted and g is None)
    if len(ungraded) == len(call.wanted) or not all(map(fits, seen.nodes)):
        return Trial(rank=WRONG, ungraded=ungraded)
    values = [*seen.run.outputs, *(g for _, g in pairs if g is not None)]
    finite = all(bool(value.detach().isfinite().all()) for value in values)
    if not finite:
        return Trial(rank=NOT_FINITE, ungraded=ungraded)
    return Trial(rank=UNLIKELY if ungraded else PERFECT, ungraded=ungraded)


def fits(node: NodeTrace) -> bool:
    """Tell whether each gradient has the shape of its input, before the engine sums it."""
    for gave in node.gave:
        for argument, gradient in zip(node.arguments, gave, strict=False):
            both = isinstance(argument, Tensor) and isinstance(gradient, Tensor)
            if both and argument.shape != gradient.shape:
                return False
    return True


def draw_inputs(
    slots: Sequence[ParameterSlot], spec: Spec, seed: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Draw the tensors of a trial; return positional and keyword arguments."""
    generator = make_generator(seed)
    values = [draw(own, generator) if isinstance(own, Drawn) else own for own in spec]
    pairs = list(zip(slots, values, strict=True))
    positional = tuple(value for slot, value in pairs if not slot.keyword)
    return positional, {slot.name: value for slot, value in pairs if slot.keyword}


def draw(drawn: Drawn, generator: torch.Generator) -> Any:  # noqa: ANN401
    """Draw a tensor: Gaussian, or between 0.1 and 0.9; integers are indices below 3."""
    if drawn.many:
        one = Drawn(drawn.shape, drawn.dtype, drawn.positive)
        return [draw(one, generator), draw(one, generator)]
    if drawn.dtype == torch.bool:
        return torch.rand(drawn.shape, generator=generator) < 0.5
    if not (drawn.dtype.is_floating_point or drawn.dtype.is_complex):
        return torch.randint(0, 3, drawn.shape, generator=generator, dtype=drawn.dtype)
    wide = torch.complex128 if drawn.dtype.is_complex else torch.float64
    value = torch.randn(drawn.shape, dtype=wide, generator=generator)
    if drawn.positive:
        value = 0.1 + 0.8 * torch.rand(drawn.shape, dtype=torch.float64, generator=generator)
    return value.to(drawn.dtype).requires_grad_()


def iter_specs(target: Target, slots: Sequence[ParameterSlot]) -> Iterator[Spec]:
    """Yield what to try, from likely to unlikely."""
    strings = strings_of(target)
    choices = [list(choices_of(slot, strings)) for slot in slots]
    parameters = list(target.given.parameters()) if target.kind == "module" else []
    dtypes = [torch.float64, torch.float32, torch.complex128]
    if parameters:
        dtypes = list(dict.fromkeys([parameters[0].dtype, *dtypes]))
    # Another choice of what a parameter is comes before an unusual shape.
    for shapes_of in (likely_shapes, basic_shapes):
        for dtype in dtypes:
            for chosen in order_by_likelihood(choices):
                drawn = [i for i, own in enumerate(chosen) if isinstance(own, OpenTensor)]
                places = [i for i in drawn if chosen[i].role != "scalar"]
                if not places:
                    continue
                for shapes in shapes_of(slots, places, parameters):
                    sizes = dict(zip(places, shapes, strict=True))
                    for positive in (False, True):
                        spec = list(chosen)
                        for place in drawn:
                            shape = sizes.get(place, ())
                            spec[place] = fill_slot(
                                slots[place], chosen[place], shape, dtype, positive
                            )
                        yield tuple(spec)


@dataclass(frozen=True)
class OpenTensor:
    """A tensor whose shape and dtype are not chosen yet."""

    role: Role


def choices_of(slot: ParameterSlot, strings: Sequence[str]) -> Iterator[Any]:
    """Yield candidates for a parameter."""
    yield from slot.fixed
    for role in slot.roles:
        if role in ("tensor", "tensors", "index", "mask", "scalar"):
            yield OpenTensor(role)
        else:
            yield from (strings or ("mean", "sum")) if role == "str" else NUMBERS[role]


def order_by_likelihood(choices: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield a choice for each parameter: first those that depart least from the likeliest."""
    ranks = [range(len(own)) for own in choices]
    # More would take too long; those that differ in the last parameters come first.
    some = list(itertools.islice(itertools.product(*ranks), 20_000))
    for picked in sorted(some, key=lambda picked: (sum(picked), picked)):
        yield tuple(own[i] for own, i in zip(choices, picked, strict=True))


def likely_shapes(
    slots: Sequence[ParameterSlot], places: Sequence[int], parameters: Sequence[Tensor]
) -> Iterator[tuple[Shape, ...]]:
    """Yield shapes for the tensors: those of the line, or what such functions commonly take."""
    dims = [slots[place].dims for place in places]
    if dims and all(own is not None for own in dims):
        yield from of_line(cast("list[Any]", dims))
        return
    if parameters:
        yield from of_modules(len(places), {size for p in parameters for size in p.shape})
    yield from shapes_for(len(places))


def basic_shapes(
    slots: Sequence[ParameterSlot], places: Sequence[int], parameters: Sequence[Tensor]
) -> Iterator[tuple[Shape, ...]]:
    """Yield every combination of small shapes, where no line says what they are."""
    del parameters
    if any(slots[place].dims is None for place in places):
        yield from basic_shapes_for(len(places))


def fill_slot(
    slot: ParameterSlot, place: OpenTensor, shape: Shape, dtype: torch.dtype, positive: bool
) -> Drawn:
    """Return a tensor to draw."""
    own = {"index": torch.int64, "mask": torch.bool}.get(place.role, dtype)
    # What scales or adds to something is rarely below 0.
    positive = positive or place.role == "scalar"
    return Drawn(shape, slot.dtype or own, positive, many=place.role == "tensors")
