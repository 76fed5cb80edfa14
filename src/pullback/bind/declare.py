"""`pb.operator`: what an author declares -> a definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pullback.bind import checker, program, takeover
from pullback.bind.kinds import kind_of
from pullback.bind.operator import Operator
from pullback.bind.register import foreign_operator, register
from pullback.bind.registry import lock, operators
from pullback.bind.validate import WrongDeclaration, accuracy_of, validate
from pullback.define.derivative import Declared
from pullback.define.line import Line
from pullback.define.operator import Accuracy, Autocast, Definition
from pullback.define.parse import parse
from pullback.define.source import Source
from pullback.diagnostic import an

if TYPE_CHECKING:
    from pullback.define.math.formula import Formula


def operator(  # noqa: PLR0913  (an operator's parts, each by its name)
    line: str,
    *,
    cpu: Source | None = None,
    cuda: Source | None = None,
    python: Callable[..., object] | None = None,
    function: type | None = None,
    reference: Callable[..., object] | None = None,
    backward: Declared | None = None,
    jvp: Declared | None = None,
    autocast: Autocast = "as_is",
    accuracy: Accuracy = "4ulp",
    example: Sequence[object] | None = None,
    check: bool = False,
) -> Operator:
    """Define an operator by its line, register it with PyTorch and return it.

    Args:
        line: its name, inputs and outputs: "demo::add2(a[...], b[...]) -> c[...]". The name of an
            operator that somebody else registered takes that over; with a whole line and no
            kernel, what it lacks is added: fake kernel, derivative, batching, autocast.
        cpu: its C++ kernel, `pb.source("add2.cpp", call="add2(c, a, b, numel(c))")`.
        cuda: its CUDA kernel, given likewise.
        python: in place of kernels, a function of the inputs in the line's order, in PyTorch,
            NumPy or anything else. `torch.compile` does not look into it.
        function: in place of kernels, an existing `torch.autograd.Function`, as it is; it brings
            its own backward.
        reference: the same in plain PyTorch, for checks and exporters.
        backward: the gradients: expressions by input, {"a": "demo::mul(grad, b)"}; or the name of
            an operator that takes `grad` (or `grad_<output>`), inputs and outputs by name and
            returns `grad_<input>`; or a function of the same names that returns the gradients in
            the line's order. A gradient that does not arrive is zeros; it is None where the
            operator's line marks it optional, or the function's parameter is annotated so.
        jvp: the tangents of the outputs in the same three forms, of `tangent_<input>`. Without
            it, forward mode is derived by two reverse passes.
        autocast: what `torch.autocast` does to the tensors of the shared dtype: "as_is", nothing;
            "lower", cast to its dtype; "float32"; "promote", to the widest of them.
        accuracy: of a formula's functions: "4ulp", at most four units in the last place, or "1ulp",
            that of PyTorch's own.
        example: arguments of the Function's `apply`. With a name in place of the line, the line is
            worked out by calling forward at a few sizes, and printed; with a line, forward is
            compared with it. With `check`: what any operator is called with.
        check: look for faults in its derivative, as `pb.check` does; without an example, it is
            called with inputs that fit the line.

    Returns:
        The operator, which is `torch.ops.<namespace>.<name>` as well.

    Raises:
        PullbackError: PB1xx, the line or a derivative is wrong; PB2xx, a kernel does not compile;
            PB3xx, it cannot be registered; PB407, with `check`, its derivative has a fault, though
            it is defined all the same.
    """
    if not isinstance(line, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongDeclaration.error(
            f"a line is a text, and this is {an(type(line).__name__)}",
            help='write it between quotes: pb.operator("demo::f(x[n]) -> y[n] = x*x")',
        )
    if is_name(line) and function is None and line in operators:
        return operators[line]
    if example is not None and function is None and not check:
        raise WrongDeclaration.error(
            f"{line}: example= is given without function= or check=", help="leave it out"
        )
    parsed = line_for(line, function, example)
    definition = Definition(
        line=parsed,
        formula=formula_of(parsed, accuracy),
        cpu=cpu,
        cuda=cuda,
        python=python,
        function=function,
        reference=reference,
        backward=backward,
        jvp=jvp,
        autocast=autocast,
    )
    if is_foreign(definition.line):
        if definition.kernels:
            raise foreign_operator(definition.line.qualname)
        definition = takeover.require_addable(definition)
    validate(definition)
    if function is not None and example is not None and not is_name(line):
        from pullback.bind.functions import from_example  # noqa: PLC0415  (seldom needed)

        from_example.require_fit(definition.line, function, example)
    registered = register(kind_of(definition))
    if check:
        checker.check(registered, example)
    return registered


def formula_of(line: Line, accuracy: Accuracy) -> Formula | None:
    """Return the formula after `=`, if there is one."""
    ulps = accuracy_of(line.qualname, accuracy)
    if line.formula is None:
        return None
    from pullback.define.math import notation  # noqa: PLC0415  (only formulas need it)

    return notation.parse(line, ulps)


def is_name(line: str) -> bool:
    """Return whether only an operator's name is given, without a line."""
    return bool(line.strip()) and "(" not in line


def line_for(text: str, function: object, example: Sequence[object] | None) -> Line:
    """Return the line that is given, or that of an example or of a registered operator."""
    if not is_name(text):
        return parse(text)
    if function is None:
        return takeover.line_of(text)
    if example is None:
        raise WrongDeclaration.error(
            f"{text}: neither a line nor an example says what the operator is",
            help=f'pb.operator("{text}(x[n]) -> y[n]", function=...), or example=(arguments of '
            "apply) to work the line out",
        )
    from pullback.bind.functions import from_example  # noqa: PLC0415  (seldom needed)

    return from_example.line_from(text, function, example)


def is_foreign(line: Line) -> bool:
    """Return whether somebody else registered an operator of this name."""
    with lock:
        operator = operators.get(line.qualname)
        if operator is not None:
            return operator.definition.taken != "no"
        return program.find_schema(line.qualname, "") is not None
