"""Adopting a Function: comparing it, or checking that it is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

import pullback as pb
from benchmarks.packages.arguments import found
from benchmarks.packages.calls import Arguments, compiled
from benchmarks.packages.case import Case, Package
from benchmarks.packages.compare import compared, first_line, on_its_own, tried, verdict


@dataclass(frozen=True)
class Result:
    """What came of one Function."""

    package: Package
    case: Case
    cells: tuple[str, ...] = ()
    alone: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something did not go as the table says."""
        return any(cell.startswith("FAILED") for cell in (*self.cells, self.message))


def adopted(package: Package, case: Case) -> pb.Operator:
    """Return the operator that a Function was made into."""
    return pb.operator(f"{package.namespace}::{case.line}", function=found(case.function))


class PythonObject:
    """Stands for an argument that is a function, a module, a tree of operators."""


STAND_INS: dict[str, Any] = {"int": 1, "float": 1.0, "bool": True, "str": "text"}


def by_example(package: Package, case: Case) -> None:
    """Adopt a Function that takes objects by an example call, which is to raise."""
    name, _, rest = case.line.partition("(")
    parameters = re.findall(r"\w+(?:(\[[^]]*\])|: (\w+))", rest.partition(") ->")[0])
    example = tuple(
        torch.ones(2, 2) if dims else STAND_INS.get(type_, PythonObject())
        for dims, type_ in parameters
    )
    qualname = f"{package.namespace}::{name}"
    pb.operator(qualname, function=found(case.function), example=example)


def said(finding: pb.Finding) -> str:
    """Return an error in one line, without the evidence."""
    help = f" ({finding.help})" if finding.help else ""
    return f"{finding.name} [{finding.code}]: {finding.message}{help}"


def refusal(package: Package, case: Case) -> str:
    """Return what pullback says to a Function that cannot be adopted."""
    try:
        if ": object" in case.line:
            by_example(package, case)
        operator = adopted(package, case)
        operator(*Arguments.made(case.arguments, 0).values)
    except pb.PullbackError as error:
        right = error.finding.code == case.refused
        text = said(error.finding)
        return text if right else f"FAILED: expected {case.refused}, got {text}"
    except Exception as error:  # an error that does not say why
        return f"FAILED: {type(error).__name__}: {first_line(error)}"
    return f"FAILED: expected {case.refused}, and it was adopted"


def behind_custom_op(case: Case, original: Any, operator: pb.Operator) -> str:
    """Return the verdict on the original's forward, compiled behind PyTorch's own custom operator.

    What goes wrong there as well is between the Function and `torch.compile`.
    """
    given = Arguments.made(case.arguments, 0)
    expected = tuple(o.detach() for o in given.call(original)(*given.tensors))
    signature = str(operator.overload._schema).partition("::")[2].partition("(")[2]
    with torch.library._scoped_library("packages_control", "FRAGMENT") as library:
        library.define(f"f({signature}")
        library.impl("f", original, "CompositeExplicitAutograd")
        likes = tuple(torch.empty_like(o) for o in expected)
        fake = likes[0] if len(likes) == 1 else likes
        torch.library.register_fake("packages_control::f", lambda *_: fake, lib=library)
        run = compiled(given.call(torch.ops.packages_control.f.default))
        return verdict(tuple(run(*(t.detach() for t in given.tensors))), expected)


def examine(package: Package, case: Case) -> Result:
    """Adopt a Function and compare it, or check that it is refused."""
    original = found(case.function).apply
    result = Result(package, case)
    if case.refused:
        return replace(result, message=refusal(package, case))
    if case.broken:
        said = compared(case, original, original)[0].replace("the original: ", "")
        text = f"{case.broken}: {said.removeprefix('FAILED: ')}"
        return replace(result, message=text if said.startswith("FAILED") else f"FAILED: {said}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            operator = adopted(package, case)
            cells = compared(case, operator, original)
            if cells[1].startswith("FAILED") and case.loses:
                control = tried(lambda: behind_custom_op(case, original, operator))
                cells = (cells[0], "its own" if control == cells[1] else cells[1], *cells[2:])
        except pb.PullbackError as error:
            cells = (f"FAILED: {first_line(error)}",) * 4
    copied = any(w.category.__name__ == "AliasNotice" for w in caught)
    notes = [*([case.note] if case.note else []), *(["output copied"] if copied else [])]
    return replace(result, cells=cells, alone=on_its_own(case, original), notes=tuple(notes))


def uncovered(package: Package) -> list[str]:
    """Return the Functions in the package's loaded modules that the table does not have."""
    known = {found(case.function) for case in package.cases}
    roots = {case.function.partition(".")[0].partition(":")[0] for case in package.cases}

    def below(function: type[Any]) -> Iterator[type[Any]]:
        for each in function.__subclasses__():
            yield each
            yield from below(each)

    return [
        f"{each.__module__}.{each.__qualname__}"
        for each in below(torch.autograd.Function)
        if each.__module__.partition(".")[0] in roots
        and each not in known
        and "<locals>" not in each.__qualname__
    ]
