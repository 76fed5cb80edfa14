"""`as_="setup"`: a setuptools project, which its author keeps and edits.

Its setup.py needs setuptools and a compiler, and neither pullback nor PyTorch: what pullback knows
is in generated/, the entry points of the kernels as text and the headers that they include.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from string import Template
from typing import Any

from pullback.bind import runtime
from pullback.bind.loops import gpu
from pullback.deploy import libraries, staging, target
from pullback.deploy.definitions import Definitions
from pullback.deploy.libraries import Job
from pullback.deploy.shipped import ShippedKernel
from pullback.deploy.staging import copy
from pullback.deploy.target import BuildTarget
from pullback.deploy.wheel import SOURCES, TEMPLATES, Package, write_package, write_project
from pullback.diagnostic import Rule
from pullback.kernels import prebuilt
from pullback.kernels.glue import CSRC
from pullback.kernels.plan import by_folder

SourceOutside = Rule("PB715", "source-outside")

GENERATED = "generated"
LISTED = "kernels.json"
# The folders of the headers that kernels include, and of those of formulas.
HEADERS = ("*.h", "formula/*.h", "index/*.h", "formula/cuda/*", "index/cuda/*")
ARCHITECTURES = re.compile(r"^ARCHITECTURES = .*$", re.MULTILINE)


def write(
    package: Package,
    architectures: Sequence[str] | None,
    sizes: Sequence[Mapping[str, int]],
    into: Path,
) -> Path:
    """Write a project, or the generated part of the one that the definitions are in.

    Args:
        package: what is in it.
        architectures: GPUs that are asked for; formulas have loops for them.
        sizes: that loops over indices are made for, besides those for any sizes.
        into: the folder; empty, or a project that this has written.

    Raises:
        PullbackError: PB705, PB706, the GPUs; PB707, the folder is not empty; PB715, a kernel is
            not in the folder of its definition.
    """
    built_for = target.target(architectures, sizes=sizes)
    kernels = list(rows(package, built_for))
    if is_project_of(into, package.definitions):
        renew(package, kernels, into)
        return into
    with staging.stage_folder(into) as work:
        write_sources(package, work / "src" / package.name)
        write_generated(package, kernels, work / GENERATED)
        write_project(package, work, data=[f"{prebuilt.KERNELS}/*", "py.typed"])
        text = (TEMPLATES / "setup.py").read_text(encoding="utf-8")
        if built_for.architectures:
            code = json.dumps(built_for.architectures)
            text = ARCHITECTURES.sub(f"ARCHITECTURES = {code}", text)
        (work / "setup.py").write_text(text, encoding="utf-8")
        for name, template in (("README.md", "readme.txt"), ("MANIFEST.in", "manifest.txt")):
            text = Template((TEMPLATES / template).read_text(encoding="utf-8"))
            (work / name).write_text(text.substitute(name=package.name), encoding="utf-8")
        (work / ".gitignore").write_text("build/\ndist/\n*.egg-info/\n*.so\n", encoding="utf-8")
    return into


def is_project_of(folder: Path, definitions: Definitions) -> bool:
    """Tell whether a folder is a project with these definitions in it."""
    own = (folder / GENERATED / LISTED).is_file()
    return own and definitions.path.is_relative_to(folder.resolve() / "src")


def renew(package: Package, kernels: list[dict[str, Any]], project: Path) -> None:
    """Write a project's generated part anew; the old one stays until the new one is whole."""
    old = project / GENERATED
    with staging.stage_beside(old) as work:
        write_generated(package, kernels, work / GENERATED)
        old.rename(work / "old")
        (work / GENERATED).rename(old)


def write_sources(package: Package, folder: Path) -> None:
    """Write the author's files: definitions, kernels and their headers."""
    write_package(package, folder)
    root = package.definitions.folder
    files = {path for each in package.shipped for k in each.kernels for path in k.files}
    if package.definitions.is_package:
        files |= {
            path for path in root.rglob("*") if path.suffix in SOURCES and path.suffix != ".so"
        }
    for path in sorted(files):
        copy(path, folder / path.resolve().relative_to(root))


def write_generated(package: Package, kernels: list[dict[str, Any]], folder: Path) -> None:
    """Write the entry points and the headers."""
    for pattern in HEADERS:
        for header in CSRC.glob(pattern):
            copy(header, folder / "pullback" / header.relative_to(CSRC))
    for kernel in kernels:
        (folder / kernel["unit"]).write_text(kernel.pop("text"), encoding="utf-8")
    listed = {
        "package": package.name,
        "manifest": prebuilt.VERSION,
        "again": f"pullback build src/{package.name} --as setup --into .",
        "kernels": kernels,
    }
    (folder / LISTED).write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


def rows(package: Package, built_for: BuildTarget) -> Iterator[dict[str, Any]]:
    """Yield what setup.py reads about each library, and the text of its translation unit."""
    root = package.definitions.folder
    # The levels of the processor are setup.py's own.
    once = replace(built_for, levels=built_for.levels[:1])
    for each in package.shipped:
        for kernel in each.kernels:
            yield row_of_kernel(kernel, root)
    for each, dtypes in libraries.formulas_ahead(package.shipped):
        for job in libraries.jobs_of_formula(each, dtypes, once):
            yield row_of_loops(job)


def row_of_loops(job: Job) -> dict[str, Any]:
    """Return what setup.py reads about loops."""
    (unit,) = job.plan.units
    cuda = unit.file.endswith(".cu")
    return {
        "kind": "cuda" if cuda else "formula",
        "unit": f"{job.plan.name}.{'cu' if cuda else 'cpp'}",
        "text": unit.text.replace(f'"{CSRC}/', '"pullback/'),
        "flags": [gpu.NOT_CONTRACTED] if cuda else [],
        "folders": [],
        "sources": {},
        "entries": [common_entry(entry) for entry in job.entries],
    }


def row_of_kernel(kernel: ShippedKernel, root: Path) -> dict[str, Any]:
    """Return what setup.py reads about an author's kernel; folders become those of the project."""
    require_inside(kernel, root)
    folders = [folder for folder in kernel.folders if folder.resolve().is_relative_to(root)]
    flags = [
        word
        for words, folder in by_folder(kernel.source.flags)
        if folder not in folders and words[0] not in ("-march=native", "-mtune=native")
        for word in words
    ]
    line, cuda = kernel.line, kernel.device == "cuda"
    return {
        "kind": "cuda" if cuda else "c++",
        "unit": f"{line.namespace}-{line.name}-{kernel.device}.{'cu' if cuda else 'cpp'}",
        "text": kernel.moved(kernel.file and Path(path_within(kernel.file, root))),
        "flags": flags,
        "folders": [path_within(folder, root) for folder in folders],
        "sources": {
            os.path.relpath(path, kernel.source.folder): path_within(path, root)
            for path in kernel.files
        },
        "entries": [common_entry(libraries.entry_of(kernel))],
    }


def common_entry(entry: prebuilt.PrebuiltLibrary) -> dict[str, Any]:
    """Return the part of an entry that does not depend on how the library is compiled."""
    return {key: asdict(entry)[key] for key in ("identity", "operator", "symbol", "sizes")}


def path_within(path: Path, root: Path) -> str:
    """Return a path from the root of the package."""
    return str(path.resolve().relative_to(root))


def require_inside(kernel: ShippedKernel, root: Path) -> None:
    """Stop at a file that the project would have no place for.

    Raises:
        PullbackError: PB715.
    """
    for path in kernel.files:
        if not path.is_file():
            raise runtime.compilation.SourceMissing.error(
                f"{kernel.line.qualname}: {path.name} is not there", at=path
            )
        if not path.resolve().is_relative_to(root):
            raise SourceOutside.error(
                f"{kernel.line.qualname}: {path.name} is not in the folder of its definition",
                at=path,
                folder=root,
                help="move it there; a project has all that its author edits in one folder",
            )
