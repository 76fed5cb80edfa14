"""A definition -> the entries of PyTorch's dispatcher."""

from __future__ import annotations

import torch

from pullback.bind import autocast, program, rule
from pullback.bind.kinds.kind import Kind
from pullback.bind.notice import authors_file, notice
from pullback.bind.operator import Operator
from pullback.bind.registration import Differs, Registration, overload_of
from pullback.bind.registry import lock, operators
from pullback.define.line import Line
from pullback.define.schema import schema
from pullback.diagnostic import PullbackError, Rule

ForeignOperator = Rule("PB354", "foreign-operator")

# PyTorch's registrations last as long as these objects.
_registrations: dict[str, Registration] = {}


class RedefinitionNotice(UserWarning):
    """An operator was defined again; the new definition replaces the old one."""


def register(kind: Kind) -> Operator:
    """Compile, wire and register an operator, in place of an earlier one of the same name.

    Several threads may define the same one: they compile at the same time, and take turns here.
    """
    line = kind.definition.line
    runtime = kind.runtime  # if it cannot be had, that is the first error
    kind.prepare()
    with lock:
        operator = _register(kind)
        if runtime:
            kind.install()
            operator.connect()
        operator.file = authors_file()
        operators[line.qualname] = operator
    return operator


def _register(kind: Kind) -> Operator:
    line = kind.definition.line
    if line.qualname in operators:
        announce_redefinition(line)
    operator = exchange_definition(kind)
    if operator is None:
        if line.qualname in operators:
            remove(line.qualname)
        if kind.definition.taken == "no":
            require_free(kind)
        library = _registrations[line.qualname] = Registration(line.namespace)
        operator = register_with_pytorch(kind, library)
    return operator


def exchange_definition(kind: Kind) -> Operator | None:
    """Replace an earlier definition that registered the same; return None if there is none.

    Another thread may be calling the operator: it gets one or the other.
    """
    line = kind.definition.line
    earlier = _registrations.get(line.qualname)
    if earlier is None:
        return None
    registration = Registration(line.namespace, earlier)
    try:
        operator = register_with_pytorch(kind, registration)
    except Differs:
        return None
    return operator if registration.exchange() else None


def register_with_pytorch(kind: Kind, library: Registration) -> Operator:
    """Register all of an operator except the runtime's part; return it."""
    definition = kind.definition
    line = definition.line
    if definition.taken == "no":
        text = schema(line, masked=definition.masked, symbols=definition.symbols)
        library.define(text, tags=(torch.Tag.pt2_compliant_tag,))
    for derivative_rule in kind.derivatives.rules:
        rule.register(derivative_rule, library)
    overload = overload_of(line.qualname)
    autocast.register(definition, library, overload)
    return kind.register(library, overload)


def require_free(kind: Kind) -> None:
    """Stop if another operator has the name of this one or of a function of its derivatives."""
    line = kind.definition.line
    for name in (line.name, *(each.name for each in kind.derivatives.rules)):
        if program.find_schema(f"{line.namespace}::{name}", ""):
            raise foreign_operator(f"{line.namespace}::{name}")


def foreign_operator(qualname: str) -> PullbackError:
    """Return the error for a name that somebody else's operator has."""
    return ForeignOperator.error(
        f"{qualname} is registered already, and not by this definition",
        help="choose another namespace or name; or leave the kernels out, to take it over",
    )


def announce_redefinition(line: Line) -> None:
    """Say that a definition is replaced, at the line that replaces it."""
    text = f"{line.qualname} is defined again; this definition replaces the earlier one"
    notice(text, RedefinitionNotice)


def remove(qualname: str) -> None:
    """Take an operator's definition out of the dispatcher."""
    _registrations.pop(qualname)._destroy()
    del operators[qualname]
