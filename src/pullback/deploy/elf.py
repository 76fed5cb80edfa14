"""What a shared library says about itself: symbols, libraries, versions, folders, GPU code."""

from __future__ import annotations

import importlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback.diagnostic import Rule

NoReader = Rule("PB716", "no-elf-reader")
NotALibrary = Rule("PB717", "not-a-library")

# Headers in the section of GPU code: of a bundle, and of each piece in it.
BUNDLE, BUNDLE_MAGIC = struct.Struct("<IHHQ"), 0xBA55ED50
PIECE = struct.Struct("<HHIQIIHHI")
PTX, CUBIN = 1, 2
# A folder and a file in it, as a text that ends with a zero byte.
PATHS = re.compile(rb"(?<=\0)/(?:[\w.+@-]+/){2,}[\w.+@-]+")
# pyelftools' names for processors -> those in platform tags.
MACHINES = {"x64": "x86_64", "AArch64": "aarch64"}
# Folders that every system has.
COMMON = (b"/usr/", b"/lib", b"/proc/", b"/sys/", b"/dev/", b"/etc/")


@dataclass(frozen=True, kw_only=True)
class Binary:
    """One shared library.

    Attributes:
        needed: the libraries that it is linked to.
        missing: names that others have to define.
        defined: names that it defines for others.
        versions: of the symbols of others, such as "GLIBC_2.34".
        search: folders in which it looks for libraries: RPATH and RUNPATH.
        folders: of the machine on which it was compiled, in its texts.
        gpus: architectures that it has code for.
        machine: the processor.
    """

    needed: tuple[str, ...]
    missing: tuple[str, ...]
    defined: tuple[str, ...]
    versions: tuple[str, ...]
    search: tuple[str, ...]
    folders: tuple[str, ...]
    gpus: tuple[str, ...]
    machine: str

    @property
    def glibc(self) -> tuple[int, ...]:
        """The oldest glibc that has everything that it needs."""
        texts = (v.removeprefix("GLIBC_") for v in self.versions if v.startswith("GLIBC_2"))
        return max((tuple(map(int, text.split("."))) for text in texts), default=())


def read(path: Path) -> Binary:
    """Return what a library says about itself.

    Raises:
        PullbackError: PB716, pyelftools is not installed; PB717, it is not a Linux library.
    """
    try:
        reader: Any = importlib.import_module("elftools.elf.elffile")
    except ImportError as error:
        raise NoReader.error(
            "pyelftools, which reads libraries, is not installed",
            help="pip install 'pullback[deploy]'",
        ) from error
    try:
        with path.open("rb") as file:
            return read_elf(reader.ELFFile(file))
    except (importlib.import_module("elftools.common.exceptions").ELFError, OSError) as error:
        raise NotALibrary.error(f"{path.name} is not a Linux library", at=path) from error


def read_elf(elf: Any) -> Binary:  # noqa: ANN401  (pyelftools has no types)
    """Return what an open library says."""
    dynamic = elf.get_section_by_name(".dynamic")
    tags = list(dynamic.iter_tags()) if dynamic else []
    symbols = list(elf.get_section_by_name(".dynsym").iter_symbols()) if dynamic else []
    missing = [s.name for s in symbols if s.name and s["st_shndx"] == "SHN_UNDEF"]
    versions = elf.get_section_by_name(".gnu.version_r")
    texts = elf.get_section_by_name(".rodata")
    code = elf.get_section_by_name(".nv_fatbin")
    search = [getattr(tag, "rpath", None) or getattr(tag, "runpath", None) for tag in tags]
    machine = str(elf.get_machine_arch())
    return Binary(
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        missing=tuple(missing),
        defined=tuple(s.name for s in symbols if s.name and s["st_shndx"] != "SHN_UNDEF"),
        versions=tuple(
            each.name
            for _, needs in (versions.iter_versions() if versions else ())
            for each in needs
        ),
        search=tuple(text for text in search if text),
        folders=tuple(folders_in(b"\0" + texts.data())) if texts else (),
        gpus=tuple(dict.fromkeys(architectures(code.data()))) if code else (),
        machine=MACHINES.get(machine, machine),
    )


def folders_in(texts: bytes) -> Iterator[str]:
    """Yield the paths in a section that belong to one machine."""
    paths = dict.fromkeys(PATHS.findall(texts))
    yield from (path.decode() for path in paths if not path.startswith(COMMON))


def architectures(section: bytes) -> Iterator[str]:
    """Yield the architectures in a section of GPU code, by nvcc's names."""
    at = section.find(BUNDLE_MAGIC.to_bytes(4, "little"))
    while at >= 0:
        _, _, header, size = BUNDLE.unpack_from(section, at)
        piece, end = at + header, at + header + size
        while piece + PIECE.size <= end:
            kind, _, own, length, *_, number = PIECE.unpack_from(section, piece)
            if not own or kind not in (PTX, CUBIN):
                break
            yield f"{'compute' if kind == PTX else 'sm'}_{number}"
            piece += own + length
        at = section.find(BUNDLE_MAGIC.to_bytes(4, "little"), end)
