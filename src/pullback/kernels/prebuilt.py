"""Libraries that were compiled elsewhere: which one computes what is asked for.

A package that was built from definitions brings a folder of libraries and a manifest, and says so
by `add`. A library is found by its identity: a readable text of what it computes, which names
neither the compiler nor a folder. So a definition that was changed since finds none.
"""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pullback.define.line import Line
from pullback.define.source import Source
from pullback.diagnostic import Rule
from pullback.kernels import cache, identity, processor
from pullback.kernels.glue import KERNEL_ABI, Device
from pullback.kernels.loops.pointwise import Loop

PrebuiltDamaged = Rule("PB701", "prebuilt-damaged")
OtherDefinition = Rule("PB702", "other-definition")

# The folder of a package in which they are.
KERNELS = "kernels"
MANIFEST = "manifest.json"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PrebuiltLibrary:
    """One entry of a manifest.

    Attributes:
        identity: what is computed.
        operator: the one that it belongs to, for messages; the runtime belongs to none.
        file: the library, beside the manifest.
        symbol: its entry point.
        sha256: of the file.
        level: the instructions that the processor has to have.
        architectures: GPUs that it has code for, "sm_80"; "compute_90" is code for later ones.
        sources: the author's files that it was compiled from, relative to the folder of the
            definition, each with its SHA-256: where they are there, they have to be the same.
        sizes: that loops over indices are made for; the others may be any.
    """

    identity: str
    operator: str
    file: str
    symbol: str
    sha256: str
    level: str = processor.BASELINE
    architectures: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def runs_on(self, architecture: str | None) -> bool:
        """Tell whether the processor, or a GPU such as "sm_86", can run it."""
        if self.level not in processor.levels():
            return False
        return architecture is None or processor.covers(self.architectures, architecture)


@dataclass(frozen=True, kw_only=True)
class FoundLibrary:
    """A library that computes what was asked for."""

    path: Path
    symbol: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a package says about its libraries.

    Attributes:
        libraries: all of them.
        again: the command that compiles them anew.
    """

    libraries: tuple[PrebuiltLibrary, ...]
    again: str = ""

    @cached_property
    def by_identity(self) -> dict[str, list[PrebuiltLibrary]]:
        """The libraries by what they compute."""
        found: dict[str, list[PrebuiltLibrary]] = {}
        for library in self.libraries:
            found.setdefault(library.identity, []).append(library)
        return found


_folders: dict[Path, Manifest] = {}
_lock = threading.Lock()


def add(folder: Path | str) -> None:
    """Let a folder's libraries be found; a package calls this before its definitions.

    Without the folder nothing is compiled yet: a package in its author's tree.

    Raises:
        PullbackError: PB701, its manifest cannot be read.
    """
    path = Path(folder).absolute()
    if path.is_dir():
        manifest = read(path)
        with _lock:
            _folders[path] = manifest


def find_manifests(below: Path | None = None) -> list[Manifest]:
    """Return all manifests; or those that a definition in a folder belongs to."""
    with _lock:
        return [
            manifest
            for where, manifest in _folders.items()
            if below is None or below.is_relative_to(where.parent)
        ]


def find_libraries(below: Path | None = None) -> list[PrebuiltLibrary]:
    """Return what packages brought; or only those that a definition in a folder belongs to."""
    return [library for manifest in find_manifests(below) for library in manifest.libraries]


def read(folder: Path) -> Manifest:
    """Return what a folder's manifest says; nothing if it is for another kind of processor."""
    try:
        manifest: Any = json.loads((folder / MANIFEST).read_bytes())
        if manifest["manifest"] != VERSION:
            raise ValueError(f"it has version {manifest['manifest']}, but only {VERSION} is known")
        rows = manifest["libraries"] if manifest["machine"] == platform.machine() else []
        libraries = (
            replace(PrebuiltLibrary(**row), architectures=tuple(row["architectures"]))
            for row in rows
        )
        return Manifest(libraries=tuple(libraries), again=str(manifest["again"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PrebuiltDamaged.error(
            f"the list of compiled kernels in {folder} cannot be read",
            reason=f"{type(error).__name__}: {error}",
            help="install the package anew, or a pullback as new as the one it was built with",
        ) from error


def write(folder: Path, libraries: Iterable[PrebuiltLibrary], again: str) -> None:
    """Write a folder's manifest; `again` is the command that compiles the libraries anew."""
    manifest = {
        "manifest": VERSION,
        "machine": platform.machine(),
        "again": again,
        "libraries": [asdict(library) for library in libraries],
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def find_kernel(
    line: Line, source: Source, device: Device, architecture: str | None
) -> FoundLibrary | None:
    """Return the compiled kernel of an operator, if a package brought it.

    Args:
        line: the operator.
        source: its kernel, whose file need not exist.
        device: where it runs.
        architecture: of the GPU.

    Raises:
        PullbackError: PB701, the library is damaged; PB702, the package that defines the operator
            brought one of another definition, and not the source.
    """
    wanted = identity.of_kernel(line, source, device)
    if found := find(wanted, architecture=architecture, folder=Path(source.folder)):
        return found
    require_source(line, source, device, wanted, architecture)
    return None


def find_loop(loop: Loop, device: Device, architecture: str | None = None) -> FoundLibrary | None:
    """Return a formula's compiled loop, if a package brought it."""
    return find(identity.of_loop(loop, device), architecture=architecture)


def find_sizes(sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the sizes that packages' loops over indices are made for, as far as a call has them.

    Args:
        sizes: of the call, by name.

    Returns:
        The most special ones first.
    """
    every = {tuple(library.sizes.items()) for library in find_libraries()}
    return sorted(
        (dict(made) for made in every if all(sizes.get(name) == n for name, n in made)),
        key=len,
        reverse=True,
    )


def find_runtime(sources: Path, abi: str) -> FoundLibrary | None:
    """Return the compiled C++ runtime, if a package brought that of this PyTorch and Python."""
    return find(identity.of_runtime(sources, abi)) if _folders else None


def find(
    wanted: str, *, architecture: str | None = None, folder: Path | None = None
) -> FoundLibrary | None:
    """Return the most capable library of an identity that runs here.

    Args:
        wanted: the identity.
        architecture: of the GPU, such as "sm_90"; None on the CPU.
        folder: of the definition; None if any package may bring it.

    Raises:
        PullbackError: PB701, it is not the one that was built.
    """
    with _lock:
        folders = dict(_folders)
    able = [
        (processor.levels().index(library.level), where, library)
        for where, manifest in folders.items()
        for library in manifest.by_identity.get(wanted, ())
        if library.runs_on(architecture) and (folder is None or is_of(library, folder))
    ]
    if not able:
        return None
    _, where, library = max(able, key=lambda each: each[0])
    return require_sound(where, library)


def require_sound(folder: Path, library: PrebuiltLibrary) -> FoundLibrary:
    """Return a library, or stop if it is not whole and untouched."""
    path = folder / Path(library.file).name
    if cache.digest(path) != library.sha256:
        raise PrebuiltDamaged.error(
            f"the compiled kernel of {library.operator} is not the one that was built",
            at=path,
            help="install the package anew",
        )
    return FoundLibrary(path=path, symbol=library.symbol)


def is_of(library: PrebuiltLibrary, folder: Path) -> bool:
    """Tell whether the author's files, where they exist, are those that were compiled.

    An installed package has none. Where one is developed they may have been edited since.
    """
    present = [name for name in library.sources if (folder / name).is_file()]
    return all(cache.digest(folder / name) == library.sources[name] for name in present)


def require_source(
    line: Line, source: Source, device: Device, wanted: str, architecture: str | None
) -> None:
    """Stop where nothing can be compiled, because the package brought no source."""
    own = of_operator(line, source, device)
    if not own or is_there(source):
        return
    have = {arch for library in own if library.identity == wanted for arch in library.architectures}
    if have:
        raise OtherDefinition.error(
            f"the package has no code of {line.qualname} for this GPU",
            gpu=architecture,
            have=", ".join(sorted(have)),
            help=f"build it again with --arch {','.join(sorted({*have, architecture or ''}))}",
        )
    raise OtherDefinition.error(
        f"{line.qualname} is not what the package's library was compiled from",
        defined=wanted,
        compiled=own[0].identity,
        help="the kernel's source is not here; where it is, build the package again: "
        + next(manifest.again for manifest in find_manifests(Path(source.folder))),
    )


def of_operator(line: Line, source: Source, device: Device | None = None) -> list[PrebuiltLibrary]:
    """Return what the package that defines an operator brought for it, on one device or any."""
    return [
        library
        for library in find_libraries(Path(source.folder))
        if library.operator == line.qualname
        and (device is None or library.identity.startswith(f"{KERNEL_ABI} {device} |"))
    ]


def is_left_out(line: Line, source: Source, device: Device) -> bool:
    """Tell whether the package that defines an operator was built for other devices only."""
    return not of_operator(line, source, device) and bool(of_operator(line, source))


def is_there(source: Source) -> bool:
    """Tell whether a kernel's code is there to be compiled."""
    return source.file is None or (Path(source.folder) / source.file).is_file()


def runtimes() -> list[str]:
    """Return the PyTorch and Python versions for which packages brought the runtime."""
    every = (library for library in find_libraries() if not library.operator)
    return sorted({library.identity.rpartition(" | ")[2] for library in every})


def has_index_loops(device: Device) -> bool:
    """Tell whether a package brought loops over indices."""
    part = f"{identity.INDEX_ABI} {device}"
    return any(library.identity.startswith(part) for library in find_libraries())


def hash_index_loops() -> list[str]:
    """Return the hashes of all packages' libraries of loops over indices."""
    every = (lib for lib in find_libraries() if lib.identity.startswith(identity.INDEX_ABI))
    return sorted({library.sha256 for library in every})


def has_loops(line: Line, device: Device = "cpu") -> bool:
    """Tell whether a package brought compiled loops of this formula."""
    part = f"{identity.FORMULA_ABI} {device} | {identity.formula_of(line)} | "
    return any(library.identity.startswith(part) for library in find_libraries())
