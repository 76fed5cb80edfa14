"""Every kind of bad input: what it is called, where the message points, what still works after."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from operators import BY_NAME
from torch import Tensor

import pullback as pb
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler

Refused = tuple[str, str, Callable[[], object]]


def op(name: str) -> pb.Operator:
    return BY_NAME[name].operator


def ones(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.ones(*shape, dtype=dtype)


CALLS: dict[str, Refused] = {
    "unknown keyword": (
        "PB341",
        "did you mean 'weight'",
        lambda: op("linear")(ones(2, 3), weigth=ones(4, 3)),
    ),
    "unknown keyword beside defaults": (
        "PB341",
        "did you mean 'mode'",
        lambda: op("affine")(ones(2), 2, mdoe="up"),
    ),
    "twice beside defaults": (
        "PB341",
        "multiple values",
        lambda: op("affine")(ones(2), 2, scale=3),
    ),
    "too few": ("PB341", "weight", lambda: op("linear")(ones(2, 3))),
    "none at all": ("PB341", "missing", op("linear")),
    "too many": ("PB341", "too many", lambda: op("mul")(ones(2), ones(2), ones(2))),
    "twice": ("PB341", "multiple values", lambda: op("mul")(ones(2), a=ones(2))),
    "a number": ("PB341", "'b' is a float", lambda: op("mul")(ones(2), 2.0)),
    "a string": ("PB341", "'b' is a str", lambda: op("mul")(ones(2), "b")),
    "a list": ("PB341", "'a' is a list", lambda: op("mul")([1.0], ones(1))),
    "an array": ("PB341", "'a' is an ndarray", lambda: op("mul")(np.ones(2), ones(2))),
    "None": ("PB341", "'a' is a NoneType", lambda: op("mul")(None, ones(2))),
    "int: a float": ("PB341", "'scale' is a float", lambda: op("affine")(ones(2), 2.5)),
    "int: a string": ("PB341", "'scale' is a str", lambda: op("affine")(ones(2), "2")),
    "int: a long one": ("PB341", "more than 64 bits", lambda: op("affine")(ones(2), 2**63)),
    "int: a long one below zero": ("PB341", "64 bits", lambda: op("affine")(ones(2), -(2**63) - 1)),
    "float: a string": ("PB341", "'shift' is a str", lambda: op("affine")(ones(2), 2, "x")),
    "bool: a string": ("PB341", "'negate' is a str", lambda: op("affine")(ones(2), 2, 1.0, "x")),
    "str: a number": ("PB341", "'mode' is an int", lambda: op("affine")(ones(2), mode=3)),
    "dtypes differ": (
        "PB116",
        "'b' is float32, but 'a' is float64",
        lambda: op("mul")(ones(2), ones(2, dtype=torch.float32)),
    ),
    "integers": ("PB116", "'a' is int64", lambda: op("mul")(*[ones(2, dtype=torch.int64)] * 2)),
    "a fixed dtype": (
        "PB116",
        "'index' is int32, the line says index",
        lambda: op("gather")(ones(2), ones(2, dtype=torch.int32)),
    ),
    "not the kernel's dtype": (
        "PB302",
        "it takes float32, float64",
        lambda: op("linear")(*[ones(2, 2, dtype=torch.complex64)] * 2),
    ),
    "devices differ": (
        "PB117",
        "'b' is on meta, but 'a' is on cpu",
        lambda: op("mul")(ones(2), ones(2).to("meta")),
    ),
    "devices differ, the other way": (
        "PB117",
        "'b' is on cpu, but 'a' is on meta",
        lambda: op("mul")(ones(2).to("meta"), ones(2)),
    ),
    "rank": ("PB111", "'input' has 1 dimension (3)", lambda: op("linear")(ones(3), ones(4, 3))),
    "rank below": ("PB111", "'a' has 1 dimension", lambda: op("matvec")(ones(3), ones(3))),
    "size": (
        "PB112",
        "dimension 'i' is 3 in 'input' (2, 3) but 5 in 'weight' (4, 5)",
        lambda: op("linear")(ones(2, 3), ones(4, 5)),
    ),
    "size of an optional": (
        "PB112",
        "dimension 'o' is 4",
        lambda: op("linear")(ones(2, 3), ones(4, 3), ones(5)),
    ),
    "batch": (
        "PB113",
        "the '...' of 'b' (4) does not broadcast with (3)",
        lambda: op("mul")(ones(3), ones(4)),
    ),
    "output below zero": (
        "PB114",
        "dimension 0 of 'y' would be -1: h - p + 1 with h = 3, p = 5",
        lambda: op("correlate")(ones(3, 3), ones(5, 1)),
    ),
    "sparse": (
        "PB119",
        "'b' is not a dense tensor",
        lambda: op("mul")(ones(2), ones(2).to_sparse()),
    ),
    "compressed": (
        "PB119",
        "'input' is not a dense tensor",
        lambda: op("linear")(csr(ones(2, 2)), ones(2, 2)),
    ),
    "the kernel raises": (
        "PB304",
        "its kernel raised: index 7",
        lambda: op("gather")(ones(2), torch.tensor([7])),
    ),
    "output_mask": (
        "PB120",
        "output_mask has 1 entries for 3 outputs",
        lambda: (
            op("linear")
            and torch.ops.pbtest.linear_backward(
                ones(2, 4), ones(2, 3), ones(4, 3), output_mask=[True]
            )
        ),
    ),
}


def csr(dense: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch: sparse CSR is in beta
        return dense.to_sparse_csr()


@pytest.mark.parametrize("kind", CALLS)
def test_a_wrong_call_is_refused_with_its_own_code_and_words(kind: str) -> None:
    code, words, call = CALLS[kind]
    with pytest.raises(RuntimeError, match=re.escape(words)) as caught:
        call()
    assert f"[{code}]" in str(caught.value)
    if kind != "output_mask":
        assert isinstance(caught.value, PullbackError)
        assert caught.value.finding.code == code
    # And the next call is well.
    torch.testing.assert_close(op("mul")(ones(2), ones(2)), ones(2))


def test_a_wrong_keyword_comes_with_the_right_one() -> None:
    with pytest.raises(PullbackError, match="did you mean 'weight'"):
        op("linear")(ones(2, 3), weigth=ones(4, 3))


@pytest.mark.parametrize("track", [False, True])
def test_the_same_is_refused_under_autograd_and_through_torch_ops(track: bool) -> None:
    x, w = ones(2, 3).requires_grad_(track), ones(4, 5)
    for call in (op("linear"), torch.ops.pbtest.linear):
        with pytest.raises(RuntimeError, match=r"PB112.*dimension 'i' is 3"):
            call(x, w)


def test_no_bad_call_leaves_a_gradient_or_a_changed_argument() -> None:
    x, index = ones(3).requires_grad_(), torch.tensor([0, 9])
    with pytest.raises(PullbackError, match="PB304"):
        op("gather")(x, index)
    assert x.grad is None
    op("gather")(x, torch.tensor([0, 0])).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([2.0, 0, 0], dtype=torch.float64))


# --- kernels


ADD = """template <class T> void add(T* y, const T* x, long n) {
    for (long i = 0; i < n; ++i) y[i] = x[i];
}"""


def define(
    name: str, text: str | Path = ADD, call: str = "add(y, x, n)", **rest: Any
) -> pb.Operator:
    line = f"pbtest::{name}(x[n]) -> y[n]"
    return pb.operator(line, cpu=pb.source(text, call=call), **rest)


def refusal(make: Callable[[], object]) -> PullbackError:
    with pytest.raises(PullbackError) as caught:
        make()
    return caught.value


def test_a_file_that_does_not_compile_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.cpp"
    file.write_text(
        "#include <vector>\n\nvoid add(double* y, const double* x, long n) {\n  y[0] = z;\n}\n"
    )
    error = refusal(lambda: define("broken_file", file))
    text = str(error)
    assert error.finding.code == "PB202"
    assert f"{file}:4" in text
    assert "'z'" in text
    assert_no_noise(text, but=str(tmp_path))


def test_a_template_that_does_not_compile_is_said_in_a_few_lines() -> None:
    text = """#include <algorithm>
    #include <vector>
    struct Item {};
    template <class T> void add(T* y, const T* x, long n) {
        std::vector<Item> items(n);
        std::sort(items.begin(), items.end());
    }"""
    message = str(refusal(lambda: define("broken_template", text)))
    assert "source of pbtest::broken_template:6" in message
    assert_no_noise(message)


# toolchain.ERROR does not take "call of ns::name:1:2: error:" for an error, and finds a later one.
NONSENSE = pytest.mark.xfail(reason="the first error of a call is overlooked")


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ("ad(y, x, n)", "ad"),
        ("add(y, x)", "add"),
        ("add(y, z, n)", "z"),
        ("add(x, y, n)", "add"),
        ("add(y, x, n", ""),
        ("add(y, x, n))", ""),
        ("", ""),
        ("}", ""),
    ],
)
def test_a_call_that_does_not_compile_is_quoted(call: str, word: str) -> None:
    message = str(refusal(lambda: define("broken_call", call=call)))
    assert "broken_call" in message
    assert word in message
    assert_no_noise(message)


def assert_no_noise(message: str, but: str = "/nowhere") -> None:
    """Neither pages of templates, nor files that only pullback knows (the log's path apart)."""
    shown = [line for line in message.splitlines() if not re.match(r"\s*log:", line)]
    assert len(shown) <= 25
    assert max(map(len, shown)) < 500
    for line in shown:
        assert not re.search(r"glue\.cpp|glue\.h|/usr/include", line)
        assert "/tmp/" not in line.replace(but, "")


def test_a_missing_file_is_named() -> None:
    error = refusal(lambda: define("no_file", "nowhere/kernel.cpp"))
    assert "nowhere/kernel.cpp" in str(error)
    assert error.finding.code.startswith("PB2")


@pytest.mark.parametrize(
    ("throw", "words"),
    [
        ('throw std::runtime_error("too wet")', "too wet"),
        ("throw std::bad_alloc()", "bad_alloc"),
        ("throw 3", "no std::exception"),
        ('throw std::runtime_error(std::string(5000, "x"[0]))', "xxx"),
        ('throw std::runtime_error("")', "its kernel raised"),
    ],
)
def test_an_exception_in_a_kernel_becomes_one_in_python(throw: str, words: str) -> None:
    head = "#include <stdexcept>\n#include <new>\n#include <string>\n"
    name = f"raises_{abs(hash(throw))}"
    text = head + f"template <class T> void add(T* y, const T* x, long n) {{ {throw}; }}"
    raising = define(name, text)
    for _ in range(2):
        with pytest.raises(PullbackError, match=words) as caught:
            raising(ones(2))
        assert caught.value.finding.code == "PB304"
    pulled = define(f"pulled_{name}", backward={"x": f"pbtest::{name}(grad)"})
    x = ones(2).requires_grad_()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=words):
            pulled(x).sum().backward()
    torch.testing.assert_close(pulled(x).detach(), ones(2))


def test_an_exception_in_a_python_kernel_or_backward_is_that_exception() -> None:
    def refuse(x: Tensor) -> Tensor:
        raise ZeroDivisionError("in the kernel")

    def refuse_backward(grad: Tensor) -> Tensor:
        raise LookupError("in the backward")

    raising = pb.operator("pbtest::python_raises(x[n]) -> y[n]", python=refuse)
    with pytest.raises(ZeroDivisionError, match="in the kernel"):
        raising(ones(2))
    pulled = pb.operator(
        "pbtest::pull_raises(x[n]) -> y[n]", python=torch.clone, backward=refuse_backward
    )
    with pytest.raises(LookupError, match="in the backward"):
        pulled(ones(2).requires_grad_()).sum().backward()


PYTHON_KERNELS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "shape": (lambda x: x[:1], "(1)"),
    "rank": (lambda x: x[None], "(1, 2)"),
    "dtype": (lambda x: x.float(), "float32"),
    "device": (lambda x: x.to("meta"), "meta"),
    "number": (lambda x: (x, x), "2 values"),
    "none": (lambda x: None, "NoneType"),
    "not a tensor": (lambda x: "y", "str"),
    "sparse": (lambda x: x.to_sparse(), "dense"),
}


@pytest.mark.parametrize("kind", PYTHON_KERNELS)
def test_a_python_kernel_that_returns_something_else_is_refused(kind: str) -> None:
    function, words = PYTHON_KERNELS[kind]
    name = f"returns_{kind.replace(' ', '_')}"
    operator = pb.operator(f"pbtest::{name}(x[n]) -> y[n]", python=function)
    with pytest.raises(PullbackError, match=re.escape(words)):
        operator(ones(2))


# --- operators of the same name


def test_redefinition_replaces_with_a_notice_that_points_here() -> None:
    first = define("again")
    with pytest.warns(UserWarning, match="pbtest::again is defined again") as caught:
        second = define("again", call="add(y, x, n); y[0] = 5")
    assert caught[0].category.__name__ == "RedefinitionNotice"
    assert caught[0].filename == __file__
    for operator in (second, first, torch.ops.pbtest.again):
        assert operator(ones(2))[0] == 5


def test_a_failed_redefinition_leaves_the_old_one_working() -> None:
    kept = define("kept", backward={"x": "grad"})
    for broken in (
        lambda: define("kept", call="nothing(y)"),
        lambda: define("kept", backward={"x": "gard"}),
        lambda: define("kept", backward={"z": "grad"}),
        lambda: define("kept", backward="pbtest::nothing"),
        lambda: define("kept", backward=lambda gard: gard),  # pyright: ignore
    ):
        refusal(broken)
        x = ones(2).requires_grad_()
        for operator in (kept, torch.ops.pbtest.kept):
            torch.testing.assert_close(operator(x).detach(), ones(2))
        (gradient,) = torch.autograd.grad(kept(x).sum(), x)
        torch.testing.assert_close(gradient, ones(2))


@pytest.mark.filterwarnings("ignore:.*is defined again")
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_a_graph_from_before_a_redefinition_runs_or_says_that_it_cannot(inputs: int) -> None:
    name = f"older_{inputs}"
    product = """template <class T> void mul(T* c, const T* a, const T* b, long n) {
        for (long i = 0; i < n; ++i) c[i] = a[i] * b[i];
    }"""
    old = pb.operator(
        f"pbtest::{name}(a[n], b[n]) -> c[n]",
        cpu=pb.source(product, call="mul(c, a, b, n)"),
        backward={"a": f"pbtest::{name}(grad, b)", "b": f"pbtest::{name}(grad, a)"},
    )
    a, b = ones(3).requires_grad_(), (2 * ones(3)).requires_grad_()
    c = old(a, b)
    names = "xyz"[:inputs]
    new = pb.operator(
        f"pbtest::{name}({', '.join(f'{n}[m]' for n in names)}) -> out[m]",
        python=lambda *some: torch.stack(some).prod(0),
        backward={n: "grad" for n in names},
    )
    if inputs == 2:
        torch.testing.assert_close(torch.autograd.grad(c.sum(), (a, b)), (b.detach(), a.detach()))
    else:
        with pytest.raises(RuntimeError, match="PB307"):
            c.sum().backward()
    for operator in (new, old):
        if operator is new or inputs == 2:
            torch.testing.assert_close(operator(*[ones(2)] * inputs), ones(2))
        else:
            with pytest.raises((RuntimeError, TypeError)):
                operator(ones(2), ones(2))


@pytest.mark.parametrize("qualname", ["aten::mul", "aten::sin", "pbforeign::taken"])
def test_an_operator_of_someone_else_is_not_replaced(qualname: str) -> None:
    library = torch.library.Library("pbforeign", "FRAGMENT")
    library.define("taken(Tensor x) -> Tensor")
    with pytest.raises(PullbackError):
        pb.operator(f"{qualname}(x[n]) -> y[n]", python=torch.neg)
    torch.testing.assert_close(torch.sin(ones(1)), torch.sin(ones(1)))
    torch.testing.assert_close(ones(2) * 3, 3 * ones(2))
    library._destroy()


@pytest.mark.parametrize("line", [None, b"pbtest::bytes(x[n]) -> y[n] = x", 3])
def test_a_line_is_a_text(line: Any) -> None:
    with pytest.raises(PullbackError, match=r"PB355.*a line is a text"):
        pb.operator(line)


@pytest.mark.parametrize("line", ["", "  "])
def test_a_line_is_not_empty(line: str) -> None:
    with pytest.raises(PullbackError, match=r"PB101.*expected a namespace"):
        pb.operator(line)
