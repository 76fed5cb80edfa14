"""What goes wrong in a CUDA kernel on the CPU: each is an error of the call, and all goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass

import pytest
import torch

import pullback as pb
from pullback.bind import on_cpu
from pullback.kernels.cuda_on_cpu.mode import Mode

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.filterwarnings("ignore::pullback.bind.on_cpu.CudaOnCpuNotice"),
]


@dataclass(frozen=True)
class Fault:
    """A kernel `k(y, n)` that fails, and what the error says beside kernel, block and thread."""

    code: str
    body: str
    said: str
    before: str = ""
    launch: str = "k<<<2, 64>>>(y, n)"


FAULTS = {
    "null": Fault("PB225", "float* p = nullptr; y[0] = p[threadIdx.x + 4];", "null pointer"),
    "division": Fault("PB225", "y[0] = 7 / (n - n);", "division"),
    "throws": Fault("PB229", 'if (threadIdx.x == 3) throw "no";', "exception"),
    "asserts": Fault("PB227", "assert(threadIdx.x < 40);", "threadIdx.x < 40"),
    "recursion": Fault(
        "PB226",
        "y[0] = endless(n);",
        "stack",
        before="__device__ __noinline__ float endless(int n) {"
        " volatile float a[64]; a[n & 63] = n; return n == -1 ? 0 : endless(n + 1) + a[n & 63]; }",
    ),
    "deadlock": Fault(
        "PB222",
        "if (threadIdx.x < 7) __syncthreads(); else __shfl_sync(0xffffffffu, n, 0);",
        "__syncthreads",
    ),
    "lane": Fault("PB230", "__shfl_sync(1u << (threadIdx.x + 1 & 31), n, 0);", "mask"),
    "ptx": Fault(
        "PB228", 'asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];");', "ldmatrix"
    ),
    "nested": Fault("PB228", "child<<<1, 1>>>();", "", before="__global__ void child() {}"),
}


def operator_of(name: str, fault: Fault) -> pb.Operator:
    text = f"""
        {fault.before}
        __global__ void k(float* y, int n) {{
          {fault.body}
        }}
        void f(float* y, int n) {{ {fault.launch}; }}
    """
    return pb.operator(f"faults::{name}(x[n]) -> y[n]", cuda=pb.source(text, call="f(y, n)"))


@pytest.fixture(scope="module")
def sound() -> pb.Operator:
    text = """
        __global__ void k(float* y, const float* x, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          __shared__ float s[256];
          s[threadIdx.x] = i < n ? x[i] : 0;
          __syncthreads();
          if (i < n) y[i] = 2 * s[threadIdx.x];
        }
        void f(float* y, const float* x, int n) { k<<<(n + 255) / 256, 256>>>(y, x, n); }
    """
    return pb.operator("faults::sound(x[n]) -> y[n]", cuda=pb.source(text, call="f(y, x, n)"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_an_error_that_names_the_place(name: str, sound: pb.Operator) -> None:
    fault, x = FAULTS[name], torch.randn(1000)
    bad = operator_of(name, fault)
    for _ in range(2):
        with pytest.raises(pb.PullbackError) as raised:
            bad(torch.randn(8))
        finding = raised.value.finding
        assert finding.code == fault.code
        assert fault.said in str(finding)
        assert f"source of faults::{name}:" in str(finding)
        keys = {key for key, _ in finding.evidence}
        assert "block" in keys
        assert keys & {"thread", "waiting"}
        assert torch.equal(sound(x), 2 * x)


def test_barriers_in_different_lines_are_reported_where_faults_are_looked_for() -> None:
    fault = Fault("PB233", "if (threadIdx.x < 7) __syncthreads();\nelse __syncthreads();", "")
    bad = operator_of("divergence", fault)
    with on_cpu.entered(Mode(check="race")), pytest.raises(pb.PullbackError, match="PB233"):
        bad(torch.randn(8))


def test_a_launch_over_its_time_is_stopped(sound: pb.Operator) -> None:
    fault = Fault("PB224", "volatile float* p = y; while (*p < 1e30f) p[1] = 0;", "")
    bad = operator_of("endless", fault)
    with (
        on_cpu.entered(Mode(timeout=0.5)),
        pytest.raises(pb.PullbackError, match="PB224") as raised,
    ):
        bad(torch.randn(8))
    assert "source of faults::endless:" in str(raised.value)
    assert torch.equal(sound(torch.ones(4)), 2 * torch.ones(4))


def test_the_checks_have_a_limit_that_no_mode_has_to_name(
    monkeypatch: pytest.MonkeyPatch, sound: pb.Operator
) -> None:
    # The environment's, which is told the runtime as its own of a minute is: by no mode.
    monkeypatch.setenv("CUDA_ON_CPU_TIMEOUT", "0.5")
    fault = Fault("PB224", "volatile float* p = y; while (*p < 1e30f) p[1] = 0;", "")
    bad = operator_of("endless_in_a_check", fault)
    with (
        on_cpu.entered(Mode(check="race")),
        pytest.raises(pb.PullbackError, match="PB224") as raised,
    ):
        bad(torch.randn(8))
    assert "0.5 s" in str(raised.value)


TOO_LARGE = {
    "block": "k<<<1, 1025>>>(y, n)",
    "depth": "k<<<1, dim3(1, 1, 65)>>>(y, n)",
    "nothing": "k<<<0, 32>>>(y, n)",
    "grid": "k<<<dim3(1, 65536), 1>>>(y, n)",
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_sizes_over_the_limits_are_refused_as_by_a_gpu(name: str) -> None:
    bad = operator_of(f"limit_{name}", Fault("", "y[0] = 1;", "", launch=TOO_LARGE[name]))
    with pytest.raises(pb.PullbackError, match="invalid configuration argument"):
        bad(torch.randn(8))


def test_too_much_shared_memory_is_refused() -> None:
    bad = operator_of("shared", Fault("", "y[0] = 1;", "", launch="k<<<1, 32, 300 << 10>>>(y, n)"))
    with pytest.raises(pb.PullbackError, match="invalid"):
        bad(torch.randn(8))


def test_python_threads_launch_at_once(sound: pb.Operator) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for size in range(100, 5000, 100):
            x = torch.full((size,), float(number))
            if not torch.equal(sound(x), 2 * x):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


SCRIPT = """
    import os, sys, warnings
    warnings.simplefilter("ignore")
    import torch
    import pullback as pb
    k = pb.operator(
        "faults::script(x[n]) -> y[n]",
        cuda=pb.source('''
            __global__ void k(float* y, const float* x, int n) {
              int i = blockIdx.x * blockDim.x + threadIdx.x;
              for (; i < n; i += gridDim.x * blockDim.x) {
                float s = x[i];
                for (long j = 0; s >= 0 && j < (n > 100000 ? 100000000000l : 1); ++j) s += 1;
                __syncthreads();
                y[i] = s;
              }
            }
            void f(float* y, const float* x, int n) { k<<<8, 64>>>(y, x, n); }
        ''', call="f(y, x, n)"),
    )
    x = torch.zeros(512)
    assert k(x).sum() == 512
"""


def started(rest: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT) + textwrap.dedent(rest)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], seconds: float = 60) -> tuple[str, str]:
    """Return what a process said, which does not outlive this."""
    try:
        return process.communicate(timeout=seconds)
    finally:
        process.kill()


def test_a_process_may_fork_after_a_launch() -> None:
    process = started("""
        child = os.fork()
        if child == 0:
            os._exit(0 if k(x).sum() == 512 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert k(x).sum() == 512
        print("ok")
    """)
    output, errors = ended(process)
    assert output == "ok\n", errors


@pytest.mark.parametrize("handler", ["", "faulthandler.enable()"])
def test_a_signal_that_is_sent_ends_the_process(handler: str) -> None:
    process = started(f"""
        import faulthandler, signal, time
        {handler}
        time.sleep(0.01)  # ours is put in front again, at most once a millisecond
        k(x)
        os.kill(os.getpid(), signal.SIGSEGV)
        print("survived")
    """)
    output, errors = ended(process)
    assert (process.returncode, output) == (-signal.SIGSEGV, ""), errors


def test_two_runtimes_leave_each_other_and_faulthandler_their_signals() -> None:
    process = started("""
        import faulthandler, signal, time
        from pullback.bind import on_cpu
        from pullback.kernels.cuda_on_cpu.mode import Mode
        faulthandler.enable()
        for check in ["none", "race"] * 3:
            time.sleep(0.01)
            with on_cpu.entered(Mode(check=check)):
                k(x)
        os.kill(os.getpid(), signal.SIGSEGV)
    """)
    _, errors = ended(process)
    assert process.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in errors


def test_ctrl_c_ends_a_long_launch() -> None:
    process = started("""
        print("launching", flush=True)
        try:
            k(torch.zeros(200000))
        except KeyboardInterrupt:
            print("interrupted", k(x).sum().item())
        except pb.PullbackError as error:
            print(error.finding.code)
    """)
    assert process.stdout
    assert process.stdout.readline() == "launching\n"
    time.sleep(0.5)
    start = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    output, errors = ended(process, 30)
    assert time.monotonic() - start < 10
    assert output in ("interrupted 512.0\n", "PB231\n"), errors
