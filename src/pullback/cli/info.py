"""`pullback info`: what pullback found on this machine."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.text import Text

from pullback.cli.screen import screen, table
from pullback.diagnostic import PullbackError
from pullback.kernels import cache, toolchain
from pullback.kernels.toolchain import Compiler


def info() -> None:
    """Show versions, compilers used and refused, and the cache."""
    console = screen()
    rows = table("", "")
    rows.show_header = False
    for key, value in (*versions(), *compilers(), *cache_rows()):
        rows.add_row(Text(key, style="dim"), Text(value, overflow="fold"))
    console.print(rows)


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
        yield "gpu", "none that PyTorch can use; CUDA kernels can still be compiled by nvcc"


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


def cache_rows() -> Iterator[tuple[str, str]]:
    """Yield the cache folder, what is in it, and whether it has the runtime."""
    cache.folder()  # made, or a notice why not
    folders = cache.folders()
    libraries = [path for folder in folders for path in folder.glob("*/*.so")]
    files = (path for folder in folders for path in folder.glob("*/*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    for folder in folders:
        yield "cache", str(folder)
    yield "size", f"{size / 2**20:.1f} MiB in {len(libraries)} libraries"
    # "demo-add2-cpu-0123456789abcdef.so": the end is the content's hash.
    counts = Counter(path.stem.rpartition("-")[0] for path in libraries)
    for name, count in sorted(counts.items()):
        yield "", f"{name}, {count} versions" if count > 1 else name
    yield "runtime", runtime_state()


def runtime_state() -> str:
    """Return whether the runtime for this PyTorch is built."""
    from pullback.bind import runtime  # noqa: PLC0415  (it imports torch)

    try:
        library = cache.look_up(runtime.plan())
    except PullbackError as error:
        return f"cannot be built: {error.finding.message} [{error.finding.code}]"
    return str(library) if library else "not built yet; the first operator builds it, in seconds"
