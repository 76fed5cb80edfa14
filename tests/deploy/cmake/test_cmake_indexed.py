"""Operators in index notation, in a library that CMake built."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from building import Once, command
from indexed_ops import CASES, FEW, Case
from torch import Tensor

from tests.quickly import LAUNCHER
from tests.threads import threads

pytestmark = pytest.mark.compiler
HERE = Path(__file__).parent
# Of values of about 1, computed in another order.
BOUNDS = {torch.float64: 1e-11, torch.float32: 3e-4, torch.bfloat16: 0.1}


def built(once: Once, which: str) -> Path:
    def build(folder: Path) -> None:
        variables = {**LAUNCHER, "CUDACXX": "/nowhere/nvcc"}
        words = (HERE / "build_indexed.py", folder / "made", which)
        ran = command(*words, folder=folder, **variables)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return once(f"index{which}-cmake", build) / "made"


@pytest.fixture(scope="session")
def few_project(once: Once) -> Path:
    """Five operators, for float64, with first derivatives."""
    return built(once, "few")


@pytest.fixture(scope="session")
def few(few_project: Path) -> Any:
    """Those operators."""
    torch.ops.load_library(str(few_project / "lib" / "libindexfew.so"))
    return torch.ops.indexfew


@pytest.fixture(scope="session")
def whole(once: Once) -> Any:
    """All operators, as `pullback build` ships them."""
    torch.ops.load_library(str(built(once, "whole") / "lib" / "libindexwhole.so"))
    return torch.ops.indexwhole


def arguments(case: Case, dtype: torch.dtype, seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (drawn / 2).to(dtype)

    given: tuple[Any, ...] = case.arguments(draw)
    return [g.requires_grad_() if is_real(g) else g for g in given]


def is_real(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def derivatives(function: Any, given: list[Any], orders: int) -> Iterator[list[Tensor]]:
    """Yield the output, its gradients, and those of these: of weighted squares."""
    leaves = [value for value in given if is_real(value)]
    found = [function(*given)]
    yield found
    for _ in range(orders):
        # Squares, so that what is linear has a second derivative too.
        along = [e.square() * torch.linspace(-1, 1, e.numel()).view_as(e) for e in found]
        total = torch.stack([each.to(torch.float64).sum() for each in along]).sum()
        grads = torch.autograd.grad(
            total, leaves, create_graph=True, allow_unused=True, materialize_grads=True
        )
        found = list(grads)
        yield found


def compare(
    operator: Any, case: Case, dtype: torch.dtype, orders: int, seed: int, *, device: str = "cpu"
) -> None:
    given = [
        value.detach().to(device).requires_grad_(value.requires_grad)
        if isinstance(value, Tensor)
        else value
        for value in arguments(case, dtype, seed)
    ]
    bound = BOUNDS[dtype]
    ours, theirs = (derivatives(f, given, orders) for f in (operator, case.reference))
    for got, want in zip(ours, theirs, strict=True):
        for one, other in zip(got, want, strict=True):
            assert one.dtype == dtype
            scale = max(1.0, float(other.detach().abs().max()))
            torch.testing.assert_close(one, other, rtol=bound, atol=bound * scale)


@pytest.mark.ci
@pytest.mark.parametrize("name", FEW)
def test_values_and_gradients_are_those_of_pytorch(name: str, few: Any, seed: int) -> None:
    compare(getattr(few, name), CASES[name], torch.float64, 1, seed)


@pytest.mark.ci
def test_a_gradient_alone_is_the_same(few: Any, seed: int) -> None:
    x, y, v = arguments(CASES["gauss"], torch.float64, seed)
    every = torch.autograd.grad(few.gauss(x, y, v).sum(), (x, y, v))
    for leaf, want in zip((x, y, v), every, strict=True):
        (alone,) = torch.autograd.grad(few.gauss(x, y, v).sum(), leaf)
        torch.testing.assert_close(alone, want)


@pytest.mark.ci
def test_what_is_wrong_is_said_in_a_library_too(few: Any) -> None:
    x, w = torch.ones(5, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    for index in (7, -1):
        with pytest.raises(RuntimeError, match=rf"PB149.*'x' is read at {index} of its dimen"):
            few.gather(x, torch.tensor([0, index]), w)
    with pytest.raises(RuntimeError, match=r"PB112.*dimension 'd' is 3 in 'x'"):
        few.gauss(x, torch.ones(4, 2, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=r"PB114.*dimension 0 of 'y' would be -1: h - p \+ 1"):
        few.correlate(x, torch.ones(7, 2, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=r"PB156.*few::bumps: 'order' is -3"):
        few.bumps(x[:, 0], x[:, 1], -3)
    with pytest.raises(RuntimeError, match=r"loop-left-out \[PB731\].*it has float64"):
        few.softmax(torch.ones(3))
    first = few.softmax(x.requires_grad_())
    (grad,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"derivative-left-out \[PB732\]"):
        torch.autograd.grad(grad.sum(), x)


@pytest.mark.ci
def test_empty_tensors_are_no_special_case(few: Any) -> None:
    def empty(*shape: int) -> Tensor:
        return torch.ones(shape, dtype=torch.float64, requires_grad=True)

    assert few.gauss(empty(0, 3), empty(4, 3), empty(4)).shape == (0,)
    x, y, v = empty(2, 3), empty(0, 3), empty(0)
    nothing = few.gauss(x, y, v)
    assert nothing.tolist() == [0, 0]
    assert torch.autograd.grad(nothing.sum(), x)[0].abs().sum() == 0
    w, none = empty(0), torch.zeros(0, dtype=torch.int64)
    (grad,) = torch.autograd.grad(few.gather(x, none, w).sum(), x)
    assert grad.tolist() == [[0, 0, 0], [0, 0, 0]]
    (grad,) = torch.autograd.grad(few.bumps(v := empty(3), v, 0).sum(), v)
    assert grad.tolist() == [0, 0, 0]


@pytest.mark.ci
def test_there_is_no_python_in_it(few_project: Path, tmp_path: Path) -> None:
    library = few_project / "lib" / "libindexfew.so"
    command_ = ["readelf", "-d", library]
    dynamic = subprocess.run(command_, capture_output=True, text=True, check=True).stdout
    assert not [n for n in re.findall(r"NEEDED.*\[(.*?)\]", dynamic) if "python" in n]
    code = f"""
import sys, torch
torch.ops.load_library({str(library)!r})
x = torch.arange(6.0, dtype=torch.float64).view(3, 2)
y = torch.ops.indexfew.gather(x, torch.tensor([2, 0]), torch.ones(2, dtype=torch.float64))
assert y.tolist() == [[4, 5], [0, 1]]
assert "pullback" not in sys.modules
"""
    ran = command("-c", code, folder=tmp_path, PYTHONPATH="")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_derivatives_to_the_second_are_those_of_pytorch(name: str, whole: Any, seed: int) -> None:
    compare(getattr(whole, name), CASES[name], torch.float64, 2, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_other_dtypes_are_computed_in_float32(name: str, whole: Any, seed: int) -> None:
    compare(getattr(whole, name), CASES[name], torch.float32, 1, seed)
    compare(getattr(whole, name), CASES[name], torch.bfloat16, 0, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gauss", "softmax", "gather", "bag", "scaled"])
def test_forward_mode_agrees_with_the_backward(name: str, whole: Any, seed: int) -> None:
    given = arguments(CASES[name], torch.float64, seed)
    operator = getattr(whole, name)
    assert torch.autograd.gradcheck(operator, given, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(operator, given, fast_mode=True)


@pytest.mark.thorough
@pytest.mark.parametrize("d", [3, 4])
def test_loops_for_a_size_and_for_any_give_the_same(d: int, whole: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    given = [draw(300, d), draw(400, d), draw(400)]
    for threaded in (1, 3):
        with threads(threaded):
            got = list(derivatives(whole.gauss, given, 1))
        for ours, theirs in zip(got, derivatives(CASES["gauss"].reference, given, 1), strict=True):
            for one, other in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.thorough
def test_what_is_none_drops_out(whole: Any, seed: int) -> None:
    x, _, s, k = arguments(CASES["scaled"], torch.float64, seed)
    # A factor that is None is zero.
    assert whole.scaled(x, None, s, k).abs().sum() == 0


@pytest.mark.thorough
def test_what_the_sizes_of_a_call_break_is_said(whole: Any) -> None:
    with pytest.raises(RuntimeError, match=r"PB1(41|48)"):
        whole.last(torch.ones(4, 0))
    assert whole.last(torch.ones(0, 0)).shape == (0,)
    x, i, j = torch.ones(9), torch.tensor([1, 30]), torch.tensor([0, 1])
    with pytest.raises(RuntimeError, match=r"PB149.*'x' is read at 30"):
        whole.hop(x, i, j)
    with pytest.raises(RuntimeError, match=r"PB149.*'i' is read at 4"):
        whole.hop(x, i, j + 4)
    # A kernel that reads a row from where data says does not say that it was outside.
    with pytest.raises(RuntimeError, match=r"PB149.*'x' is read at"):
        whole.windows(torch.ones(50), torch.tensor([3, 31]))
    # A gradient goes to rows that there are.
    with pytest.raises(RuntimeError, match=r"PB149.*'x' is read at 9"):
        whole.bag(torch.ones(9, 4), torch.tensor([[9]]))


@pytest.mark.thorough
def test_pytorch_finds_no_fault_in_its_registration(whole: Any, seed: int) -> None:
    for name in ("gauss", "softmax", "gather", "correlate"):
        operator = getattr(whole, name).default
        torch.library.opcheck(operator, tuple(arguments(CASES[name], torch.float64, seed)))
