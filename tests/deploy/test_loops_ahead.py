"""Loops over indices are compiled ahead of a call, and found where nothing can be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pullback as pb
from pullback.bind.loops import nests
from pullback.bind.loops.backends import CpuBackend, CudaBackend
from pullback.bind.loops.nests import Own
from pullback.bind.math import choose
from pullback.bind.math.call import call_of
from pullback.deploy import libraries, shipped, target
from pullback.diagnostic import PullbackError
from pullback.kernels import prebuilt, toolchain
from pullback.kernels.toolchain import Language

pytestmark = pytest.mark.compiler
GAUSS = "(x[n, d], y[m, d]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2)))"


def build(operator: pb.Operator, folder: Path, sizes: Mapping[str, int], *gpus: str) -> None:
    """Compile the loops of an operator alone, in float32, for the first processors or for GPUs."""
    built_for = target.target(sizes=[sizes])
    one = shipped.collect([operator], orders=0)[0]
    levels = () if gpus else built_for.levels[:1]
    jobs = libraries.jobs_of_formula(
        one, ["float32"], replace(built_for, levels=levels, loops=gpus)
    )
    prebuilt.write(folder, libraries.compile_jobs(list(jobs), folder), "again")


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """No packages but those of a test, and nothing that was generated before."""
    monkeypatch.setattr(prebuilt, "_folders", {})
    monkeypatch.setattr(nests, "_found", type(nests._found)())


def hide_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def has(language: Language) -> bool:
        del language
        return False

    monkeypatch.setattr(toolchain, "has", has)


@pytest.mark.usefixtures("brought")
def test_a_package_brings_loops_for_any_sizes_and_for_those_that_were_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = pb.operator(f"shippedindex::gauss{GAUSS}")
    build(operator, tmp_path, {"d": 3})
    prebuilt.add(tmp_path)
    hide_compiler(monkeypatch)
    formula = operator.kind.definition.formula
    assert formula
    present = frozenset("xy")
    for n, d, made_for in (
        (1000, 3, {"d": 3}),
        (10**5, 3, {"d": 3}),
        (1000, 5, {}),
        (2000, 70, {}),
    ):
        sizes = {"n": n, "m": 2 * n, "d": d}
        own = nests.find(formula, torch.float32, (0,), present, sizes)
        assert isinstance(own, Own)
        assert own.brought
        assert own.specialised == made_for
    x, y = torch.randn(300, 3), torch.randn(200, 3)
    assert "u: own loop" in str(operator.plan(x, y))
    want = torch.exp(-(torch.cdist(x.double(), y.double()) ** 2)).sum(1)
    torch.testing.assert_close(operator(x, y).double(), want, rtol=1e-5, atol=1e-5)
    doubles = nests.find(formula, torch.float64, (0,), present, {"n": 9, "m": 9, "d": 3})
    assert isinstance(doubles, Own)
    assert not doubles.is_available


@pytest.mark.usefixtures("brought")
def test_loops_whose_dimensions_are_coalesced_are_brought_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call takes them; one whose rows lie otherwise takes the others."""
    line = "(x[b, i, j]) -> y[b, i, j] = x/sum[p, q](abs(x[b, p, q]))"
    operator = pb.operator(f"shippedindex::share{line}")
    build(operator, tmp_path, {})
    nests._found.clear()  # another process calls it
    prebuilt.add(tmp_path)
    hide_compiler(monkeypatch)
    for shape in ((30, 3, 3), (3000, 7, 70)):
        given = torch.randn(shape)
        call = call_of(operator.kind.definition, (given,))
        for each in (call, call.coalesced):
            [(_, own)] = choose.find_candidates(each, CpuBackend())
            assert isinstance(own, Own)
            assert own.brought
            assert own.indexed is each.indexed
            [value] = own.run(each.flat, each.sizes, [torch.float32])
            want = given / given.abs().sum((1, 2), keepdim=True)
            torch.testing.assert_close(value.view(shape), want)


@pytest.mark.thorough
@pytest.mark.usefixtures("brought")
@pytest.mark.nvcc
def test_a_package_brings_loops_for_gpus_and_for_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = pb.operator(f"shippedindex::gauss_cuda{GAUSS}")
    build(operator, tmp_path, {"d": 3}, "sm_90", "compute_90")
    prebuilt.add(tmp_path)
    hide_compiler(monkeypatch)
    formula = operator.kind.definition.formula
    assert formula
    for architecture, is_there in (("sm_90", True), ("sm_120", True), ("sm_80", False)):
        gpu = CudaBackend(architecture)
        sizes = {"n": 10**5, "m": 10**4, "d": 3}
        own = nests.find(formula, torch.float32, (0,), frozenset("xy"), sizes, gpu)
        assert isinstance(own, Own)
        assert bool(own.brought) is is_there


def test_a_size_that_no_loop_can_be_made_for_is_refused(tmp_path: Path) -> None:
    operator = pb.operator(f"shippedindex::gauss_sizes{GAUSS}")
    with pytest.raises(PullbackError, match=r"PB722.*dimension 'q'\n    have: d, m, n"):
        pb.build(operator, as_="wheel", into=tmp_path, sizes={"q": 3})
    with pytest.raises(PullbackError, match=r"PB722.*sizes from 1 to 16, and d is 17"):
        pb.build(operator, as_="setup", into=tmp_path, sizes=[{"d": 3}, {"d": 17}])
