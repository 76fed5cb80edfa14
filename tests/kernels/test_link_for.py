"""What is linked only where an object needs it."""

from __future__ import annotations

import pytest

from pullback.diagnostic import PullbackError
from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags

pytestmark = pytest.mark.compiler


def plan_of(function: str) -> BuildPlan:
    """Return the plan of a call; where it is one of theirs, a library is linked that no one has."""
    compiler = toolchain.find("c++")
    text = f'extern "C" double {function}(double); double f() {{ return {function}(1); }}'
    return BuildPlan(
        name="linked",
        compiler=compiler,
        units=(TranslationUnit("unit.cpp", text),),
        sources=(),
        flags=kernel_flags(compiler),
        link_for=("Theirs_", ("-lthat-is-not-there",)),
        abi="kernel-1",
    )


def test_a_library_is_linked_where_an_object_names_what_it_has() -> None:
    assert compilation.compile(plan_of("sin")).is_file()
    with pytest.raises(PullbackError, match="that-is-not-there") as raised:
        compilation.compile(plan_of("Theirs_sin"))
    assert raised.value.finding.code == "PB202"
