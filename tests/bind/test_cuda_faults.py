"""What goes wrong in a CUDA kernel on the CPU: each is an error of the call, and all goes on."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import pullback as pb
from pullback.kernels.cuda_on_cpu import mode, runtimes
from pullback.kernels.cuda_on_cpu.mode import Check, Mode
from tests.bind.cuda_modes import alone
from tests.forked import in_fork

pytestmark = pytest.mark.compiler


LAUNCH = "k<<<n / 64, 64>>>(y, x, n, which)"


class Fault(NamedTuple):
    """What fails in a kernel, what the error says beside block and thread, and which line."""

    code: str
    body: str
    said: str = ""
    at: str = ""


FAULTS = {
    "null": Fault("PB225", "float* p = nullptr; y[0] = p[threadIdx.x + 4];", "null pointer"),
    "division": Fault(
        "PB225", "y[0] = 7 / (n - int(gridDim.x * blockDim.x));", "divides an integer"
    ),
    "throws": Fault("PB229", 'if (threadIdx.x == 3) throw "no";', "throws char const*", at=LAUNCH),
    "asserts": Fault("PB227", "assert(threadIdx.x < 40);", "threadIdx.x < 40"),
    "recursion": Fault("PB226", "y[0] = endless(n);", "256 KB, is full", at="float endless"),
    "deadlock": Fault(
        "PB222",
        "if (threadIdx.x < 7) __syncthreads(); else __shfl_sync(0xffffffffu, n, 0);",
        "__syncthreads",
    ),
    "spin": Fault(
        "PB224", "while (atomicAdd((float*)x, 0) < 1) {}", "waits for a change of memory"
    ),
    "lane": Fault("PB230", "__shfl_sync(1u << (threadIdx.x + 1 & 31), n, 0);", "mask"),
    "ptx": Fault(
        "PB228", 'asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];");', "ldmatrix"
    ),
    "nested": Fault("PB228", "child<<<1, 1>>>();"),
}
ENDLESS = "const volatile float* p = x; while (*p < 1) y[1] = 0;"
# Two lines, and so two barriers.
DIVERGENT = "if (threadIdx.x < 7) __syncthreads();\nelse __syncthreads();"
SOUND = "s[threadIdx.x] = x[i]; __syncthreads(); y[i] = 2 * s[threadIdx.x];"
DEEP = "y[i] = deep(x, i);"
BODIES = [*(fault.body for fault in FAULTS.values()), ENDLESS, DIVERGENT, SOUND, DEEP]
SIZES = {
    "block": "1, 1025",
    "depth": "1, dim3(1, 1, 65)",
    "nothing": "0, 32",
    "grid": "dim3(1, 65536), 1",
    "shared": "1, 32, 300 << 10",
}
BEGIN = """
#define HERE volatile float a[64]; a[n & 63] = n
__device__ __noinline__ float endless(int n) { HERE; return endless(n + 1) + a[n & 63]; }
__device__ __noinline__ float deep(const float* x, int at) {
  volatile float own[40000];  // 160 KB of the 256
  for (int i = 0; i < 40000; ++i) own[i] = x[at];
  __syncthreads();
  return own[at] + own[39999];
}
__global__ void child() {}
__global__ void k(float* y, const float* x, int n, int which) {
  __shared__ float s[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  switch (which) {
"""


def text() -> str:
    """Return a kernel that does one of all bodies, and a function that launches it."""
    cases = "".join(f"case {at}: {{\n{body}\nbreak; }}\n" for at, body in enumerate(BODIES))
    launches = "".join(
        f"  if (shape == {at}) k<<<{given}>>>(y, x, n, which);\n"
        for at, given in enumerate(SIZES.values())
    )
    return (
        f"{BEGIN}{cases}}}\n}}\n"
        "void f(float* y, const float* x, int n, int which, int shape) {\n"
        f"{launches}  if (shape < 0) {LAUNCH};\n}}\n"
    )


def line_of(body: str) -> str:
    """Return where a body stands, as messages say it."""
    before = text().partition(body)[0]
    return f"source of faults::k:{before.count(chr(10)) + 1}"


@pytest.fixture(scope="session")
def k() -> pb.Operator:
    return pb.operator(
        "faults::k(x[n], which: int, shape: int = -1) -> y[n]",
        cuda=pb.source(text(), call="f(y, x, n, which, shape)"),
    )


def run(k: pb.Operator, body: str, n: int = 128) -> None:
    k(torch.zeros(n), BODIES.index(body))


def goes_on(k: pb.Operator, n: int = 1024) -> None:
    """Hold that a kernel gives what it should."""
    x = torch.randn(n)
    assert torch.equal(k(x, BODIES.index(SOUND)), 2 * x)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_an_error_that_names_the_place(name: str, k: pb.Operator) -> None:
    fault = FAULTS[name]
    for _ in range(1 if name == "spin" else 2):  # a spin is seen when a second has passed
        with pytest.raises(pb.PullbackError) as raised:
            run(k, fault.body)
        finding = raised.value.finding
        assert finding.code == fault.code
        assert fault.said in str(finding)
        assert line_of(fault.at or fault.body) in str(finding)
        keys = {key for key, _ in finding.evidence}
        assert "block" in keys
        assert keys & {"thread", "waiting"}
        goes_on(k)


@pytest.mark.thorough  # it compiles all of these kernels for the race detector
def test_barriers_in_different_lines_are_reported_where_faults_are_looked_for(
    k: pb.Operator,
) -> None:
    with alone(k, Mode(check="race")), pytest.raises(pb.PullbackError, match="PB233") as raised:
        run(k, DIVERGENT)
    assert line_of(DIVERGENT) in str(raised.value)


def test_a_launch_over_its_time_is_stopped(k: pb.Operator) -> None:
    with alone(k, Mode(timeout=0.1)), pytest.raises(pb.PullbackError, match="PB224") as raised:
        run(k, ENDLESS)
    assert line_of(ENDLESS) in str(raised.value)
    goes_on(k)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A limit of the environment's, of which the runtimes are told by no mode."""
    with monkeypatch.context() as patched:
        patched.setenv("CUDA_ON_CPU_TIMEOUT", "0.1")
        yield "0.1 s"
    runtimes.configure(mode.current_mode())


@pytest.mark.thorough
def test_the_checks_have_a_limit_that_no_mode_has_to_name(limit: str) -> None:
    # Of its own: all the faults of `k` would take the race detector's compiler ten seconds.
    kernel = f"template <class T> __global__ void k(T* y, const T* x) {{ {ENDLESS} }}"
    endless = pb.operator(
        "faults::endless(x[n]) -> y[n]",
        cuda=pb.source(kernel.replace("float", "T"), call="k<<<1, 1>>>(y, x)"),
    )
    with (
        alone(endless, Mode(check="race")),
        pytest.raises(pb.PullbackError, match="PB224") as raised,
    ):
        endless(torch.zeros(4))
    assert limit in str(raised.value)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_over_the_limits_are_refused_as_by_a_gpu(name: str, k: pb.Operator) -> None:
    said = "invalid argument" if name == "shared" else "invalid configuration argument"
    with pytest.raises(pb.PullbackError, match=said):
        k(torch.zeros(128), BODIES.index(SOUND), list(SIZES).index(name))


def test_a_thread_that_waits_has_the_stack_that_the_page_says(k: pb.Operator) -> None:
    x = torch.randn(64)
    assert torch.equal(k(x, BODIES.index(DEEP)), 2 * x)


def test_python_threads_launch_at_once(k: pb.Operator) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for size in range(128, 4992, 128):
            x = torch.full((size,), float(number))
            if not torch.equal(k(x, BODIES.index(SOUND)), 2 * x):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_process_may_fork_after_a_launch(k: pb.Operator, tmp_path: Path) -> None:
    goes_on(k)
    done = in_fork(lambda: goes_on(k), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    goes_on(k)


@pytest.mark.parametrize("handler", [faulthandler.disable, faulthandler.enable])
def test_a_signal_that_is_sent_ends_the_process(
    k: pb.Operator, handler: Callable[[], object], tmp_path: Path
) -> None:
    def sent() -> None:
        handler()
        time.sleep(0.01)  # ours is put in front again, at most once a millisecond
        goes_on(k)
        os.kill(os.getpid(), signal.SIGSEGV)
        print("survived")  # noqa: T201

    done = in_fork(sent, folder=tmp_path)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, ""), done.stderr


@pytest.mark.thorough  # compiles another runtime: ten seconds
def test_two_runtimes_leave_each_other_and_faulthandler_their_signals(
    k: pb.Operator, tmp_path: Path
) -> None:
    checks: list[Check] = ["none", "race"]

    def in_turn() -> None:
        faulthandler.enable()
        for check in checks * 3:
            time.sleep(0.01)
            with alone(k, Mode(check=check)):
                goes_on(k)
        os.kill(os.getpid(), signal.SIGSEGV)

    done = in_fork(in_turn, folder=tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_a_long_launch(k: pb.Operator, tmp_path: Path) -> None:
    def interrupted() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.3, ctrl_c).start()
        with pytest.raises((KeyboardInterrupt, pb.PullbackError)) as raised:
            run(k, ENDLESS)
        assert isinstance(raised.value, KeyboardInterrupt) or "PB231" in str(raised.value)
        goes_on(k)

    done = in_fork(interrupted, folder=tmp_path, seconds=30)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_between_launches_does_not_end_the_next(k: pb.Operator, tmp_path: Path) -> None:
    def between() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with alone(k, Mode(timeout=0.1)):
            for _ in range(2):
                with pytest.raises(pb.PullbackError, match="PB224"):
                    run(k, ENDLESS)
                with pytest.raises(KeyboardInterrupt):
                    ctrl_c()

    done = in_fork(between, folder=tmp_path, seconds=30)
    assert done.returncode == 0, done.stderr
