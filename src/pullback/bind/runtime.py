"""Build and load the C++ runtime: once for each PyTorch and Python version, on first use."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import torch

from pullback.bind import environment
from pullback.bind.environment import Environment
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import compile as compilation
from pullback.kernels import prebuilt, toolchain
from pullback.kernels.plan import BuildPlan, TranslationUnit

NoPythonHeaders = Rule("PB311", "no-python-headers")
NoRuntime = Rule("PB704", "no-runtime")

CANNOT_COMPILE = (toolchain.CompilerMissing.code, NoPythonHeaders.code)

ROOT = Path(torch.__file__).parent
SOURCES = Path(__file__).parent.parent / "csrc" / "runtime"
# Reading PyTorch's headers is most of what compiling a file costs, so the files are compiled in two
# halves, in parallel, which take about equally long. Those that need Python have a folder of their
# own: a library for C++ is built from the rest.
HALVES = (
    (
        "autograd",
        "derivative",
        "kernel",
        "zeros",
        "interpreter",
        "threads",
        "finish",
        "entry_order",
    ),
    (
        *("python/module", "python/caller", "python/fields", "python/lazy"),
        *("python/loops", "python/blocks", "python/matrices"),
        *("python/shortcuts", "python/signals", "python/trial"),
        *("operator", "signature", "formula"),
    ),
)


# A shape, and the number of a dtype.
NativeWritten = tuple[tuple[int, ...], int]
# A tensor: an argument, or behind these one that was made; the shape, strides and begin of a part.
NativeView = tuple[int, tuple[tuple[int, ...], tuple[int, ...], int] | None]
# A kernel's address; the places of its tensors, where they begin, and the bytes between neighbours;
# its sizes; which arguments its scalars are; how many tasks there are, and a thread has at least.
NativeLaunch = tuple[
    int,
    tuple[int, ...],
    tuple[int, ...],
    tuple[int, ...],
    tuple[int, ...],
    tuple[int, ...],
    int,
    int,
]
# An operation, by its place in `Step::Operation` of python/shortcuts.cpp; of what, along which
# dimensions, and the dtype of the result.
NativeOperation = tuple[int, NativeView, tuple[int, ...], int]
# What is allocated first; which tensors no later step reads; then one of the two.
NativeStep = tuple[
    tuple[NativeWritten, ...], tuple[int, ...], NativeLaunch | None, NativeOperation | None
]
# The steps, and the outputs, None where one is not wanted.
NativeCall = tuple[tuple[NativeStep, ...], tuple[NativeView | None, ...]]


class Shortcuts(Protocol):
    """Calls of an operator that are known, by what their loops depend on."""

    def add(self, arguments: tuple[object, ...], call: NativeCall, /) -> None:
        """Add all calls like one."""
        ...

    def run(self, arguments: tuple[object, ...], /) -> bool:
        """Make a call, for its time; return whether it is known."""
        ...

    def clear(self) -> None:
        """Forget them."""
        ...


class Runtime(Protocol):
    """What csrc/runtime/python/module.cpp exports."""

    Caller: type[Any]
    """A callable that goes from Python straight to PyTorch's dispatcher."""

    Shortcuts: Callable[[tuple[int, ...]], Shortcuts]
    """Makes the calls of an operator whose int scalars at some places say how far an index runs."""

    def define(self, definition: dict[str, object], /) -> None:
        """Define or redefine an operator; `native.definition_fields` makes the fields."""
        ...

    def accelerate(self, cls: type, /) -> None:
        """Let instances of a subclass of `Caller` be called in C."""
        ...

    def parallel(  # noqa: PLR0913, PLR0917  (positional: a call of a kernel takes microseconds)
        self,
        address: int,
        tensors: tuple[torch.Tensor, ...],
        sizes: tuple[int, ...],
        scalars: tuple[float, ...],
        count: int,
        grain: int,
        /,
    ) -> int | None:
        """Run a kernel of csrc/index over tasks that PyTorch's threads share; return its error."""
        ...

    def launch(  # noqa: PLR0913, PLR0917  (as above)
        self,
        address: int,
        tensors: tuple[torch.Tensor, ...],
        sizes: tuple[int, ...],
        scalars: tuple[float, ...],
        tasks: int,
        scratch: int,
        /,
    ) -> str | None:
        """Launch a kernel of csrc/index/cuda; return what went wrong."""
        ...

    def order_entries(
        self, places: torch.Tensor, many: int, shape: tuple[int, ...], rows: int, /
    ) -> torch.Tensor:
        """Return the order of the entries of a scatter, as entry_order.h says."""
        ...

    def multiplies_halves(self) -> bool:
        """Return whether this processor multiplies matrices of bfloat16 into floats."""
        ...

    def sweep(
        self,
        program: tuple[int, ...],
        tensors: tuple[torch.Tensor, ...],
        scalars: tuple[float, ...],
        /,
    ) -> int | None:
        """Run a pass over blocks, whose rows PyTorch's threads share; return a kernel's error."""
        ...

    def saved(self, grad_fn: object, /) -> list[tuple[str, torch.Tensor]] | None:
        """Return what a node saved, by name; None if it is not a node of pullback's."""
        ...


@functools.cache
def load() -> Runtime:
    """Return the runtime, compiled first if it is new to this PyTorch and Python.

    Raises:
        PullbackError: PB201, no C++ compiler; PB202, it does not compile; PB311, no Python.h;
            PB704, no compiler, and the runtimes of packages are for other versions.
    """
    found = prebuilt.find_runtime(SOURCES, environment.current_environment().release)
    library = found.path if found else compile_runtime()
    return cast("Runtime", import_library("pullback_runtime", library))


def compile_runtime() -> Path:
    """Compile the runtime; if that is impossible, name the versions that packages brought."""
    try:
        return compilation.compile(plan(), announce=announce)
    except PullbackError as error:
        have = prebuilt.runtimes()
        if not have or error.finding.code not in CANNOT_COMPILE:
            raise
        raise NoRuntime.error(
            "no package brought pullback's C++ runtime for "
            f"{environment.current_environment().release}, and "
            "nothing compiles it here",
            have=", ".join(have),
            help="install one of these versions, or g++ 11 or newer; or build the package with "
            "--for and this Python",
        ) from error


def import_library(name: str, library: Path) -> ModuleType:
    """Return the Python module that a library defines.

    Raises:
        PullbackError: PB206, the loader refuses the library.
    """
    spec = importlib.util.spec_from_file_location(
        name, library, loader=ExtensionFileLoader(name, str(library))
    )
    assert spec
    assert spec.loader
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise compilation.not_loadable(library, str(error)) from error
    return module


def plan(of: Environment | None = None) -> BuildPlan:
    """Return the runtime's build plan for the running PyTorch and Python, or for others."""
    of = of or environment.current_environment()
    short = ((SOURCES, "pullback"), (of.root, "torch"), (of.headers, "python"))
    return BuildPlan(
        name="pullback-runtime",
        compiler=toolchain.find("c++"),
        units=tuple(
            TranslationUnit(
                f"{'_'.join(Path(file).name for file in half)}.cpp",
                "".join(f'#include "{SOURCES}/{file}.cpp"\n' for file in half),
            )
            for half in HALVES
        ),
        sources=tuple(sorted(path for path in SOURCES.rglob("*") if path.is_file())),
        # So messages of PyTorch's failed checks name no folder of this machine.
        flags=(*FLAGS, *include_flags(of), *(f"-ffile-prefix-map={a}={b}" for a, b in short)),
        link=link_flags(of),
        abi=of.abi,
    )


def include_flags(of: Environment | None = None) -> tuple[str, ...]:
    """Return the include flags for PyTorch's and Python's headers.

    Raises:
        PullbackError: PB311, no Python.h.
    """
    of = of or environment.current_environment()
    python = of.headers
    if not (python / "Python.h").exists():
        raise NoPythonHeaders.error(
            "PyTorch's headers need Python's, and Python.h is not installed",
            looked=python,
            help="install them, such as with: apt install python3-dev",
        )
    return ("-isystem", str(of.root / "include"), "-isystem", str(python))


def link_flags(of: Environment | None = None) -> tuple[str, ...]:
    """Return the flags for PyTorch's libraries, which the loading process has loaded already."""
    return (
        f"-L{(of or environment.current_environment()).root / 'lib'}",
        "-ltorch_python",
        "-ltorch_cpu",
        "-lc10",
    )


def abi() -> str:
    """Return the ABI that a library compiled against PyTorch has to match."""
    return environment.current_environment().abi


FLAGS = (
    "-std=c++20",
    # -O2 costs a second more than -O1 at first use and saves 5 % of each call.
    "-O2",
    # Without it PyTorch's headers declare every operator: two seconds.
    "-DAT_PER_OPERATOR_HEADERS",
    "-fPIC",
    "-fvisibility=hidden",
    "-pipe",
    "-shared",
)


@contextmanager
def announce(text: str) -> Generator[None]:
    """Show that something takes a while, on the terminal or, without one, as one line."""
    from rich.console import Console  # noqa: PLC0415  (only where there is something to show)

    console = Console(stderr=True)
    if console.is_terminal and sys.stderr.isatty():
        with console.status(text):
            yield
    else:
        sys.stderr.write(f"pullback: {text}\n")
        yield
