"""`pullback build --check`: on which systems something that was built will load."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pullback.deploy import elf
from pullback.deploy.elf import Binary, NotALibrary
from pullback.deploy.target import USUAL
from pullback.diagnostic import Finding, Rule
from pullback.kernels import prebuilt, processor
from pullback.kernels.prebuilt import PrebuiltLibrary

SearchPath = Rule("PB718", "search-path")
FolderInside = Rule("PB719", "folder-inside")
ArchitectureMissing = Rule("PB720", "architecture-missing")
OtherThanListed = Rule("PB721", "other-than-listed")

# C++ names of PyTorch, which change from one version to the next; the C functions of its stable
# interface, `aoti_torch_*` and `torch_*`, are not mangled.
OF_TORCH = re.compile(r"_Z\w*?(?:3c10|2at|5torch|8caffe2)|THP\w")
OF_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
# Libraries that are there: the system's, those of g++, and PyTorch's in a process that imports it.
EVERYWHERE = re.compile(
    r"(libc|libm|libmvec|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux[\w-]*)\.so"
    r"|lib(torch|c10)\w*\.so"
)
OF_SLEEF = re.compile(r"Sleef_\w+")


@dataclass(frozen=True, kw_only=True)
class LibraryRow:
    """One library: where it loads."""

    library: str
    torch: str
    python: str
    gpu: str
    system: str


@dataclass
class Audit:
    """What an audit found.

    Attributes:
        rows: one for each library.
        findings: what will not work elsewhere, or not as it seems.
        runtimes: the PyTorch and Python versions for which a package brings the C++ runtime; None
            for libraries that need none.
    """

    rows: list[LibraryRow] = field(default_factory=list[LibraryRow])
    findings: list[Finding] = field(default_factory=list[Finding])
    runtimes: list[str] | None = None

    @property
    def summary(self) -> str | None:
        """Where a package runs, in a sentence."""
        if self.runtimes is None:
            return None
        if not self.runtimes:
            return "without pullback's C++ runtime: the first use compiles it, with g++ 11 or newer"
        versions = ", ".join(self.runtimes)
        return f"without a compiler: {versions}; with g++ 11 or newer: every PyTorch of pullback's"


def audit(path: Path) -> Audit:
    """Examine a wheel, a library or a folder of libraries.

    Raises:
        PullbackError: PB716, pyelftools is not installed; PB717, there is no library.
    """
    if path.suffix != ".whl":
        return audit_libraries(path)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)
        except (zipfile.BadZipFile, OSError) as error:
            raise NotALibrary.error(f"{path.name} is not a wheel", reason=error) from error
        return audit_libraries(Path(folder), path)


def audit_libraries(where: Path, shown: Path | None = None) -> Audit:
    """Examine a library or a folder; `shown` is what it was unpacked from."""
    files = [where] if where.is_file() else sorted(where.rglob("*.so"))
    if not files:
        raise NotALibrary.error(
            f"{(shown or where).name} has no library in it",
            help="give a wheel, a library (.so), or a folder with some",
        )
    result = Audit()
    gpus: dict[str, tuple[str, ...]] = {}
    for path in files:
        binary = elf.read(path)
        listed = entries_of(path)
        result.rows.append(row_of(path, binary, listed))
        result.findings += findings_of(path, binary, listed)
        if binary.gpus:
            gpus[path.name] = binary.gpus
        if listed:
            own = [row.identity.rpartition(" | ")[2] for row in listed if not row.operator]
            result.runtimes = [*(result.runtimes or []), *own]
    result.findings += find_uncovered(gpus)
    return result


def entries_of(path: Path) -> list[PrebuiltLibrary]:
    """Return what the manifest beside a library says about it."""
    if not (path.parent / prebuilt.MANIFEST).is_file():
        return []
    manifest = prebuilt.read(path.parent)
    return [library for library in manifest.libraries if library.file == path.name]


def row_of(path: Path, binary: Binary, listed: list[PrebuiltLibrary]) -> LibraryRow:
    """Return on which versions a library loads."""
    of_torch = [name for name in binary.missing if OF_TORCH.match(name)]
    of_python = [name for name in binary.missing if OF_PYTHON.fullmatch(name)]
    versions = re.search(r"torch (\S+) (\S+)$", listed[0].identity) if listed else None
    tied = versions[1] if versions else "the one it was compiled with"
    sleef = any(OF_SLEEF.fullmatch(name) for name in binary.missing)
    any_torch = "any: its vector functions" if sleef else "any"
    soabi = versions[2] if versions else "the one it was compiled with"
    level = f" {listed[0].level}" if listed and listed[0].level != processor.BASELINE else ""
    oldest = ".".join(map(str, binary.glibc))
    glibc = f"glibc {oldest} or newer" if oldest else "any glibc"
    others = [name for name in binary.needed if not EVERYWHERE.match(name)]
    beside = f", with {', '.join(others)}" if others else ""
    return LibraryRow(
        library=path.name,
        torch=f"{tied}: {len(of_torch)} C++ symbols" if of_torch else any_torch,
        python=f"{soabi}: {len(of_python)} symbols" if of_python else "any",
        gpu=", ".join(binary.gpus) or "none needed",
        system=f"{binary.machine}{level}, {glibc}{beside}",
    )


def findings_of(path: Path, binary: Binary, listed: list[PrebuiltLibrary]) -> Iterator[Finding]:
    """Yield what is wrong with a library."""
    # What begins with $ORIGIN is beside the library, wherever that is.
    if search := [folder for folder in binary.search if not folder.startswith("$ORIGIN")]:
        yield SearchPath.error(
            f"{path.name} looks for libraries in folders of its own",
            folders=", ".join(search),
            help="link without -rpath: PyTorch has loaded its libraries before",
        ).finding
    if binary.folders:
        yield FolderInside.error(
            f"{path.name} names folders of the machine on which it was compiled",
            folders=", ".join(binary.folders[:4]),
            help="compile with -ffile-prefix-map, or read no file by an absolute path",
        ).finding
    claimed = {name for library in listed for name in library.architectures}
    if listed and (missing := claimed - set(map(strip_variant, binary.gpus)) - set(binary.gpus)):
        lost = [name for name in sorted(missing) if strip_variant(name) not in binary.gpus]
        if lost:
            yield OtherThanListed.error(
                f"{path.name} has no code for GPUs that its package lists",
                missing=", ".join(lost),
                help="build the package again",
            ).finding


def find_uncovered(gpus: dict[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Yield the usual GPUs for which there is no code, once for libraries that have the same.

    Args:
        gpus: what each library has code for, by its name.
    """
    for have in dict.fromkeys(gpus.values()):
        own = [name for name, code in gpus.items() if code == have]
        missing = [name for name in USUAL if not processor.covers(have, name)]
        if missing:
            yield ArchitectureMissing.error(
                f"there is no code for some GPUs in {own[0]}"
                + (f" and {len(own) - 1} more" if len(own) > 1 else ""),
                missing=", ".join(missing),
                have=", ".join(have),
                help=f"if they are meant: --arch {','.join([*missing, *have])}",
            ).finding


def strip_variant(architecture: str) -> str:
    """Return an architecture without the letter of its variant, as libraries record it."""
    return architecture.rstrip("af")
