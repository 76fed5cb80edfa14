"""What is in the cache, and what in it is not as it was stored."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pullback.kernels import cache
from pullback.kernels.cache_folder import folders, mistrust


@dataclass(frozen=True, kw_only=True)
class Contents:
    """An entry of the cache.

    Attributes:
        path: its folder.
        libraries: the names of its libraries, without the hash of their content.
        bytes: of all its files.
    """

    path: Path
    libraries: tuple[str, ...]
    bytes: int


def survey() -> list[Contents]:
    """Return all entries of the folders that are read."""
    # A folder that stands in for one that cannot be used goes when it is emptied.
    found = (path for root in folders() if root.is_dir() for path in sorted(root.iterdir()))
    return [look_at(path) for path in found if cache.ENTRY.fullmatch(path.name)]


def look_at(entry: Path) -> Contents:
    """Return what is in an entry."""
    files = [path for path in entry.rglob("*") if path.is_file() and not path.is_symlink()]
    return Contents(
        path=entry,
        # "demo-add2-cpu-0123456789abcdef.so": the end is the content's hash.
        libraries=tuple(path.stem.rpartition("-")[0] for path in sorted(entry.glob("*.so"))),
        bytes=sum(path.stat().st_size for path in files),
    )


def find_faults(entry: Path) -> Iterator[str]:
    """Yield why what is in an entry is not loaded; then it is compiled again.

    Each library is read whole, and compared with the hash that was stored with it.
    """
    if reason := mistrust(entry, stat.S_ISDIR, link=False):
        yield reason
        return
    if not (entry / cache.MANIFEST).exists():
        return  # a mark, or a header
    if reason := mistrust(entry / cache.MANIFEST, stat.S_ISREG, link=False):
        yield f"{cache.MANIFEST} {reason}"
        return
    variants = cache.read_manifest(entry)
    if not variants:
        yield f"{cache.MANIFEST} is damaged"
    for variant in variants:
        path = entry / variant.library
        if reason := mistrust(path, stat.S_ISREG, link=False):
            yield f"{variant.library} {reason}"
        elif not variant.sound(entry):
            yield f"{variant.library} is not what was stored: its SHA-256 is another"
