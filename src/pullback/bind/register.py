"""A definition -> the entries of PyTorch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from pullback.bind import autocast as casting
from pullback.bind import (
    compiled,
    detached,
    kernel,
    native,
    program,
    rule,
    runtime,
    sharding,
    takeover,
)
from pullback.bind.batching import batching
from pullback.bind.notice import authors_file, notice
from pullback.bind.operator import Operator, native_operator
from pullback.bind.program import Program
from pullback.bind.registration import Differs, Registration, overload_of
from pullback.bind.rule import DerivativeRule
from pullback.bind.runtime import Runtime
from pullback.bind.sensible import NoKernel
from pullback.define import derivative
from pullback.define.derivative import Declared
from pullback.define.line import Line
from pullback.define.operator import Definition
from pullback.define.schema import schema
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import glue, prebuilt, toolchain
from pullback.kernels.cuda_on_cpu import mode

if TYPE_CHECKING:
    from pullback.bind.functions.adopted import Adopted

ForeignOperator = Rule("PB354", "foreign-operator")

operators: dict[str, Operator] = {}
# Torch's registrations last as long as these live.
_registrations: dict[str, Registration] = {}


class RedefinitionNotice(UserWarning):
    """An operator was defined again; the new definition replaces the old one."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything that can fail, done before an earlier definition is given up."""

    definition: Definition
    kernels: dict[glue.Device, int]  # the address of the entry point
    backward: Program | None
    jvp: Program | None
    rules: tuple[DerivativeRule, ...]
    adopted: Adopted | None


def prepare(definition: Definition) -> Prepared:
    """Compile the kernels and wire the derivatives."""
    backward, jvp, rules = wire(definition)
    if definition.indexed:
        from pullback.bind.index import verify  # noqa: PLC0415

        verify.at_definition(definition)
    return Prepared(
        definition=definition,
        kernels=compiled.compile_kernels(definition),
        backward=backward,
        jvp=jvp,
        rules=rules,
        adopted=adopted_by(definition),
    )


def wire(
    definition: Definition,
) -> tuple[Program | None, Program | None, tuple[DerivativeRule, ...]]:
    """Return the programs of the declared derivatives, and the Python functions among them."""
    line = definition.line
    lines = {name: other.line for name, other in operators.items()}
    rules: list[DerivativeRule] = []
    programs: dict[str, Program | None] = {"backward": None, "jvp": None}
    kinds: tuple[tuple[Literal["backward", "jvp"], Any, Any], ...] = (
        ("backward", program.backward, rule.backward_rule),
        ("jvp", program.jvp, rule.jvp_rule),
    )
    for kind, wire, rule_of in kinds:
        declared: Declared | None = getattr(definition, kind)
        if callable(declared):
            rules.append(rule_of(line, declared))
            rules[-1].schema()
            programs[kind] = rules[-1].program()
        elif declared is not None:
            programs[kind] = wired(definition, kind, declared, wire, lines)
        detached.require_safe(definition, programs[kind], operators)
    return programs["backward"], programs["jvp"], tuple(rules)


def wired(
    definition: Definition,
    kind: Literal["backward", "jvp"],
    declared: Mapping[str, str | None] | str,
    wire: Callable[..., Program],
    lines: Mapping[str, Line],
) -> Program:
    """Return the program of a derivative; entries that are formulas become an operator first."""
    texts = derivative.formulas_in(declared)
    if not texts:
        return wire(definition, declared, lines)
    from pullback.bind.formula import written  # noqa: PLC0415  (only formulas need it)

    assert isinstance(declared, Mapping)
    rest = wire(definition, {**declared, **dict.fromkeys(texts)}, lines)
    return written.added(definition, kind, texts, rest)


def adopted_by(definition: Definition) -> Adopted | None:
    """Return the Function that a definition adopts; what it needs is imported only then."""
    if definition.function is None:
        return None
    from pullback.bind.functions.adopted import adopt  # noqa: PLC0415

    return adopt(definition.line, definition.function)


def register(definition: Definition) -> Operator:
    """Compile, wire and register a definition, in place of an earlier one of the same name."""
    line = definition.line
    taken = definition.taken != "no"
    composite = taken and takeover.is_composite(line.qualname)
    # A Function brings its own autograd, and a composite operator needs none.
    native_runtime = None if definition.function or composite else runtime_for(definition)
    prepared = prepare(definition)
    if line.qualname in operators:
        announce_redefinition(line)
    made = exchanged(prepared, native_runtime, composite=composite)
    if made is None:
        if line.qualname in operators:
            remove(line.qualname)
        if not taken:
            require_free(line, prepared.rules)
        library = _registrations[line.qualname] = Registration(line.namespace)
        made = entered(prepared, native_runtime, library, composite=composite)
    if native_runtime and not composite:
        install(native_runtime, prepared)
        made.connect()
    made.file = authors_file()
    operators[line.qualname] = made
    return made


def exchanged(
    prepared: Prepared, native_runtime: Runtime | None, *, composite: bool
) -> Operator | None:
    """Put a definition in the place of an earlier one that registered the same; else None.

    Another thread may be calling the operator: it finds the one or the other.
    """
    line = prepared.definition.line
    earlier = _registrations.get(line.qualname)
    if earlier is None:
        return None
    noted = Registration(line.namespace, earlier)
    try:
        made = entered(prepared, native_runtime, noted, composite=composite)
    except Differs:
        return None
    return made if noted.exchange() else None


def entered(
    prepared: Prepared, native_runtime: Runtime | None, library: Registration, *, composite: bool
) -> Operator:
    """Register all of a definition but what the runtime holds; return its operator."""
    definition = prepared.definition
    line, taken = definition.line, definition.taken != "no"
    if not taken:
        library.define(schema(line, masked=definition.masked), tags=(torch.Tag.pt2_compliant_tag,))
    for derivative_rule in prepared.rules:
        rule.register(derivative_rule, library)
    overload = overload_of(line.qualname)
    casting.register(definition, library, overload)
    if prepared.adopted:
        from pullback.bind.functions import operator as functions  # noqa: PLC0415

        return functions.install(definition, prepared.adopted, library, overload_of)
    if composite:
        return Operator(definition, overload)
    if native_runtime:
        (takeover.register if taken else register_python_kernels)(definition, library, overload)
        return native_operator(native_runtime)(definition, overload)
    if definition.formula or definition.indexed:
        # PyTorch sees through it: autograd, tracing and all else are those of its operations.
        run = in_pytorch(definition)
        library.impl(line.name, run, "CompositeImplicitAutograd")
        torch.library.register_vmap(line.qualname, batching(definition, overload), lib=library)
        return Operator(definition, overload)
    from pullback.bind import python_only  # noqa: PLC0415

    register_python_kernels(definition, library, overload)
    python_only.register_autograd(definition, prepared.backward, library, overload)
    return Operator(definition, overload)


def require_free(line: Line, rules: tuple[DerivativeRule, ...]) -> None:
    """Stop at a name, the operator's or its derivative function's, that another operator has."""
    for name in (line.name, *(made.name for made in rules)):
        if program.find_schema(f"{line.namespace}::{name}", ""):
            raise foreign_operator(f"{line.namespace}::{name}")


def foreign_operator(qualname: str) -> PullbackError:
    """Return the error for a name that somebody else's operator has."""
    return ForeignOperator.error(
        f"{qualname} is registered already, and not by this definition",
        help="choose another namespace or name; or leave the kernels out, to take it over",
    )


def runtime_for(definition: Definition) -> Runtime | None:
    """Return the runtime; None where it cannot be built and the operator does not need it."""
    try:
        if definition.formula and not prebuilt.has_loops(definition.line):
            toolchain.find("c++")  # its loops are compiled when they are needed
        return runtime.load()
    except PullbackError as error:
        if definition.formula or definition.indexed:
            from pullback.bind.formula import evaluate  # noqa: PLC0415

            evaluate.announce(definition.line, error)
            return None
        if not definition.python:
            raise
        from pullback.bind import python_only  # noqa: PLC0415  (seldom needed)

        python_only.announce(error)
        return None


def install(native_runtime: Runtime, prepared: Prepared) -> None:
    """Hand a definition and its kernels to the runtime."""
    if prepared.definition.formula:
        from pullback.bind.formula.operator import LazyFormula  # noqa: PLC0415

        return LazyFormula(prepared.definition).begin()
    if prepared.definition.indexed:
        from pullback.bind.formula.lazy import Lazy  # noqa: PLC0415

        return Lazy(prepared.definition).begin()
    native_runtime.define(
        native.definition_fields(
            prepared.definition, prepared.backward, prepared.jvp, prepared.kernels
        )
    )


def reload(definition: Definition) -> None:
    """Compile kernels whose files have changed; the dispatcher calls them from now on.

    Raises:
        PullbackError: PB2xx, one does not compile; the earlier kernels stay.
    """
    install(runtime.load(), prepare(definition))


def register_python_kernels(
    definition: Definition, library: torch.library.Library, overload: torch._ops.OpOverload
) -> None:
    """Register what is written in Python: the `python=` function, fake kernel, batching rule."""
    line = definition.line
    run, fake = kernels_in_python(definition)
    library.impl(line.name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(line.qualname, fake, lib=library)
    torch.library.register_vmap(line.qualname, batching(definition, overload), lib=library)
    sharding.register(definition, library)
    if definition.indexed:
        from pullback.bind.index import flops  # noqa: PLC0415

        flops.register(definition, overload)


def kernels_in_python(
    definition: Definition,
) -> tuple[Callable[..., object], Callable[..., object]]:
    """Return what runs on any device, and the fake kernel."""
    if definition.formula:
        from pullback.bind.formula import evaluate, fake  # noqa: PLC0415

        return evaluate.kernel_of(definition), fake.fake(definition)
    fake_kernel = kernel.fake(definition)
    if definition.indexed:
        from pullback.bind.index import execute  # noqa: PLC0415

        return execute.Executor(definition), fake_kernel
    if definition.python:
        return kernel.python_kernel(definition), fake_kernel
    return missing_kernel(definition), fake_kernel


def in_pytorch(definition: Definition) -> Callable[..., object]:
    """Return a formula by PyTorch's operations."""
    if definition.indexed:
        from pullback.bind.index import execute  # noqa: PLC0415

        return execute.in_pytorch(definition)
    from pullback.bind.formula import evaluate  # noqa: PLC0415

    return evaluate.kernel_of(definition)


def missing_kernel(definition: Definition) -> Callable[..., object]:
    """Return what runs on a device for which there is no kernel: an error that says so."""
    line = definition.line
    have = [name for name in ("cpu", "cuda") if getattr(definition, name)]

    def refuse(*arguments: object, output_mask: list[bool] | None = None) -> object:
        # A wrong input is said first: a sparse tensor on the CPU comes here as well.
        given = kernel.completed(definition, arguments, output_mask)
        if any(isinstance(value, torch.Tensor) for value in given):
            kernel.outputs_of(definition, given)
        devices = {str(a.device) for a in arguments if isinstance(a, torch.Tensor)}
        if not devices:
            raise NoKernel.error(
                f"{line.qualname}: every tensor is None, so PyTorch cannot tell the device",
                help="pass at least one tensor",
            )
        raise NoKernel.error(
            f"{line.qualname} has no kernel for {', '.join(sorted(devices))}",
            have=", ".join(have),
            help=f"{_way_to_a_kernel(have)}, or give the operator another kernel",
        )

    return refuse


def _way_to_a_kernel(have: list[str]) -> str:
    """Say where there is a kernel; "cuda" is no place to go where it is only pretended."""
    if have == ["cuda"] and mode.asked_for():
        return (
            "the GPU here is only pretended, and to run on the CPU a CUDA kernel needs its source:"
            " pip install -e the package's project"
        )
    return f"move the tensors to {have[0]}"


def announce_redefinition(line: Line) -> None:
    """Say that a definition is replaced, at the line that replaces it."""
    text = f"{line.qualname} is defined again; this definition replaces the earlier one"
    notice(text, RedefinitionNotice)


def remove(qualname: str) -> None:
    """Take an operator's definition out of the dispatcher."""
    _registrations.pop(qualname)._destroy()
    del operators[qualname]
