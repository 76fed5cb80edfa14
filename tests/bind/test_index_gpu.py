"""Loops on a GPU: what CUDA on the CPU cannot see. It rehearses the tests where there is no GPU."""

from __future__ import annotations

import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.loops import gpu, nests
from pullback.bind.loops.backends import CpuBackend, CudaBackend, Runner, find_backend, unit_of
from pullback.bind.loops.nests import Own
from pullback.bind.math import samples, verify
from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain
from pullback.kernels.loops import cuda
from pullback.kernels.loops.cuda import FOLDER
from tests.bind.gpu_ways import (
    GPU,
    both_ways,
    child,
    define,
    draw,
    gradients,
    on_a_gpu,
    rehearsed_thoroughly,
    require_close,
    require_loops,
    require_same_each_time,
    way,
)
from tests.bind.test_index_loops import (
    FORMULAS,
    NAMES,
    arguments,
    expected,
    formula,
    sizes_for,
)
from tests.forked import in_fork
from tests.telling import telling

__all__ = ["way"]

pytestmark = pytest.mark.compiler

NVRTC = gpu.find_nvrtc()
NVCC = next(
    (c for c in toolchain.survey() if isinstance(c, toolchain.Compiler) and c.language == "cuda"),
    None,
)
SOFTMAX = FORMULAS["softmax"]
GAUSS = FORMULAS["gauss"]
TOTAL = FORMULAS["total"]
BAG = "(table[v, d], index[n, k]: int64) -> y[n, d] = sum[k](table[index[n, k], d])"
CHOSEN = "(x[n, k], b[n]: bool) -> y[n] = where(b[n], sum[k](exp(x[n, k])), max[k](x[n, k]))"


# --- values


@rehearsed_thoroughly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_every_loop_gives_what_float64_does(name: str, dtype: torch.dtype, way: str) -> None:
    """The formula's loops, and its gradient's; at sizes beyond the lanes of any group."""
    indexed = formula(name)
    dims = {
        "n": 300,
        "m": 270,
        "d": 3,
        "k": 5,
        "h": 40,
        "w": 300,
        "p": 3,
        "q": 3,
        "v": 300,
        "...": 3,
    }
    backward = derived.backward(indexed)
    assert backward
    for made in (indexed, backward.formula):
        labels = {i.rstrip("'") for t in made.line.tensors for i in t.labels}
        sizes = sizes_for(made, {k: v for k, v in dims.items() if k in labels})
        given = arguments(made, sizes, dtype)
        moved = {k: v.to("cuda") if isinstance(v, Tensor) else v for k, v in given.items()}
        wanted = expected(made, given, sizes)
        found = run_loops(made, moved, sizes, dtype, way)
        assert found or made is not indexed
        for place, value in found.items():
            require_close(value, wanted[place], 1e-5 if dtype == torch.float32 else 1e-13)


def run_loops(
    indexed: Any, given: dict[str, Any], sizes: dict[str, int], dtype: torch.dtype, way: str
) -> dict[int, Tensor]:
    """Return the outputs that have loops."""
    found: dict[int, Tensor] = {}
    for group in nests.group_outputs(indexed, range(len(indexed.nodes)), sizes):
        own = nests.find(indexed, dtype, group, frozenset(given), sizes, backend_of(way))
        if isinstance(own, Own):
            found |= dict(zip(group, own.run(given, sizes, [dtype] * len(group)), strict=True))
    return found


def backend_of(way: str) -> Any:
    """Return who runs loops."""
    found = find_backend(torch.device("cuda" if way == GPU else "cpu"))
    assert isinstance(found, CudaBackend)
    return found


@on_a_gpu
@pytest.mark.parametrize("name", ["softmax", "gauss", "pair", "correlate", "hinge", "rowmax"])
def test_a_gpu_gives_what_cuda_on_the_cpu_does(name: str, way: str) -> None:
    """Sums are in the same order; only the functions are others'."""
    indexed = formula(name)
    labels = {i.rstrip("'") for t in indexed.line.tensors for i in t.labels}
    sizes = sizes_for(indexed, dict.fromkeys(labels, 37))
    given = arguments(indexed, sizes, torch.float32)
    moved = {k: v.to("cuda") if isinstance(v, Tensor) else v for k, v in given.items()}
    there = run_loops(indexed, moved, sizes, torch.float32, way)
    there = {place: value.cpu() for place, value in there.items()}
    with pb.cuda.on_cpu():
        here = run_loops(indexed, given, sizes, torch.float32, "on_cpu")
    assert there.keys() == here.keys()
    for place, value in there.items():
        require_close(value, here[place], 1e-6)


@rehearsed_thoroughly
def test_the_operator_and_its_gradients_are_right(way: str) -> None:
    operator = define(GAUSS)
    given = [draw(70, 3), draw(40, 3, seed=1), draw(40, seed=2)]
    require_loops(operator, *given)
    got = gradients(operator, given)
    wanted = gradients(
        lambda x, y, v: torch.exp(-((x[:, None] - y) ** 2).sum(-1)) @ v, [t.double() for t in given]
    )
    for value, want in zip(got, wanted, strict=True):
        require_close(value, want)


# --- what comes before the first call on a GPU


@dataclass(frozen=True)
class Elsewhere(CpuBackend):
    """A backend for another device, which notes where the tensors of its launches are."""

    seen: list[str] = field(default_factory=list[str], compare=False)

    @property
    def home(self) -> torch.device:
        return torch.device("meta")

    def runner(self) -> Runner:
        def run(address: int, tensors: tuple[Tensor, ...], *rest: object) -> None:
            del address, rest
            self.seen.extend(tensor.device.type for tensor in tensors)

        return run


def test_a_loop_is_compared_on_the_device_that_it_is_for() -> None:
    """A kernel of a GPU that is given memory of the CPU would break the process."""
    indexed = formula("rowmax")
    case = next(samples.draw_cases(indexed, torch.float32, {}, frozenset()))
    backend = Elsewhere()
    present = frozenset(case.arguments)
    own = nests.find(indexed, torch.float32, (0,), present, case.sizes, backend)
    assert isinstance(own, Own)
    with pytest.raises(NotImplementedError, match="meta"):  # nothing there to compare
        verify.compare(own, present)
    assert set(backend.seen) == {"meta"}


# --- threads of a group


@rehearsed_thoroughly
@pytest.mark.parametrize("tasks", [1, 3, 5, 9])
@pytest.mark.parametrize("lanes", [8, 16, 32, 512])
def test_tasks_that_fill_no_warp_and_no_block(
    lanes: int, tasks: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that have no task leave; a mask that names them would be undefined."""
    monkeypatch.setattr(cuda, "LANES", (lanes,))
    operator = define(SOFTMAX)
    x = draw(tasks, 77 if lanes < 512 else 777)
    require_loops(operator, x)
    value, gradient = gradients(lambda t: operator(t).square(), [x])
    want, wanted = gradients(lambda t: t.softmax(-1).square(), [x.double()])
    require_close(value, want)
    require_close(gradient, wanted, 1e-5)


@rehearsed_thoroughly
@pytest.mark.parametrize("line", [FORMULAS["before"], FORMULAS["hinge"], CHOSEN])
def test_groups_of_a_warp_in_different_branches_give_the_same_bits_each_time(
    line: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four groups share a warp, and the condition depends on the row."""
    monkeypatch.setattr(cuda, "LANES", (8,))
    operator = define(line)
    n = 1501
    given = [draw(n, 33), draw(n) > 0] if line == CHOSEN else [draw(n)]
    require_loops(operator, *given)
    got = require_same_each_time(lambda: operator(*given), 1000 if way == GPU else 2)
    on_cpu = [t.cpu().double() if t.is_floating_point() else t.cpu() for t in given]
    x = on_cpu[0]
    if line == CHOSEN:
        want = torch.where(on_cpu[1], x.exp().sum(1), x.amax(1))
    elif line == FORMULAS["before"]:
        want = x.cumsum(0)
    else:
        want = (1 - (x[:, None] - x)).relu().sum(1)
    require_close(got, want)


@rehearsed_thoroughly
def test_a_sum_in_chunks_gives_the_same_bits_each_time(way: str) -> None:
    operator = define(TOTAL)
    x = draw(300_000 if way == GPU else 20_000)
    require_loops(operator, x)
    got = require_same_each_time(lambda: operator(x), 1000 if way == GPU else 2)
    require_close(got, x.double().exp().mean())


def test_no_kernel_talks_between_blocks() -> None:
    """So no fence is needed, and the order of blocks cannot matter."""
    texts = [file.read_text() for file in FOLDER.iterdir()]
    assert texts
    for text in texts:
        code = re.sub(r"//.*", "", text)
        assert not re.search(r"\b(atomic\w+|volatile|__threadfence\w*)\b", code)


# --- memory


@rehearsed_thoroughly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_views_at_every_offset_are_read_where_they_lie(dtype: torch.dtype, way: str) -> None:
    """Bases at each multiple of an element below 16 bytes; rows of an odd length."""
    operator = define(SOFTMAX)
    size = torch.empty((), dtype=dtype).element_size()
    rows, columns = 5, 131
    base = draw(rows * columns + 16, dtype=dtype)
    for offset in range(16 // size):
        x = base[offset : offset + rows * columns].view(rows, columns)
        require_close(operator(x), x.double().softmax(-1), 3e-6)
        wide = base[offset:][: 4 * columns].view(2, 2 * columns)[:, :columns]
        require_close(operator(wide), wide.double().softmax(-1), 3e-6)
    turned = base[: rows * columns].view(columns, rows).t()
    require_close(operator(turned), turned.double().softmax(-1), 3e-6)


@rehearsed_thoroughly
def test_inputs_may_share_their_memory(way: str) -> None:
    operator = define(FORMULAS["sqdist"])
    base = draw(60, 3)
    x, y = base[:50], base[10:]
    require_close(operator(x, y), ((x[:, None] - y) ** 2).sum(-1).double())
    require_close(operator(base, base), ((base[:, None] - base) ** 2).sum(-1).double())


@rehearsed_thoroughly
@pytest.mark.parametrize("kilobytes", [40, 47, 49, 100, 227, 228])
def test_rows_that_fit_shared_memory_and_rows_that_do_not(kilobytes: int, way: str) -> None:
    """What a row keeps is in shared memory up to some size; beyond it nothing fails.

    Of fewer rows each would be cut into chunks.
    """
    operator = define(SOFTMAX)
    for more in (-64, 0, 64):
        x = draw(20, kilobytes * 256 + more)
        require_loops(operator, x)
        if kilobytes <= 47 and backend_of(way).shared >= 99 * 1024:
            assert "rows read once" in operator.plan(x, device="cuda").steps[0].reason
        require_close(operator(x), x.double().softmax(-1), 3e-6)
        halves = x.bfloat16()
        require_close(operator(halves), halves.double().softmax(-1), 1e-2)


@rehearsed_thoroughly
@pytest.mark.parametrize("image", [12, 40])
def test_few_elements_have_loops_too(way: str, image: int) -> None:
    """Threads without elements are no work that PyTorch's operations would spare. Costs 50 s."""
    norm = define(
        "(x[b, k, c, s], g[k, c]) -> y[b, k, c, s] = u[b, k] = mean[p, q](x[b, k, p, q]);"
        " y = (x - u)/sqrt(mean[p, q]((x[b, k, p, q] - u[b, k])**2) + 1e-5)*g"
    )
    for plan in (
        define(FORMULAS["pooled"]).plan(draw(8, image, image), device="cuda"),
        norm.plan(draw(12, 12, 12, image), draw(12, 12), device="cuda"),
    ):
        assert all(step.way.startswith("own loop") for step in plan.steps), plan


@rehearsed_thoroughly
def test_more_blocks_than_other_dimensions_of_a_grid_have(way: str) -> None:
    operator = define(FORMULAS["rowmax"])
    x = draw(70_000, 3)
    require_loops(operator, x)
    require_close(operator(x), (x.double() ** 2).amax(1))


@on_a_gpu
def test_tensors_of_more_than_2_to_the_31_elements(way: str) -> None:
    if torch.cuda.mem_get_info()[0] < 30e9:
        pytest.skip("it takes 30 GB")
    total = define("(x[n]) -> y[] = sum[n](x[n])")
    x = torch.ones(2**31 + 5, device="cuda")
    require_loops(total, x)
    assert total(x).item() == 2**31  # the nearest in float32
    x[-1] = 2.0**31
    assert total(x).item() == 2**32
    del x
    # Rows further apart than 4 GiB, and a row that begins beyond it.
    wide = torch.empty(2, 2**30 + 3, device="cuda")[:, :77]
    wide.copy_(draw(2, 77))
    require_close(define(SOFTMAX)(wide), wide.double().softmax(-1))


@on_a_gpu
def test_kernels_keep_everything_in_registers(way: str) -> None:
    """Local memory is device memory: at most what little two kernels are known to spill."""
    driver: Any = pytest.importorskip("cuda.bindings.driver")
    if NVRTC is None:
        pytest.skip("no NVRTC here")
    torch.zeros(1, device="cuda")
    spilled: list[str] = []
    for name in NAMES:
        for own in own_loops(name, backend_of(way)):
            for kernel, local, most in attributes(own, driver):
                assert most >= threads_of(own)
                if local > 64:
                    spilled.append(f"{name}, {kernel}: {local} bytes")
    assert not spilled, "\n".join(spilled)


def own_loops(name: str, backend: CudaBackend) -> list[Own]:
    """Return the loops of a formula and of its gradient."""
    indexed = formula(name)
    backward = derived.backward(indexed)
    found: list[Own] = []
    for each in (indexed, *([backward.formula] if backward else [])):
        case = next(samples.draw_cases(each, torch.float32, {}, frozenset()))
        sizes = dict.fromkeys(case.sizes, 300) | {"d": 3, "p": 3, "q": 3}
        for group in nests.group_outputs(each, range(len(each.nodes)), sizes):
            own = nests.find(each, torch.float32, group, frozenset(case.arguments), sizes, backend)
            if isinstance(own, Own):
                found.append(own)
    return found


def threads_of(own: Own) -> int:
    return max(64, own.target.lanes)


def compiled_by_nvrtc(own: Own, architecture: str) -> bytes:
    """Return a module of device code, from a text alone."""
    assert NVRTC
    kernels = cuda.name_kernels(step.kernel for step in own.steps)
    text = cuda.write_nvrtc(kernels, own.target, len(own.indexed.line.scalars))
    return NVRTC.compile(own.name, text, architecture)


def attributes(own: Own, driver: Any) -> list[tuple[str, int, int]]:
    """Return of each kernel the bytes of local memory, and the threads that a block may have."""
    assert isinstance(own.backend, CudaBackend)
    code = compiled_by_nvrtc(own, own.backend.architecture)
    result, library = driver.cuLibraryLoadData(code, [], [], 0, [], [], 0)
    assert result == driver.CUresult.CUDA_SUCCESS, result
    asked = driver.CUfunction_attribute
    names = (
        asked.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        asked.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    )
    found: list[tuple[str, int, int]] = []
    for place in range(len(own.steps)):
        name = f"{cuda.NAME.format(place)}_kernel"
        result, kernel = driver.cuLibraryGetKernel(library, name.encode())
        assert result == driver.CUresult.CUDA_SUCCESS, name
        answers = [driver.cuKernelGetAttribute(which, kernel, 0) for which in names]
        assert all(each[0] == driver.CUresult.CUDA_SUCCESS for each in answers)
        found.append((name, *(each[1] for each in answers)))
    driver.cuLibraryUnload(library)
    return found


# --- NVRTC


@pytest.mark.ci(2)
@pytest.mark.skipif(NVRTC is None, reason="no NVRTC here")
@pytest.mark.parametrize("name", telling(NAMES, ["weighted", "pooled"]))
def test_nvrtc_compiles_every_loop_without_a_toolkit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in half a second: loops unrolled within loops took it six, and others two minutes."""
    monkeypatch.chdir(tmp_path)
    for variable in ("CUDA_HOME", "CUDA_PATH", "CPATH"):
        monkeypatch.delenv(variable, raising=False)
    found = own_loops(name, CudaBackend("sm_90"))
    assert found
    for own in found:
        begin = time.process_time()
        assert compiled_by_nvrtc(own, "sm_90")
        assert time.process_time() - begin < 3


@pytest.mark.skipif(NVRTC is None, reason="no NVRTC here")
def test_by_nvrtc_lines_of_one_name_have_libraries_of_their_own() -> None:
    """A line that is edited keeps its name, and its launchers are those of the line before."""
    assert NVRTC
    sizes, keys = {"n": 300, "m": 300}, set[str]()
    for factor in (2, 3):
        line = f"demo::edited(x[n, m]) -> y[n] = sum[m](exp({factor}*x[n, m]))"
        indexed, backend = notation.parse(parse.parse(line)), CudaBackend("sm_90")
        own = nests.find(indexed, torch.float32, (0,), frozenset({"x"}), sizes, backend)
        assert isinstance(own, Own)
        keys.add(gpu.plan_of(unit_of([own]), "sm_90", NVRTC).key)
    assert len(keys) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["softmax", "pair", "correlate"])
@pytest.mark.parametrize(
    "by",
    [
        pytest.param("nvcc", marks=[pytest.mark.nvcc, pytest.mark.skipif(not NVCC, reason="none")]),
        pytest.param("NVRTC", marks=pytest.mark.skipif(not NVRTC, reason="none")),
    ],
)
def test_a_library_of_loops_says_why_it_cannot_launch(
    by: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled, linked and called: all but the GPU itself."""
    monkeypatch.setattr(gpu, "find_compiler", lambda: NVCC if by == "nvcc" else NVRTC)
    found = own_loops(name, CudaBackend("sm_90"))
    assert found
    for own in found:
        assert len(own.addresses) == len(own.steps)
    if torch.cuda.is_available():
        return
    own = found[0]
    case = next(samples.draw_cases(own.indexed, torch.float32, own.specialised, frozenset()))
    monkeypatch.setattr(CudaBackend, "home", torch.device("cpu"))
    with pytest.raises(PullbackError, match=r"PB304|kernel raised: CUDA"):
        own.run(case.arguments, case.sizes, [torch.float32])


@on_a_gpu
def test_loops_by_nvrtc_run_without_a_toolkit(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if NVRTC is None:
        pytest.skip("no NVRTC here")
    monkeypatch.setattr(gpu, "find_compiler", gpu.find_nvrtc)
    monkeypatch.setenv("PATH", os.pathsep.join(["/usr/bin", "/bin"]))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    operator = define(SOFTMAX)
    x = draw(33, 300)
    require_loops(operator, x)
    value, gradient = gradients(lambda t: operator(t).square(), [x])
    want, wanted = gradients(lambda t: t.softmax(-1).square(), [x.double()])
    require_close(value, want)
    require_close(gradient, wanted, 1e-5)


@pytest.mark.skipif(NVRTC is None, reason="no NVRTC here")
def test_an_architecture_that_nvrtc_does_not_know_is_told() -> None:
    assert NVRTC
    with pytest.raises(PullbackError, match="PB202") as caught:
        NVRTC.compile("demo-f-cuda", "__global__ void f() {}", "sm_999")
    assert "an architecture it does not know needs a newer NVRTC" in str(caught.value)


# --- streams, graphs, threads, processes


def delay(way: str) -> None:
    """Keep the current stream busy for a tenth of a second."""
    if way == GPU:
        torch.cuda._sleep(200_000_000)


@both_ways
def test_a_call_runs_on_the_current_stream_and_waits_for_nothing(way: str) -> None:
    operator = define(SOFTMAX)
    values = [draw(65, 129, seed=seed) for seed in range(2)]
    operator(values[0])  # compiled, loaded and compared
    made: list[tuple[torch.cuda.Event, Tensor]] = []
    torch.cuda.synchronize()
    for value in values:
        x = torch.zeros_like(value)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            delay(way)
            x.copy_(value)
            y = operator(x)
            if way == GPU:
                assert not stream.query(), "the call has waited for the GPU"
            x.zero_()
            done = torch.cuda.Event()
            done.record(stream)
            made.append((done, y))
    third = torch.cuda.Stream()
    with torch.cuda.stream(third):
        for (event, y), value in zip(made, values, strict=True):
            third.wait_event(event)
            doubled = y * 2
            third.synchronize()
            require_close(doubled / 2, value.double().softmax(-1))


@on_a_gpu
def test_a_warm_call_is_captured_and_replayed_with_new_inputs(way: str) -> None:
    operator = define(GAUSS)
    given = [draw(300, 3), draw(200, 3, seed=1), draw(200, seed=2)]
    for _ in range(3):
        operator(*given)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        u = operator(*given)
    for seed in range(100):
        given[0].copy_(draw(300, 3, seed=seed))
        graph.replay()
        x, y, v = (t.double() for t in given)
        require_close(u, torch.exp(-((x[:, None] - y) ** 2).sum(-1)) @ v)


@on_a_gpu
def test_a_backward_is_captured(way: str) -> None:
    operator = define(SOFTMAX)
    x = draw(64, 300).requires_grad_()

    def step() -> Tensor:
        (found,) = torch.autograd.grad(operator(x).square().sum(), x)
        return found

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        x.copy_(draw(64, 300, seed=5))
    graph.replay()
    wanted = gradients(lambda t: t.softmax(-1).square(), [x.detach().double()])[1]
    require_close(found, wanted, 1e-5)


FIRST_IN_CAPTURE = """
import torch
from tests.bind.gpu_ways import define, draw, require_close
operator = define({line!r})
x = draw(64, 300)
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
try:
    with torch.cuda.graph(graph):
        y = operator(x)
except Exception as error:
    print("refused:", type(error).__name__, str(error).splitlines()[0])
else:
    graph.replay()
    require_close(y, x.double().softmax(-1))
    print("captured")
torch.cuda.synchronize()
require_close(operator(x), x.double().softmax(-1))
print("works after it")
"""


@on_a_gpu
def test_a_first_call_inside_of_a_capture_is_right_or_refused(way: str, tmp_path: Path) -> None:
    done = child(FIRST_IN_CAPTURE.format(line=SOFTMAX), tmp_path)
    assert "works after it" in done.stdout, done.stdout + done.stderr


@rehearsed_thoroughly
def test_a_first_call_in_a_thread_of_a_pool(way: str) -> None:
    """A thread has no context of its own before its first call."""
    operators = [define(SOFTMAX), define("(x[...]) -> y[...] = x*tanh(x)")]
    x = draw(33, 100)
    with ThreadPoolExecutor(2) as pool:
        values = list(pool.map(lambda operator: operator(x), operators))
    require_close(values[0], x.double().softmax(-1))
    require_close(values[1], x.double() * x.double().tanh())


@rehearsed_thoroughly
def test_threads_call_at_once(way: str) -> None:
    operator = define(GAUSS)
    given = [draw(70, 3), draw(40, 3, seed=1), draw(40, seed=2)]
    first = operator(*given)
    same: list[bool] = []

    def call() -> None:
        same.extend(torch.equal(operator(*given), first) for _ in range(20))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 80


@on_a_gpu
def test_a_forked_child_says_what_pytorch_says(way: str, tmp_path: Path) -> None:
    operator = define(SOFTMAX)
    x = draw(3, 40)
    operator(x)
    done = in_fork(lambda: operator(torch.ones(3, 40, device="cuda")), folder=tmp_path)
    assert done.returncode != 0
    assert "Cannot re-initialize CUDA in forked subprocess" in done.stderr
    require_close(operator(x), x.double().softmax(-1))


@on_a_gpu
def test_tensors_of_another_gpu_than_the_current_one(way: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    operator = define(SOFTMAX)
    x = draw(33, 300).to("cuda:1")
    assert torch.cuda.current_device() == 0
    y = operator(x)
    assert y.device == x.device
    require_close(y, x.double().softmax(-1))


# --- errors


@rehearsed_thoroughly
@pytest.mark.parametrize("wrong", [-51, 50])
def test_an_index_outside_is_an_error_and_breaks_nothing(wrong: int, way: str) -> None:
    operator = define(BAG)
    table = draw(50, 7)
    index = torch.full((4, 3), 2, device="cuda")
    index[1, 2] = wrong
    with pytest.raises(PullbackError, match="PB149"):
        operator(table, index)
    torch.cuda.synchronize()
    index[1, 2] = 49
    require_close(operator(table, index), table[index].sum(1).double())


@on_a_gpu
def test_memory_that_there_is_not_is_pytorchs_error(way: str) -> None:
    operator = define(FORMULAS["outer"])
    x = draw(2**20)
    with pytest.raises(torch.OutOfMemoryError):
        operator(x, x)  # 4 TiB
    require_close(operator(x[:9], x[:9]), torch.outer(x[:9], x[:9]).double())


UNCACHED = """
import torch
from tests.bind.gpu_ways import define, draw, gradients, require_close
operator = define({line!r})
x = draw(64, 300)
for _ in range(3):
    value, gradient = gradients(lambda t: operator(t).square(), [x])
want, wanted = gradients(lambda t: t.softmax(-1).square(), [x.double()])
require_close(value, want)
require_close(gradient, wanted, 1e-5)
print("done")
"""


@on_a_gpu
def test_without_pytorchs_caching_of_memory(way: str, tmp_path: Path) -> None:
    done = child(UNCACHED.format(line=SOFTMAX), tmp_path, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert "done" in done.stdout, done.stdout + done.stderr


# --- PyTorch's transforms


@rehearsed_thoroughly
def test_vmap(way: str) -> None:
    operator = define(GAUSS)
    x, y, v = draw(5, 33, 3), draw(40, 3, seed=1), draw(40, seed=2)
    got = torch.vmap(operator, in_dims=(0, None, None))(x, y, v)
    want = torch.stack([operator(each, y, v) for each in x])
    require_close(got, want.double(), 3e-6)


@rehearsed_thoroughly
def test_autocast_casts_what_the_policy_says(way: str) -> None:
    operator = define(SOFTMAX, autocast="float32")
    x = draw(9, 100).half()
    with torch.autocast("cuda", torch.float16):
        got = operator(x)
    assert got.dtype == torch.float32
    require_close(got, x.double().softmax(-1))


@on_a_gpu
@pytest.mark.filterwarnings("ignore")  # PyTorch's own
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_call_is_one_operator(backend: str, way: str) -> None:
    if backend == "inductor":
        pytest.importorskip("triton")
    operator = define(SOFTMAX)
    x = draw(9, 100)
    run: Any = torch.compile(lambda t: operator(t * 2).square(), backend=backend, fullgraph=True)
    value, gradient = gradients(run, [x])
    want, wanted = gradients(lambda t: (t * 2).softmax(-1).square(), [x.double()])
    require_close(value, want, 1e-5)
    require_close(gradient, wanted, 1e-5)


@on_a_gpu
@pytest.mark.filterwarnings("ignore")  # PyTorch's own
def test_an_exported_program_runs(way: str) -> None:
    operator = define(SOFTMAX)

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return operator(x)

    x = draw(9, 100)
    exported = torch.export.export(Model(), (x,))
    require_close(exported.module()(x), x.double().softmax(-1))


@rehearsed_thoroughly
def test_half_precision(way: str) -> None:
    operator = define(SOFTMAX)
    x = draw(9, 100)
    for dtype in (torch.float16, torch.bfloat16):
        given = x.to(dtype)
        got = operator(given)
        assert got.dtype == dtype
        require_close(got, given.double().softmax(-1), torch.finfo(dtype).eps)


@on_a_gpu
def test_nvcc_or_nvrtc_is_there(way: str) -> None:
    """Else all tests here would be of PyTorch's operations."""
    found = gpu.find_compiler()
    assert isinstance(found, toolchain.Compiler | gpu.Nvrtc)
