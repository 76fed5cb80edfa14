"""`pb.build`: operators leave the machine on which they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pullback.bind import gpu
from pullback.bind.loops import compiled
from pullback.bind.operator import Operator
from pullback.deploy import definitions, index_loops, shipped, staging, target
from pullback.deploy.definitions import Definitions
from pullback.deploy.shipped import Shipped
from pullback.diagnostic import Rule, did_you_mean
from pullback.kernels import cache, glue
from pullback.kernels import compile as compilation
from pullback.kernels.plan import BuildPlan

UnknownWay = Rule("PB700", "unknown-way")
OptionUnused = Rule("PB714", "option-unused")

What = Operator | Iterable[Operator] | str | Path


@dataclass(frozen=True, kw_only=True)
class Order:
    """What `pb.build` is asked for; `ShippingWay.options` says what a way reads."""

    into: str | Path | None = None
    name: str | None = None
    version: str | None = None
    arch: str | Sequence[str] | None = None
    pythons: Sequence[str] = ()
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]] = ()

    @property
    def architectures(self) -> list[str] | None:
        """The GPUs, by name."""
        if self.arch is None:
            return None
        words = self.arch.split(",") if isinstance(self.arch, str) else self.arch
        return [word.strip() for word in words if word.strip()]

    @property
    def made_for(self) -> list[Mapping[str, int]]:
        """The sizes, by name, that loops are made for."""
        return [self.sizes] if isinstance(self.sizes, Mapping) else list(self.sizes)

    @property
    def given(self) -> list[str]:
        """The options that are given."""
        return [name for name, value in vars(self).items() if value not in (None, (), [], {})]


def build(  # noqa: PLR0913  (options, each by its name)
    operators: What,
    *,
    as_: str = "jit",
    into: str | Path | None = None,
    name: str | None = None,
    version: str | None = None,
    arch: str | Sequence[str] | None = None,
    pythons: Sequence[str] = (),
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]] = (),
) -> Path:
    """Build what runs operators elsewhere, from their definitions alone.

    Args:
        operators: some that are defined; or the path of the Python file or of the package folder
            that defines them.
        as_: "jit" compiles everything into the cache. "wheel" makes a wheel of the definitions and
            the compiled kernels: where it is installed, neither a compiler nor a source is needed.
            "setup" writes a setuptools project, to keep and to edit. "cmake" writes a CMake
            project and builds its library, which needs no Python.
        into: the folder to write into: for a wheel one that has nothing but wheels in it, "dist"
            by default; for a project one that is empty, "<name>-setup" or "<name>-cmake".
        name: of the package; by default that of the file.
        version: of the package; by default the file's `__version__`, else "0.1.0".
        arch: GPUs to compile CUDA for, "sm_80,sm_90"; by default the usual ones, if there is nvcc.
        pythons: interpreters with other versions of PyTorch or Python, for which the wheel brings
            pullback's C++ runtime as well.
        sizes: of small dimensions, {"d": 3} or several of these: operators in index notation get
            loops made for them too, besides those for any sizes.

    Returns:
        The wheel, the project's folder, the library of the CMake project, or the cache's folder.

    Raises:
        PullbackError: PB700, another `as_`; PB703 to PB729, what is asked for cannot be built;
            PB2xx, a kernel does not compile. Nothing is left half-written.
    """
    way = way_of(as_)
    order = Order(into=into, name=name, version=version, arch=arch, pythons=pythons, sizes=sizes)
    for option in order.given:
        if option not in way.options:
            readers = [word for word, other in WAYS.items() if option in other.options]
            raise OptionUnused.error(
                f"{option}= is given with as_='{as_}', which does not read it",
                read_by=", ".join(readers),
                help="leave it out",
            )
    return way.run(definitions_of(operators, with_text=way.with_text), order)


def definitions_of(operators: What, *, with_text: bool) -> Definitions:
    """Return what is to be built, and the file that defines it if its text travels."""
    if isinstance(operators, str | Path):
        return definitions.of_file(definitions.require_existing(Path(operators)))
    given = [operators] if isinstance(operators, Operator) else list(operators)
    return definitions.of_operators(given, with_text=with_text)


def jit(found: Definitions, order: Order) -> Path:
    """Compile everything into the cache, side by side."""
    plans = [plan for each in shipped.collect(found.operators) for plan in plans_of(each, order)]
    with ThreadPoolExecutor() as pool:
        for compiled in [pool.submit(compilation.compile, plan) for plan in plans]:
            compiled.result()
    return cache.folder()


def plans_of(each: Shipped, order: Order) -> list[BuildPlan]:
    """Return the kernels of an operator, as they are compiled on this machine.

    For a formula those for float32, with all gradients: others are compiled when they are called.
    """
    asked: list[str | None] = [gpu.architecture("cuda")]
    if order.architectures:
        asked = [*target.machine_code(order.architectures)]
    found: list[BuildPlan] = []
    for kernel in each.kernels:
        if kernel.device == "cpu":
            found.append(glue.plan_of(kernel.line, kernel.source, "cpu"))
        elif target.compiler():
            found += [glue.plan_of(kernel.line, kernel.source, "cuda", name) for name in asked]
    return [*found, *(compiled.plan_of(loop) for loop in each.loops(["float32"])[:1])]


def wheel(found: Definitions, order: Order) -> Path:
    """Make a wheel."""
    from pullback.deploy import wheel as wheels  # noqa: PLC0415  (each way when it is gone)

    travelling = shipped.collect(found.operators)
    index_loops.require_sizes(travelling, order.made_for)
    package = wheels.package_of(found, travelling, order.name, order.version)
    built_for = target.target(order.architectures, order.pythons, order.made_for)
    return wheels.build_wheel(package, built_for, Path(order.into or "dist"))


def setup(found: Definitions, order: Order) -> Path:
    """Write a setuptools project."""
    from pullback.deploy import project, wheel  # noqa: PLC0415

    travelling = shipped.collect(found.operators)
    index_loops.require_sizes(travelling, order.made_for)
    package = wheel.package_of(found, travelling, order.name, order.version)
    into = Path(order.into or f"{package.name}-setup")
    return project.write(package, order.architectures, order.made_for, into)


def cmake(found: Definitions, order: Order) -> Path:
    """Write a CMake project and build it."""
    from pullback.deploy.cmake.build import build_cmake  # noqa: PLC0415

    folder = Path(order.into or f"{found.path.stem}-cmake")
    travelling = shipped.collect(found.operators)
    index_loops.require_sizes(travelling, order.made_for)
    with staging.stage_folder(folder) as work:
        library = build_cmake(travelling, work, order.architectures, order.made_for)
        inside = library.relative_to(work)
    return folder / inside


@dataclass(frozen=True)
class ShippingWay:
    """One way to ship operators, the options that it reads, and whether the text travels."""

    run: Callable[[Definitions, Order], Path]
    options: tuple[str, ...]
    with_text: bool = False


WAYS = {
    "jit": ShippingWay(jit, ("arch",)),
    "wheel": ShippingWay(
        wheel, ("into", "name", "version", "arch", "pythons", "sizes"), with_text=True
    ),
    "setup": ShippingWay(setup, ("into", "name", "version", "arch", "sizes"), with_text=True),
    "cmake": ShippingWay(cmake, ("into", "arch", "sizes")),
}


def way_of(word: str) -> ShippingWay:
    """Return the way that is asked for.

    Raises:
        PullbackError: PB700, there is none of that name.
    """
    if word not in WAYS:
        raise UnknownWay.error(
            f"as_='{word}' is not a way to build operators",
            have=", ".join(WAYS),
            help=did_you_mean(word, WAYS) or "choose one of these",
        )
    return WAYS[word]
