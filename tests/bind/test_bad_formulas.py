"""What is no formula is refused where it is defined, with what is wrong, where, and what to do."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError

pytestmark = pytest.mark.compiler
numbers = itertools.count()


def refusal(define: Callable[[], object]) -> PullbackError:
    with pytest.raises(PullbackError) as caught:
        define()
    return caught.value


def refused(line: str, code: str, *words: str, cure: str | None = None, **given: Any) -> None:
    """Define an operator by the rest of its line, and hold the error against what it has to say."""
    name = f"pbbad::bad{next(numbers)}"
    error = refusal(lambda: pb.operator(name + line, **given))
    message = str(error)
    assert error.finding.code == code, message
    assert name in message
    for word in words:
        assert word in message, message
    if cure is not None:
        assert error.finding.help is not None, message
        assert cure in error.finding.help, message
    assert not hasattr(torch.ops.pbbad, name.partition("::")[2])


# --- formulas of one tensor x and the output y

OF_ONE_TENSOR: list[tuple[str, str, tuple[str, ...], str | None]] = [
    # what is not there
    ("sigmiod(x)", "PB132", ("sigmiod",), "did you mean 'sigmoid'?"),
    ("tahn(x)", "PB132", ("tahn",), "did you mean 'tanh'?"),
    ("foo(x)", "PB132", ("foo",), None),
    ("xx * 2", "PB133", ("'xx'", "have", "x"), "did you mean 'x'?"),
    ("y * 2", "PB151", ("'y'",), None),
    ("tanh", "PB133", ("'tanh'",), "tanh(...)"),
    ("X", "PB133", ("'X'",), None),
    ("π * x", "PB133", ("π",), None),
    # calls
    ("tanh()", "PB134", ("'x'", "tanh(x)"), None),
    ("tanh(x, x)", "PB134", ("2", "tanh(x)"), None),
    ("clamp(x, mni=0)", "PB134", ("'mni'",), "did you mean 'min'?"),
    ("clamp(x, 0, min=1)", "PB134", ("'min'",), None),
    ("tanh(*x)", "PB134", ("tanh",), None),
    ("where(x > 0, x)", "PB134", ("where",), None),
    ("gelu(x, approximate='erf')", "PB134", ("approximate", "tanh"), None),
    ("gelu(x, approximate=x)", "PB134", ("approximate",), None),
    ("atan2(x)", "PB134", ("'y'",), None),
    # kinds of values
    ("x and x > 0", "PB135", ("conditions",), None),
    ("not x", "PB135", ("not",), None),
    ("where(x, x, 1)", "PB135", ("where", "x != 0"), None),
    ("polygamma(x, x)", "PB135", ("polygamma", "whole"), None),
    ("polygamma(1.5, x)", "PB135", ("polygamma",), None),
    ("polygamma(-1, x)", "PB135", ("polygamma",), None),
    ("x > 0", "PB139", ("condition",), "y[...]: bool"),
    # division by zero
    ("x / 0", "PB136", ("zero", "x / 0"), None),
    ("x / 0.0", "PB136", ("zero",), None),
    ("x / (1 - 1)", "PB136", ("zero",), None),
    ("x % 0", "PB136", ("zero", "x % 0"), None),
    ("x // 0", "PB136", ("zero", "x // 0"), None),
    ("div(x, 0)", "PB136", ("zero",), None),
    ("true_divide(x, 0)", "PB136", ("zero",), None),
    ("remainder(x, 0)", "PB136", ("zero",), None),
    ("floor_divide(x, 0)", "PB136", ("zero",), None),
    ("reciprocal(0) * x", "PB136", ("zero",), None),
    ("x / False", "PB136", ("zero",), None),
    # outputs
    ("t = x", "PB137", ("'y'",), "y = ..."),
    ("y = x; y = 2*x", "PB137", ("'y'",), None),
    ("x = 2; y = x", "PB137", ("'x'",), None),
    ("pi = 3; y = x*pi", "PB137", ("'pi'",), None),
    ("x, x", "PB137", (), None),
    ("x; y = x", "PB137", ("x",), "y = ..."),
    ("y = x; x", "PB137", ("x",), None),
    (";", "PB137", ("'y'",), None),
    # what is no mathematics
    ("x if x > 0 else 0", "PB131", ("x if x > 0 else 0",), "where("),
    ("x & x", "PB131", ("x & x",), "and"),
    ("x | x", "PB131", ("x | x",), "or"),
    ("~x", "PB131", ("~x",), "not"),
    ("x ^ 2", "PB131", ("x ^ 2",), "**"),
    ("x @ x", "PB131", ("x @ x",), None),
    ("x << 2", "PB131", ("x << 2",), None),
    ("torch.tanh(x)", "PB131", ("torch.tanh",), "tanh(x)"),
    ("x.tanh()", "PB131", ("x.tanh()",), "bare name"),
    ("x.shape", "PB131", ("x.shape",), None),
    ("x[0]", "PB143", ("x[0]", "batch"), None),
    ("y[0] = x", "PB154", ("has no boundary",), "names of indices"),
    ("lambda: x", "PB131", ("lambda",), "@pb.formula"),
    ("'x'", "PB131", ("'x'",), None),
    ("None", "PB131", ("None",), None),
    ("2j * x", "PB131", ("2j",), None),
    ("[x]", "PB131", ("[x]",), None),
    ("{x}", "PB131", ("{x}",), None),
    ("y = x +", "PB131", ("^",), None),
    ("x x", "PB131", ("x x", "^"), None),
    ("x\n2", "PB131", (), "';'"),
    ("t = x\ny = t", "PB131", (), "';'"),
    ("x" + "\u200b", "PB131", (), None),
    ("x(2)", "PB132", ("x",), None),
    # numbers that no kernel can hold
    (f"x + {2**63}", "PB131", ("64 bits",), None),
    (f"x + {10**400}", "PB131", (), None),
    ("x + " + "9" * 5000, "PB131", (), None),
    ("x * 1e999", "PB131", ("inf",), None),
    ("x * -1e999", "PB131", ("inf",), None),
    ("x * 9**9**9**9**9", "PB135", ("64 bits", "9**9**9"), None),
    ("x * 2**4096", "PB135", ("64 bits", "2**4096"), None),
    ("x * (-2)**64", "PB135", ("64 bits",), None),
    ("x * (4000000000*4000000000)", "PB135", ("64 bits",), None),
    (f"x * ({2**63 - 1} + 1)", "PB135", ("64 bits",), None),
    (f"x * (-{2**63 - 1} - 2)", "PB135", ("64 bits",), None),
    # what would run something
    ("__import__('os')", "PB132", ("__import__",), None),
    ("exec('1')", "PB132", ("exec",), None),
    ("open(x)", "PB132", ("open",), None),
    ("operator_and(x, x)", "PB132", (), None),
    ("number(x)", "PB132", (), None),
    ("powi(x)", "PB132", (), None),
    ("whole(x)", "PB132", (), None),
    # sizes
    ("(" * 10_000 + "x" + ")" * 10_000, "PB131", (), None),
    ("-" * 10_000 + "x", "PB131", (), None),
    ("tanh(" * 1_000 + "x" + ")" * 1_000, "PB131", (), None),
    ("+".join(["x"] * 100_000), "PB131", (), None),
    ("x" + "**x" * 10_000, "PB131", (), None),
]


NO_MATHEMATICS = [
    *("b'x'", "f'{x}'", "...", "[x for x in x]", "(t := x)", "x is x", "x in x", "y += x"),
    *("y: x", "a, b = x", "a = b = x", "1 = x", "y = ", "(x", "x)", "x # half"),
    *("import os", "\\x", "x\0", "1_0_ * x", "01 * x", "yield x", "await x", "2(x)"),
    *("tanh(x)(x)", "__import__('os').system('true')", "().__class__.__bases__[0]"),
    *("x.__class__",),
]


def shortened(text: object) -> str:
    return ascii(text)[:40] if isinstance(text, str) else ""


@pytest.mark.parametrize(("formula", "code", "words", "cure"), OF_ONE_TENSOR, ids=shortened)
def test_what_is_no_formula_is_refused_at_its_definition(
    formula: str, code: str, words: tuple[str, ...], cure: str | None
) -> None:
    refused(f"(x[...]) -> y[...] = {formula}", code, *words, cure=cure)


@pytest.mark.parametrize("formula", NO_MATHEMATICS, ids=shortened)
def test_what_is_no_mathematics_is_refused(formula: str) -> None:
    refused(f"(x[...]) -> y[...] = {formula}", "PB131")


@pytest.mark.parametrize("formula", ["", " ", "\n"])
def test_an_empty_formula_is_refused(formula: str) -> None:
    refused_by_the_parser(f"(x[...]) -> y[...] = {formula}")


def refused_by_the_parser(line: str) -> None:
    error = refusal(lambda: pb.operator("pbbad::syntax" + line))
    assert error.finding.code.startswith("PB10"), str(error)


# --- lines whose parts do not go with a formula

LINES: list[tuple[str, str, tuple[str, ...], str | None]] = [
    ("(x[n]) -> y[m] = x", "PB145", ("'n'", "x[n]"), "sum[n](...)"),
    ("(x[n]) -> y[] = x", "PB145", ("'n'", "x[n]"), None),
    ("(x[n, m]) -> y[n] = x", "PB145", ("'m'", "x[n, m]"), None),
    ("(x[...], b[n]) -> y[...] = x + b", "PB145", ("'n'",), None),
    ("(x[..., n]) -> y[n] = x", "PB145", ("...",), None),
    ("(x[n]) -> y[3] = x", "PB145", ("'n'",), None),
    ("(x[n], k: int) -> y[k] = x", "PB138", ("'k'",), None),
    ("(x[n]) -> y[n + 1] = x", "PB138", (), None),
    ("(x[n]) -> y[2 * n] = x", "PB138", (), None),
    ("(x[n, n], b[n]) -> y[n, n] = x + b", "PB138", ("'n'", "b[n]"), "two names"),
    ("(x[*]) -> y[*] = x", "PB138", ("x[*]",), None),
    ("(x[*], b[n]) -> y[n] = b", "PB138", ("x[*]",), None),
    ("(x[n]*) -> y[n] = x", "PB138", ("x[n]*",), None),
    ("(x[n]: complex64) -> y[n] = x", "PB139", ("complex64",), "view_as_real"),
    ("(x[n]) -> y[n]: complex128 = x", "PB139", ("complex128",), None),
    ("(x[n], k: int[]) -> y[n] = x", "PB139", ("k: int[]",), None),
    ("(x[n], k: float[]) -> y[n] = x", "PB139", ("k: float[]",), None),
    ("(x[n], k: str) -> y[n] = x", "PB139", ("k: str",), None),
    ("(x[n], k: float?) -> y[n] = x", "PB139", ("k: float?",), None),
    ("(x[n]) -> y[n]: int64 = x", "PB139", ("real number", "y[n]: int64"), None),
    ("(x[n]) -> y[n]: bool = x", "PB139", ("y[n]: bool",), None),
    ("(x[n]: int64) -> y[n]: bool = x", "PB139", ("whole number",), "int64"),
    ("(x[n]) -> y[n]: int64 = x > 0", "PB139", ("condition",), None),
    ("(x[n]) -> (y[n], z[n]) = x", "PB137", (), None),
    ("(x[n]) -> (y[n], z[n]) = x, x, x", "PB137", (), None),
    ("(x[n]) -> (y[n], z[n]) = y = x", "PB137", ("'z'",), "z = ..."),
    ("(x[n]) -> (y[n], z[n]) = y = x; 2*x", "PB137", ("2*x",), None),
    ("(k: float) -> y[] = k", "PB351", ("no tensor",), None),
]


@pytest.mark.parametrize(("line", "code", "words", "cure"), LINES, ids=shortened)
def test_a_line_that_no_formula_goes_with_is_refused(
    line: str, code: str, words: tuple[str, ...], cure: str | None
) -> None:
    refused(line, code, *words, cure=cure)


def test_an_input_that_is_changed_in_place_is_refused() -> None:
    error = refusal(lambda: pb.operator("pbbad::changed(x[n]) -> x[n] = x + 1"))
    assert "pbbad::changed" in str(error)


def test_a_formula_stands_alone() -> None:
    source = pb.source("void f(float* y);", call="f(y)")
    givens: list[dict[str, Any]] = [{"cpu": source}, {"cuda": source}, {"python": torch.clone}]
    for given in givens:
        refused("(x[n]) -> y[n] = x", "PB352", "formula", next(iter(given)), **given)
    for name in ("backward", "jvp"):
        key = "x" if name == "backward" else "y"
        given = {name: {key: "grad"}}
        refused("(x[n]) -> y[n] = x", "PB355", f"{name}=", "formula", cure="leave it out", **given)


def test_an_unknown_accuracy_is_refused() -> None:
    refused("(x[n]) -> y[n] = x", "PB355", "accuracy", "4ulp, 1ulp", accuracy="2ulp")


# --- derivatives of other kernels, written as formulas

DERIVATIVES: list[tuple[str, str, tuple[str, ...]]] = [
    ("gard * x", "PB133", ("'gard'", "did you mean 'grad'?")),
    ("grad * sigmiod(x)", "PB132", ("sigmiod", "did you mean 'sigmoid'?")),
    ("grad / 0", "PB136", ("zero",)),
    ("grad *", "PB131", ()),
    ("grad > 0", "PB139", ("'x'", "condition", "write float(...)")),
    ("t = grad", "PB137", ()),
]


@pytest.mark.parametrize(("formula", "code", "words"), DERIVATIVES, ids=shortened)
def test_a_derivative_that_is_no_formula_is_refused(
    formula: str, code: str, words: tuple[str, ...]
) -> None:
    given: dict[str, Any] = {"python": torch.clone, "backward": {"x": formula}}
    refused("(x[n]) -> y[n]", code, *words, **given)


# --- functions


def branch(x: Any) -> Any:
    return x if x > 0 else 0 * x


def repeat(x: Any) -> Any:
    while x > 0:
        x = x - 1
    return x


FUNCTIONS: dict[str, tuple[Callable[..., Any], str, tuple[str, ...], str | None]] = {
    "a branch": (branch, "PB135", (), "torch.where"),
    "a loop": (repeat, "PB135", (), "torch.where"),
    "math": (lambda x: 2 * math.tanh(x), "PB135", (), "torch.tanh(x)"),
    "int": (lambda x: 2 * int(x), "PB135", (), None),
    "a sum": (lambda x: x.sum(), "PB131", ("sum",), None),
    "torch.sum": (lambda x: 2 * torch.sum(x), "PB132", ("sum",), None),
    "a product of matrices": (lambda x: x @ x, "PB131", (), None),
    "an index": (lambda x: x[0], "PB131", (), None),
    "iteration": (lambda x: next(iter(x)), "PB131", (), None),
    "len": (lambda x: x * len(x), "PB131", (), None),
    "shape": (lambda x: x * x.shape[0], "PB131", ("shape",), None),
    "a tensor": (lambda x: x * torch.ones(3), "PB135", ("Tensor",), None),
    "a string": (lambda x: x * "a", "PB134", ("text",), None),
    "a complex number": (lambda x: x * 2j, "PB135", ("complex",), None),
    "nothing": (lambda x: None, "PB137", ("nothing",), None),
    "no outputs": (lambda x: (), "PB137", (), None),
    "part of nothing": (lambda x: (x, None), "PB137", (), None),
    "division by zero": (lambda x: x / 0, "PB136", ("zero",), None),
    "remainder by zero": (lambda x: x % 0, "PB136", ("zero",), None),
    "keywords": (lambda x: torch.clamp(x, mni=0), "PB131", ("clamp",), None),  # pyright: ignore
    "too few": (lambda x: torch.atan2(x, *[]), "PB131", ("atan2",), None),
    "out=": (lambda x: torch.tanh(x, out=x), "PB134", ("tanh",), None),
    "a dtype": (lambda x: x.to(torch.float64), "PB131", ("to",), None),
    "in place": (lambda x: x.tanh_(), "PB131", ("tanh_",), None),
    "a builtin": (torch.tanh, "PB134", ("names",), "lambda"),
    "a huge number": (lambda x: x * 2**70, "PB131", (), None),
    "a condition as output": (lambda x: x > 0, "PB139", ("condition",), None),
    "stars": (lambda *x: x[0], "PB134", ("*x",), None),
    "double stars": (lambda **x: x["a"], "PB134", ("x",), None),
    "a rounding mode": (
        lambda x: torch.div(x, 2, rounding_mode="floor"),
        "PB134",
        ("rounding_mode",),
        None,
    ),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_function_that_is_no_formula_is_refused(kind: str) -> None:
    function, code, words, cure = FUNCTIONS[kind]
    name = f"pbbad::function{next(numbers)}"
    error = refusal(lambda: pb.formula(name)(function))
    message = str(error)
    assert error.finding.code == code, message
    assert name in message, message
    for word in words:
        assert word in message, message
    if cure is not None:
        assert cure in str(error.finding.help), message


def test_what_a_function_raises_itself_is_not_hidden() -> None:
    def broken(x: Any) -> Any:
        raise LookupError("of its own")

    with pytest.raises(LookupError, match="of its own"):
        pb.formula("pbbad::broken")(broken)


def test_a_function_and_its_line_have_to_agree() -> None:
    def double(x: Any) -> Any:
        return 2 * x

    for line, code in {
        "(x[n]) -> (y[n], z[n])": "PB137",
        "(z[n]) -> y[n]": "PB134",
        "(x[n], z[n]) -> y[n]": "PB134",
        "(x[n]) -> y[n] = x": "PB355",
    }.items():
        name = f"pbbad::agree{next(numbers)}"
        error = refusal(lambda line=line, name=name: pb.formula(name + line)(double))
        assert error.finding.code == code, str(error)
        assert name in str(error)


# --- later


def test_only_a_formula_has_a_derivative_to_show() -> None:
    plain = pb.operator("pbbad::plain(x[n]) -> y[n]", python=torch.clone)
    error = refusal(plain.derivative)
    assert error.finding.code == "PB343"
    assert "pbbad::plain" in str(error)


def test_a_refused_formula_leaves_the_earlier_one_working() -> None:
    kept = pb.operator("pbbad::kept(x[...]) -> y[...] = 3*x")
    refusal(lambda: pb.operator("pbbad::kept(x[...]) -> y[...] = 3*z"))
    x = torch.ones(2, requires_grad=True)
    kept(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.bool])
def test_a_tensor_of_a_dtype_that_no_formula_takes_is_refused(dtype: torch.dtype) -> None:
    exp = pb.operator(f"pbbad::exp{next(numbers)}(x[...]) -> y[...] = exp(x)")
    error = refusal(lambda: exp(torch.ones(2).to(dtype)))
    assert exp.line.qualname in str(error)
    assert re.search("float32|real|floating|dtype", str(error))


def test_refusals_from_many_threads_do_not_disturb_each_other() -> None:
    messages: list[str] = []

    def define(number: int) -> None:
        error = refusal(lambda: pb.operator(f"pbbad::t{number}(x[n]) -> y[n] = f{number}(x)"))
        messages.append(str(error))

    threads = [threading.Thread(target=define, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(messages) == 8
    assert all(re.search(r"pbbad::t(\d).*'f\1'", message) for message in messages)


def test_nothing_of_a_formula_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Tensor:
        raise AssertionError("evaluated")

    for name in ("eval", "exec"):
        monkeypatch.setattr("builtins." + name, never)
    assert pb.operator("pbbad::parsed(x[...]) -> y[...] = 2*x").definition.formula


def test_a_decorator_without_a_name_says_how_it_is_written() -> None:
    error = refusal(lambda: pb.formula(lambda x: x))  # pyright: ignore
    assert error.finding.code == "PB355"
    assert error.finding.help == '@pb.formula("demo::name")'


def test_an_unknown_accuracy_and_what_is_no_function_are_refused() -> None:
    def identity(x: Tensor) -> Tensor:
        return x

    error = refusal(lambda: pb.formula("pbbad::a", accuracy="2ulp")(identity))  # pyright: ignore
    assert error.finding.code == "PB355"
    assert "4ulp, 1ulp" in str(error)
    error = refusal(lambda: pb.formula("pbbad::a")(3))  # pyright: ignore
    assert error.finding.code == "PB134"
    assert "this is an int" in str(error)
