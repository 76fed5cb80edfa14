"""A probe: one rule of a right derivative, its page, and the experiment that shows a violation."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Literal

from pullback.diagnostic import Finding, Level
from pullback.verify.call import Call
from pullback.verify.source import SourcePlace

# The effects of a fault. A probe about an effect does not run where an earlier finding explains it:
# one cause, one finding.
Effect = Literal[
    "fresh",  # what fresh memory held is seen
    "forward",  # the ordinary forward raises
    "backward",  # the ordinary backward raises, or another one does in ordinary use
    "numbers",  # gradients are wrong
    "values",  # gradients are wrong for other values, options, sizes or dtypes
    "layout",  # wrong for other strides of the gradients that arrive
    "input layout",  # wrong for other strides of the inputs
    "repeat",  # a second backward, two calls in flight
    "random",  # gradients depend on the random state
    "second",  # second derivatives are wrong or raise
    "tangent",  # forward mode is wrong or raises
    "transform",  # torch.func, vmap
    "traced",  # fake tensors, torch.compile
    "autocast",
    "checkpoint",
    "memory",  # kept longer, or more than is needed
]
Needs = Literal["nothing", "forward", "backward"]


class NotApplicable(Exception):  # noqa: N818  (an outcome, no error)
    """A probe's question has no meaning for this call; the text says why."""


class Probe(ABC):
    """One rule. A subclass registers itself; its docstring is its page.

    Attributes:
        code: never reused.
        name: what is wrong, as it reads in a report.
        level: of its findings, unless they say otherwise.
        milder: whether some of its findings are advice, though its level is fault.
        help: the cure, unless a finding says otherwise.
        needs: what has to work in the ordinary call for the question to make sense.
        about: the effects it looks at; it does not run if one of them is explained.
        explains: the effects that its finding explains.
        intentions: what an author can declare to say that this is deliberate: the probe does not
            run.
        unnatural: whether it makes calls that no user would make: poisoned memory, other values,
            options or sizes, which a kernel may assume never to occur. If a process dies of such a
            call, that is not a fault; if it dies of the same values in another layout, or of a
            second backward, it is.
        imports: modules that it makes PyTorch import and that take long. They are imported before
            the process is forked: once, and not again for every check.
    """

    registry: ClassVar[list[type[Probe]]] = []

    code: ClassVar[str]
    name: ClassVar[str]
    level: ClassVar[Level] = "fault"
    milder: ClassVar[bool] = False
    help: ClassVar[str | None] = None
    needs: ClassVar[Needs] = "backward"
    about: ClassVar[frozenset[Effect]] = frozenset()
    explains: ClassVar[frozenset[Effect]] = frozenset()
    intentions: ClassVar[frozenset[str]] = frozenset()
    unnatural: ClassVar[bool] = False
    imports: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        if inspect.isabstract(cls) or not hasattr(cls, "code"):
            return
        assert all(cls.code != other.code for other in Probe.registry), f"{cls.code} is taken"
        Probe.registry.append(cls)

    @abstractmethod
    def examine(self, call: Call) -> Iterator[Finding]:
        """Yield findings.

        Raises:
            NotApplicable: the question has no meaning for this call.
        """

    def breach(
        self,
        message: str,
        *,
        where: SourcePlace | None = None,
        help: str | None = None,
        level: Level | None = None,
        **evidence: object,
    ) -> Finding:
        """Return a finding of this probe; evidence that is None is left out."""
        shown = tuple(
            (key.replace("_", " "), str(value))
            for key, value in evidence.items()
            if value is not None
        )
        return Finding(
            code=self.code,
            name=self.name,
            message=message,
            evidence=shown,
            help=help or self.help,
            level=level or self.level,
            where=None if where is None else str(where),
            file=None if where is None else where.file,
        )


def page_of(probe: type[Probe]) -> str:
    """Return a probe's page: its docstring."""
    return f"# {probe.code} {probe.name}\n\n{inspect.getdoc(probe)}\n"
