"""`pb.cuda.on_cpu` and the switch: what asks for a GPU has the CPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
import torch
from setuptools import Distribution, Extension
from torch import nn
from torch.utils import cpp_extension

import pullback as pb
from pullback.bind import gpu, on_cpu
from pullback.cuda import __main__ as program
from pullback.cuda import gpu_code, toolkit
from pullback.cuda.pretend import pretend_gpu
from pullback.diagnostic import PullbackError
from pullback.kernels.cuda_on_cpu import mode
from pullback.kernels.cuda_on_cpu.mode import Mode
from tests.forked import in_fork

HERE = Path(__file__).parent
SHIFT = """
__global__ void shift_kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
torch::Tensor shift(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda());
  auto y = torch::empty_like(x);
  shift_kernel<<<(x.numel() + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""


@pytest.fixture
def pretence() -> Iterator[None]:
    with pretend_gpu():
        yield


def run(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with what `python -m pullback.cuda` would set."""
    paths = program.environment()["PYTHONPATH"]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


ASKING: dict[str, Callable[[], torch.Tensor]] = {
    "a factory function": lambda: torch.zeros(2, device="cuda"),
    "a device with a number": lambda: torch.ones(2, device=torch.device("cuda", 0)),
    "a number": lambda: torch.ones(2, device=0),
    "cuda()": lambda: torch.ones(2).cuda(),
    "cuda(0)": lambda: torch.ones(2).cuda(0, non_blocking=True),
    "to": lambda: torch.ones(2).to("cuda:0"),
    "to with a dtype": lambda: torch.ones(2).to(device="cuda", dtype=torch.float64),
    "to(0)": lambda: torch.ones(2).to(0),
    "like": lambda: torch.empty_like(torch.ones(2), device="cuda").zero_(),
    "a new tensor": lambda: torch.ones(2).new_zeros(2, device="cuda"),
    "tensor": lambda: torch.tensor([1.0], device="cuda"),
    "a type": lambda: torch.ones(2).type("torch.cuda.FloatTensor"),
    "a type's instance": lambda: cast("Any", torch.cuda).FloatTensor(2).zero_(),
    "another's device": lambda: torch.ones(2, device=torch.zeros(1).device),
    "a module": lambda: next(nn.Linear(2, 2).cuda().to("cuda").parameters()).detach(),
    "a generator": lambda: torch.rand(2, generator=torch.Generator(device="cuda"), device="cuda"),
}


@pytest.mark.parametrize("how", ASKING)
def test_a_tensor_for_the_gpu_is_one_of_the_cpu_that_says_otherwise(
    pretence: None, how: str
) -> None:
    x = ASKING[how]()
    assert x.is_cuda
    assert x.device == torch.device("cuda", 0)
    assert x.get_device() == 0
    # NumPy takes what is on the CPU.
    assert x.numpy().size == x.numel()


def test_pytorch_is_as_it_was_afterwards() -> None:
    before = dict(vars(torch.cuda)), dict(vars(torch)), torch.get_autocast_dtype("cpu")
    with pretend_gpu(), pretend_gpu():
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        assert torch.version.cuda == "12.4"
        assert not gpu.is_available()
    assert (dict(vars(torch.cuda)), dict(vars(torch)), torch.get_autocast_dtype("cpu")) == before
    assert not torch.ones(1).is_cuda
    assert torch.version.cuda is None


def test_a_default_device_is_the_cpu(pretence: None) -> None:
    with torch.device("cuda"):
        assert torch.ones(1).numpy().size == 1
    torch.set_default_device("cuda")
    try:
        assert torch.ones(1).numpy().size == 1
    finally:
        torch.set_default_device(None)


def test_a_model_trains_with_mixed_precision(pretence: None, seed: int) -> None:
    model = nn.Linear(3, 1).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0)
    x = torch.randn(8, 3, device="cuda")
    losses: list[float] = []
    for _ in range(3):
        with torch.autocast("cuda"):
            y = model(x)
            assert y.dtype == torch.float16
            loss = (y - 1).pow(2).mean()
        optimiser.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_streams_events_seeds_and_saved_tensors(pretence: None, tmp_path: Path) -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
        torch.cuda.current_stream().synchronize()
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    torch.cuda.manual_seed_all(3)
    first = torch.rand(2, device="cuda")
    torch.cuda.manual_seed(3)
    assert torch.equal(torch.rand(2, device="cuda"), first)
    torch.save(first, tmp_path / "x.pt")
    for place in ("cuda", None, {"cuda:0": "cuda:0"}):
        assert torch.equal(torch.load(tmp_path / "x.pt", map_location=place), first)


@pytest.fixture
def switched_on() -> Iterator[Mode]:
    """CUDA on the CPU; neither operators nor libraries of another test in the process matter."""
    with (
        mock.patch.object(on_cpu, "operators", {}),
        mock.patch.object(gpu_code, "announce_loaded", return_value=None),
        pb.cuda.on_cpu(order="reverse") as now,
    ):
        yield now


@pytest.mark.compiler
def test_load_builds_for_the_cpu(switched_on: Mode, tmp_path: Path) -> None:
    assert mode.current_mode() is switched_on
    assert torch.cuda.is_available()
    module: Any = cpp_extension.load(
        "_C",
        sources=[str(HERE / "project" / "ops" / "square.cu")],
        extra_cuda_cflags=["-DSCALE=3"],
        extra_include_paths=[str(HERE / "project" / "include")],
        build_directory=str(tmp_path),
    )
    x, y = torch.randn(2, 100, device="cuda").unbind()
    module.square(x.data_ptr(), y.data_ptr(), 100)
    assert torch.equal(y, 3 * x * x)


@pytest.mark.compiler
def test_a_library_in_cpp_finds_nvidias_headers_where_cuda_is(
    switched_on: Mode, tmp_path: Path
) -> None:
    assert cpp_extension.CUDA_HOME is not None
    (tmp_path / "types.h").write_text("#include <cuda_fp16.h>\n")
    file = tmp_path / "plain.cpp"
    file.write_text('#include "types.h"\nint size_of_half() { return sizeof(__half); }\n')
    folders = [str(Path(cpp_extension.CUDA_HOME, "include"))]
    own = cpp_extension.CppExtension("plain", [str(file)], include_dirs=folders)
    command: Any = cpp_extension.BuildExtension(
        Distribution({"ext_modules": [own]}), use_ninja=False
    )
    command.build_lib, command.build_temp = str(tmp_path / "lib"), str(tmp_path / "temp")
    command.ensure_finalized()
    command.run()
    assert list((tmp_path / "lib").glob("plain.*.so"))


@pytest.mark.ci
@pytest.mark.compiler
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.thorough)]
)
def test_torch_compile_compiles_what_runs_cuda_on_the_cpu(switched_on: Mode, backend: str) -> None:
    torch._dynamo.reset()
    line = f"oncpu::sums_{backend}(x[n], y[m]) -> u[n] = sum[m](exp(-(x[n] - y[m])**2))"
    sums = pb.operator(line)

    @torch.compile(backend=backend, fullgraph=True)
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return sums(2 * x, y).sin()

    x, y = torch.randn(9, requires_grad=True), torch.randn(5)
    want = torch.exp(-((2 * x[:, None] - y) ** 2)).sum(1).sin()
    torch.testing.assert_close(model(x, y), want)
    found, right = (torch.autograd.grad(u.sum(), x)[0] for u in (model(x, y), want))
    torch.testing.assert_close(found, right)
    assert "cuda" in str(sums.plan(x, y))


def test_a_kernel_without_its_source_sends_nobody_to_a_gpu_that_is_pretended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As for the operator of an installed package that brought a library for GPUs alone.
    monkeypatch.setattr(on_cpu, "plan_of", lambda definition: None)  # type: ignore[misc]
    fill = pb.operator(
        "tests_cuda::on_gpus_alone(x[n]) -> y[n]",
        cuda=pb.source("void fill(float* y) {}", call="fill(y)"),
    )
    with pytest.raises(PullbackError, match="help: move the tensors to cuda"):
        fill(torch.ones(2))
    with (
        pretend_gpu(),
        mode.set_mode(Mode()),
        pytest.raises(PullbackError, match="PB351") as raised,
    ):
        fill(torch.ones(2, device="cuda"))
    assert "move the tensors" not in str(raised.value)
    assert "needs its source: install the package" in str(raised.value)


def test_nothing_is_built_for_the_cpu_afterwards() -> None:
    with mock.patch.object(on_cpu, "operators", {}), pb.cuda.on_cpu():
        assert cpp_extension.CUDA_HOME is not None
    assert not torch.cuda.is_available()
    assert cpp_extension.CUDA_HOME is None


# It includes <torch/extension.h>, which is precompiled for half a minute.
@pytest.mark.thorough
@pytest.mark.compiler
def test_load_inline_builds_for_the_cpu(switched_on: Mode, tmp_path: Path) -> None:
    module: Any = cpp_extension.load_inline(
        "inline_shift",
        cpp_sources="torch::Tensor shift(torch::Tensor x);",
        cuda_sources=SHIFT,
        functions=["shift"],
        build_directory=str(tmp_path),
    )
    x = torch.randn(100, device="cuda")
    assert torch.equal(module.shift(x), x + 1)


def test_what_a_project_says_for_all_extensions_is_said_for_each(tmp_path: Path) -> None:
    """By `setup(include_dirs=)`, on the command line or in setup.cfg, all of which are the same."""
    own = Extension(
        "one", ["one.cu"], include_dirs=["mine"], define_macros=[("A", "1")], libraries=["m"]
    )
    project = Distribution({"include_dirs": ["ours"], "ext_modules": [own]})
    command: Any = project.get_command_obj("build_ext")
    command.define, command.undef, command.libraries = "B", "C", ["z"]
    command.library_dirs, command.rpath, command.link_objects = ["lib"], ["run"], ["some.o"]
    command.ensure_finalized()
    build = toolkit.build_of(command, own, (tmp_path / "one.cu",))
    here = Path.cwd()
    assert build.compiling == ("-DB=1", "-DA=1", "-UC", f"-I{here / 'mine'}", f"-I{here / 'ours'}")
    words = (str(here / "some.o"), f"-L{here / 'lib'}", "-lm", "-lz", "-Wl,-rpath,run")
    assert set(words) <= set(build.linking)


@pytest.mark.ci
@pytest.mark.compiler
def test_a_project_builds_and_tests_itself(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(HERE / "project", project)
    words = ["setup.py", "build_ext", "--inplace"]  # of python -m pullback.cuda
    built = in_fork(lambda: program.main(words), folder=project)
    assert built.returncode == 0, built.stdout + built.stderr
    assert list(project.glob("ops/_C.*.so"))
    # The variable alone is enough where the start-up file is found.
    options = ("-q", "-p", "no:cacheprovider", "check_square.py")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    tested = run("-m", "pytest", *options, folder=project, CUDA_ON_CPU="cpu", **alone)
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


# Without the switch it refuses, as on any machine without a GPU.
@pytest.mark.thorough
def test_a_project_has_no_gpu_without_the_switch(tmp_path: Path) -> None:
    shutil.copytree(HERE / "project", tmp_path / "project")
    refused = run("setup.py", "build_ext", folder=tmp_path / "project", CUDA_ON_CPU="")
    assert "needs a GPU" in refused.stderr


@pytest.mark.parametrize(("switch", "waits"), [("cpu", True), ("", False)])
def test_the_switch_costs_nothing_until_pytorch_is_imported(
    tmp_path: Path, switch: str, *, waits: bool
) -> None:
    script = """if True:
        import sys
        from pullback import imported
        print("torch" in sys.modules, "pullback.bind" in sys.modules, "torch" in imported._waiting)
    """
    done = run("-c", script, folder=tmp_path, CUDA_ON_CPU=switch)
    assert done.stdout.split() == ["False", "False", str(waits)], done.stderr


def test_a_script_its_threads_and_its_children_have_the_switch(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        "import torch, threading\n"
        "found = []\n"
        "thread = threading.Thread(target=lambda: found.append(torch.ones(1, device='cuda')))\n"
        "thread.start(); thread.join()\n"
        "print(torch.cuda.get_device_name(), len(found))\n"
    )
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys\nprint(__name__, sys.argv[1:])\n"
        "sys.exit(subprocess.run([sys.executable, 'child.py']).returncode)\n"
    )
    (tmp_path / "sitecustomize.py").write_text("print('of the user')\n")
    paths = f"{program.environment()['PYTHONPATH']}:{tmp_path}"
    done = run("-m", "pullback.cuda", "parent.py", "-x", folder=tmp_path, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    assert "__main__ ['-x']" in done.stdout
    assert "pullback CUDA on CPU 1" in done.stdout
    # It hides no sitecustomize of the user's.
    assert done.stdout.count("of the user") == 2


def test_what_fails_at_the_start_of_python_stops_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "pullback"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('broken')\n")
    path = f"{tmp_path}:{program.STARTUP}"
    done = run("-c", "print('alive')", folder=tmp_path, PYTHONPATH=path, CUDA_ON_CPU="cpu")
    assert done.stdout == "alive\n"
    assert "CUDA_ON_CPU has no effect" in done.stderr
