"""The ways to run CUDA kernels on the CPU, as values and as variables of the environment."""

from __future__ import annotations

import pytest

from pullback.diagnostic import PullbackError
from pullback.kernels.cuda_on_cpu import library, mode
from pullback.kernels.cuda_on_cpu.environment import SWITCH, is_wanted
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.plan import folders_in

MODES = [
    Mode(),
    Mode(check="race", order="reverse"),
    Mode(check="memory", workers=1, timeout=2.5),
    Mode(order="random:7"),
    Mode(order="all"),
    Mode(check="race", timeout=0),
]


@pytest.mark.parametrize("given", MODES, ids=str)
def test_another_process_takes_a_mode_over_by_its_environment(given: Mode) -> None:
    assert mode.read_mode(given.environment()) == given


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_nothing_is_switched_on_by_itself(value: str) -> None:
    assert not is_wanted({SWITCH: value})
    assert mode.read_mode({SWITCH: value}) == Mode()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({SWITCH: "rase"}, "did you mean 'race'?"),
        ({"CUDA_ON_CPU_ORDER": "backward"}, "forward, reverse"),
        ({"CUDA_ON_CPU_WORKERS": "many"}, "a number"),
    ],
)
def test_a_value_that_there_is_not_is_named(variables: dict[str, str], said: str) -> None:
    with pytest.raises(PullbackError, match="PB235") as raised:
        mode.read_mode(variables)
    assert said in str(raised.value)


def test_a_mode_without_a_time_limit_leaves_that_to_the_runtime() -> None:
    assert "CUDA_ON_CPU_TIMEOUT" not in Mode(check="race").environment()
    assert Mode(timeout=0).environment()["CUDA_ON_CPU_TIMEOUT"] == "0"


def test_the_innermost_mode_counts() -> None:
    with mode.set_mode(MODES[1]), mode.set_mode(MODES[3]):
        assert mode.current_mode() == MODES[3]
    assert mode.current_mode() == mode.read_mode()


def test_a_mode_within_one_that_equals_it_leaves_those_between() -> None:
    race, order = MODES[1], MODES[3]
    with mode.set_mode(race), mode.set_mode(order):
        with mode.set_mode(race):
            assert mode.current_mode() == race
        assert mode.current_mode() == order


def test_flags_for_nvcc_become_those_that_mean_something_here() -> None:
    given = ["-arch=sm_80", "-DM=3", "-gencode", "arch=compute_80,code=sm_80", "-lineinfo", "-DN=4"]
    assert library.take_flags(given) == ("-DM=3", "-DN=4")
    assert library.take_flags(["-Xcompiler", "-fopenmp,-O2", "-I", "there"]) == (
        *("-fopenmp", "-O2"),
        *("-I", "there"),
    )


def test_folders_of_headers_are_found_in_flags_of_one_word_and_of_two() -> None:
    given = library.take_flags(["-I/a", "-I", "/b", "-DN=4", "-isystem", "/c", "-iquote/d"])
    assert [str(path) for path in folders_in(given)] == ["/a", "/b", "/c", "/d"]
