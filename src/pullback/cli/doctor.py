"""`pullback doctor`: what pullback found on this machine, what will work, and the cure."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import typer
from packaging.requirements import Requirement
from rich.text import Text

from pullback.cli.screen import Format, FormatOption, answer, mark, progress, screen, table
from pullback.diagnostic import PullbackError
from pullback.kernels import cache, toolchain
from pullback.kernels import compile as compilation
from pullback.kernels.toolchain import Compiler

FINDINGS = 1

# A library in C++20 that needs the headers of the standard library, and a linker.
TRIAL = "#include <vector>\nstd::vector<int> trial() { return {1}; }\n"
TIMEOUT = 60.0


@dataclass(frozen=True, kw_only=True)
class Ability:
    """Something that pullback can do, and whether it can here.

    Attributes:
        what: in a few words.
        state: "no": this machine lacks what it needs; "add": a package that not everybody needs is
            not installed; "FAIL": something is there, but does not work.
        said: what was found.
        help: the cure.
    """

    what: str
    state: Literal["ok", "no", "add", "FAIL"]
    said: str
    help: str | None = None


def doctor(format: FormatOption = Format.TEXT) -> None:
    """Show what was found on this machine, what works with it, and what to do about the rest.

    Exit code 1: something is installed that does not work.
    """
    with progress("looking at PyTorch and the compilers"):
        facts = [*versions(), *compilers(), *cache_facts()]
        found = list(abilities())
    ok = all(ability.state != "FAIL" for ability in found)
    if format == Format.JSON:
        named = [{"name": name, "value": value} for name, value in facts]
        answer(ok=ok, facts=named, abilities=[asdict(ability) for ability in found])
    else:
        show(facts, found)
    if not ok:
        raise typer.Exit(FINDINGS)


def show(facts: list[tuple[str, str]], found: list[Ability]) -> None:
    """Print facts, then what works."""
    console = screen()
    rows = table("", "")
    rows.show_header = False
    for name, value in facts:
        rows.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
    console.print(rows)
    console.print()
    works = table("", "what", "here")
    for ability in found:
        said = Text(ability.said, overflow="fold")
        if ability.help:
            said.append(f"\nhelp: {ability.help}")
        works.add_row(mark(ability.state), ability.what, said)
    console.print(works)


def versions() -> Iterator[tuple[str, str]]:
    """Yield pullback, PyTorch, Python, CUDA and the GPU."""
    import torch  # noqa: PLC0415  (so that --help does not wait for it)

    try:
        yield "pullback", version("pullback")
    except PackageNotFoundError:
        yield "pullback", f"not installed; run from {Path(__file__).parents[1]}"
    yield "torch", torch.__version__
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    yield "cuda", torch.version.cuda or "none: this PyTorch is built without CUDA"
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        yield "gpu", f"{torch.cuda.get_device_name(index)}, sm_{major}{minor}"
    if not torch.cuda.is_available():
        yield "gpu", "none that PyTorch can use"


def compilers() -> Iterator[tuple[str, str]]:
    """Yield each compiler looked at: the first of a language that can be used is used."""
    used: set[str] = set()
    for seen in toolchain.survey():
        if not isinstance(seen, Compiler):
            yield "refused", f"{seen.name}: {seen.reason}"
        elif seen.language in used:
            yield "spare", f"{seen.language}: {' '.join(seen.command)}, version {seen.version}"
        else:
            used.add(seen.language)
            yield "used", f"{seen.language}: {' '.join(seen.command)}, version {seen.version}"


def cache_facts() -> Iterator[tuple[str, str]]:
    """Yield the cache folder, and whether it has the runtime."""
    yield "cache", str(cache.folder())
    yield "runtime", runtime_state()


def runtime_state() -> str:
    """Return whether the runtime for this PyTorch is built."""
    from pullback.bind import runtime  # noqa: PLC0415  (it imports torch)

    try:
        library = cache.look_up(runtime.plan())
    except PullbackError as error:
        return f"cannot be built: {error.finding.message} [{error.finding.code}]"
    return str(library) if library else "not built yet; the first operator builds it, in seconds"


def abilities() -> Iterator[Ability]:
    """Yield what works here, and what does not."""
    yield python_and_pytorch()
    yield cache_folder()
    yield from in_cpp()
    yield from on_gpus()
    yield from of_checks()
    yield from of_shipping()


def python_and_pytorch() -> Ability:
    """Tell whether this PyTorch is supported."""
    import torch  # noqa: PLC0415

    what = "operators in Python"
    try:
        needs = [Requirement(text) for text in requires("pullback") or []]
    except PackageNotFoundError:
        return Ability(what=what, state="ok", said="pullback is not installed, but run in place")
    wanted = next(need.specifier for need in needs if need.name == "torch")
    own = torch.__version__
    if not wanted.contains(own.partition("+")[0], prereleases=True):
        said = f"torch {own} is not one that this pullback is made for"
        return Ability(what=what, state="FAIL", said=said, help=f"pip install 'torch{wanted}'")
    return Ability(what=what, state="ok", said=f"torch {own} is one of {wanted}")


def cache_folder() -> Ability:
    """Tell whether what is compiled is kept, and can be loaded."""
    what, folder = "keeping what is compiled", cache.folder()
    if folder not in cache.folders()[:1]:
        return Ability(
            what=what,
            state="FAIL",
            said=f"{folder} is used instead, and removed at exit",
            help="set PULLBACK_CACHE to a folder of your own that only you can write to",
        )
    free = shutil.disk_usage(folder).free
    if compilation.noexec(folder):
        return Ability(
            what=what,
            state="FAIL",
            said=f"{folder} is on a disk from which nothing may be run (noexec)",
            help="set PULLBACK_CACHE to a folder on another disk",
        )
    if free < 2**30:
        return Ability(
            what=what,
            state="FAIL",
            said=f"{free / 2**20:.0f} MiB are free; a precompiled header takes 800",
            help="pullback cache clean, or set PULLBACK_CACHE to a folder on another disk",
        )
    return Ability(what=what, state="ok", said=f"{free / 2**30:.0f} GiB are free")


def in_cpp() -> Iterator[Ability]:
    """Yield what needs a C++ compiler."""
    kernels, loops = "operators in C++", "formulas as compiled loops"
    help = toolchain.HELP["c++"]
    if not toolchain.has("c++"):
        yield Ability(what=kernels, state="no", said="no C++ compiler can be used", help=help)
        said = "without a compiler PyTorch's operations compute them: right, but slower"
        yield Ability(what=loops, state="no", said=said, help=help)
        return
    compiler = toolchain.find("c++")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if failed := try_out(compiler):
        yield Ability(what=kernels, state="FAIL", said=failed, help=help)
    elif not header.is_file():
        major, minor = sys.version_info[:2]
        help = f"install Python's headers (apt install python{major}.{minor}-dev)"
        said = f"there is no {header}, which the runtime needs"
        yield Ability(what=kernels, state="FAIL", said=said, help=help)
    else:
        yield Ability(what=kernels, state="ok", said=f"{compiler} compiles and links")
        yield Ability(what=loops, state="ok", said="by the same compiler")


def try_out(compiler: Compiler, *flags: str) -> str | None:
    """Compile a small library, and return what the compiler said if it cannot."""
    with tempfile.TemporaryDirectory(prefix="pullback-doctor-") as work:
        unit = Path(work, "trial.cpp")
        unit.write_text(TRIAL, encoding="utf-8")
        words = [*compiler.command, "-std=c++20", "-shared", "-fPIC", *flags, str(unit)]
        try:
            done = subprocess.run(
                [*words, "-o", str(Path(work, "trial.so"))],
                capture_output=True,
                check=False,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{compiler} cannot be run: {error}"
    if done.returncode == 0:
        return None
    said = toolchain.first_error(done.stdout + done.stderr).text.partition("\n")[0]
    return f"{compiler} cannot compile a small library: {said}"


def on_gpus() -> Iterator[Ability]:
    """Yield what needs a GPU, or makes up for one."""
    import torch  # noqa: PLC0415

    from pullback.bind.loops import gpu  # noqa: PLC0415

    there, nvcc = torch.cuda.is_available(), toolchain.has("cuda")
    nothing = "PyTorch finds no GPU"
    meanwhile = "kernels can be tested on the CPU: pullback cuda run, or without cpu= in a line"
    if nvcc and there:
        said = f"{toolchain.find('cuda')}, {torch.cuda.get_device_name()}"
        yield Ability(what="CUDA kernels", state="ok", said=said)
    else:
        said = f"{nothing}; nvcc compiles them for others" if nvcc else "no CUDA compiler"
        help = meanwhile if nvcc else toolchain.HELP["cuda"]
        yield Ability(what="CUDA kernels", state="no", said=said, help=help)
    what = "formulas on a GPU"
    if not there:
        yield Ability(what=what, state="no", said=nothing, help="install PyTorch's build for CUDA")
    elif nvcc or gpu.find_nvrtc():
        is_nvrtc = isinstance(gpu.find_compiler(), gpu.Nvrtc)
        said = "compiled by NVRTC" if is_nvrtc else "compiled by nvcc"
        yield Ability(what=what, state="ok", said=said)
    else:
        said = "neither nvcc nor NVRTC: PyTorch's operations compute them"
        yield Ability(what=what, state="add", said=said, help="pip install 'pullback[cuda]'")
    yield from on_the_cpu()


def on_the_cpu() -> Iterator[Ability]:
    """Yield whether CUDA runs on the CPU, and which of its checks."""
    what = "CUDA on the CPU"
    if not toolchain.has("c++"):
        help = toolchain.HELP["c++"]
        yield Ability(what=what, state="no", said="no C++ compiler can be used", help=help)
        return
    compiler = toolchain.find("c++")
    yield Ability(what=what, state="ok", said=f"{compiler}")
    for check, flag, package in (
        ("races", "-fsanitize=thread", "libtsan"),
        ("accesses out of bounds", "-fsanitize=address", "libasan"),
    ):
        what = f"CUDA on the CPU: {check}"
        if failed := try_out(compiler, flag):
            help = f"install g++ with its sanitizers ({package})"
            yield Ability(what=what, state="no", said=failed, help=help)
        else:
            yield Ability(what=what, state="ok", said=f"{flag} compiles and links")


def of_checks() -> Iterator[Ability]:
    """Yield whether checks run apart from this process."""
    from pullback.verify import forks  # noqa: PLC0415

    what = "checks in a process of their own"
    if forks.can_fork():
        yield Ability(what=what, state="ok", said="a crash or a hang there is a finding")
    else:
        said = "this process cannot be forked: a crash of what is checked ends it"
        help = "use neither CUDA nor torch.distributed before pb.check"
        yield Ability(what=what, state="no", said=said, help=help)


def of_shipping() -> Iterator[Ability]:
    """Yield which ways to ship have what they need."""
    yield of_modules("wheels", "deploy", "setuptools", "auditwheel", "elftools")
    if shutil.which("cmake"):
        yield Ability(what="libraries without Python", state="ok", said="CMake is there")
    else:
        yield Ability(
            what="libraries without Python",
            state="add",
            said="there is no CMake",
            help="apt install cmake, or pip install cmake",
        )
    yield of_modules("models for ONNX", "onnx", "onnx", "onnxscript")
    yield of_modules("models run by ONNX Runtime", "onnx", "onnxruntime", "onnxruntime_extensions")


def of_modules(what: str, extra: str, *modules: str) -> Ability:
    """Tell whether modules can be imported; they are not."""
    lacking = [name for name in modules if find_spec(name) is None]
    if lacking:
        said = f"not installed: {', '.join(lacking)}"
        return Ability(what=what, state="add", said=said, help=f"pip install 'pullback[{extra}]'")
    return Ability(what=what, state="ok", said=f"{', '.join(modules)} are installed")
