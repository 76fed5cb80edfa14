"""`as_="wheel"`: the definitions and their compiled kernels, for machines without a compiler."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template

from pullback.bind.notice import notice
from pullback.deploy import libraries, staging
from pullback.deploy.definitions import Definitions, require_name
from pullback.deploy.shipped import Shipped
from pullback.deploy.target import BuildTarget
from pullback.diagnostic import Rule
from pullback.kernels import prebuilt, toolchain

NoKernelToShip = Rule("PB711", "no-kernel-to-ship")
PackingFailed = Rule("PB712", "packing-failed")
NotImportable = Rule("PB713", "not-importable")

TEMPLATES = Path(__file__).parent / "templates"
TORCH = "torch>=2.11,<2.16"
# Files that a machine does not need to run a package.
SOURCES = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inl"),
    *(".o", ".so"),
)
ABOUT = """from pathlib import Path

from pullback.kernels import prebuilt

prebuilt.add(Path(__file__).parent / "kernels")
"""
# Libraries that a wheel need not bring: pip installs PyTorch with it.
OF_TORCH = ("libtorch", "libc10")


class ShippingNotice(UserWarning):
    """Something is left out of what is built, or less is known about it than could be."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package to build.

    Attributes:
        name: by which it is imported.
        version: as text.
        definitions: what is in it.
        shipped: the operators, and those that their derivatives call.
    """

    name: str
    version: str
    definitions: Definitions
    shipped: Sequence[Shipped]

    @property
    def description(self) -> str:
        """The operators, in a line."""
        names = ", ".join(operator.line.qualname for operator in self.definitions.operators)
        return f"Operators for PyTorch: {names}"


def package_of(
    definitions: Definitions, shipped: Sequence[Shipped], name: str | None, version: str | None
) -> Package:
    """Return a package, named as its file or folder if no name is given.

    Raises:
        PullbackError: PB710, it cannot have that name.
    """
    chosen = name or definitions.path.stem
    require_name(chosen)
    return Package(
        name=chosen,
        version=version or definitions.version,
        definitions=definitions,
        shipped=shipped,
    )


def build_wheel(package: Package, target: BuildTarget, into: Path) -> Path:
    """Make a wheel: compile, pack, and import it once without a compiler; return its path.

    Args:
        package: what is packed.
        target: what it is compiled for.
        into: the folder that it is put into, beside other wheels.

    Raises:
        PullbackError: PB2xx, a kernel does not compile; PB707, the folder has something else than
            wheels in it; PB711, an operator has no kernel that could be compiled; PB712, PB713.
    """
    require_kernels(package.shipped, target)
    staging.require_only_wheels(into)
    with staging.stage_beside(into / "wheel") as work:
        write_package(package, work / "src" / package.name)
        kernels = work / "src" / package.name / prebuilt.KERNELS
        kernels.mkdir()
        again = f"pullback build {package.definitions.path.name} --as wheel"
        libraries.build(package.shipped, target, kernels, again=again)
        write_project(package, work, data=["**/*"])
        shutil.copyfile(TEMPLATES / "packed.py", work / "setup.py")
        require_importable(package, work / "src")
        wheel = tag_wheel(work)
        return wheel.replace(into / wheel.name)


def require_kernels(shipped: Sequence[Shipped], target: BuildTarget) -> None:
    """Stop at an operator that would be shipped without a kernel; say what is left out.

    Raises:
        PullbackError: PB711.
    """
    left: list[str] = []
    for each in shipped:
        devices = {kernel.device for kernel in each.kernels}
        if "cuda" in devices and not target.architectures:
            left.append(each.line.qualname)
            if "cpu" not in devices:
                raise NoKernelToShip.error(
                    f"{each.line.qualname} has a kernel in CUDA alone, and there is no nvcc",
                    help="install the CUDA toolkit, or give it a kernel in C++ with cpu=",
                )
        elif devices == {"cuda"}:
            text = f"{each.line.qualname} has no kernel in C++: what is built runs on GPUs alone"
            notice(text, ShippingNotice)
    if left:
        text = f"for the CPU only, since there is no nvcc: {', '.join(left)}"
        notice(text, ShippingNotice)


def write_package(package: Package, folder: Path) -> None:
    """Write the Python files of a package: the author's, and one by which its kernels are found."""
    definitions = package.definitions
    if not definitions.is_package:
        folder.mkdir(parents=True)
        module = definitions.path.stem
        shutil.copyfile(definitions.path, folder / f"{module}.py")
        text = f'"""{package.description}."""\n\n{ABOUT}\nfrom .{module} import *\n\n'
        text += f'__version__ = "{package.version}"\n'
        (folder / "__init__.py").write_text(text, encoding="utf-8")
        return
    shutil.copytree(definitions.path, folder, ignore=list_left_out)
    (folder / "_prebuilt.py").write_text(
        f'"""Where the compiled kernels are."""\n\n{ABOUT}', encoding="utf-8"
    )
    first = folder / "__init__.py"
    text = insert_import(first.read_text(encoding="utf-8"), "from . import _prebuilt as _prebuilt")
    first.write_text(text, encoding="utf-8")


def list_left_out(folder: str, names: list[str]) -> list[str]:
    """Return the files of a folder not to pack: kernels' sources, leftovers of Python and tools."""
    return [
        name
        for name in names
        if name in ("__pycache__", prebuilt.KERNELS)
        or name.startswith(".")
        or Path(name).suffix in SOURCES
    ]


def insert_import(text: str, line: str) -> str:
    """Return a module's text with an import before all others, except those from `__future__`."""
    after = 0
    for node in ast.parse(text).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not (is_docstring or is_future):
            break
        after = node.end_lineno or after
    lines = text.splitlines()
    return "\n".join([*lines[:after], line, *lines[after:]]) + "\n"


def write_project(package: Package, folder: Path, *, data: Sequence[str]) -> None:
    """Write pyproject.toml.

    Args:
        package: its name and version.
        folder: of the project.
        data: patterns of the files that are packed beside Python's.
    """
    requirements = [pullback_as_here(), TORCH]
    text = Template((TEMPLATES / "pyproject.txt").read_text(encoding="utf-8")).substitute(
        name=package.name,
        version=package.version,
        description=package.description.replace('"', "'"),
        dependencies=", ".join(json.dumps(each) for each in requirements),
        data=", ".join(json.dumps(each) for each in data),
    )
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def pullback_as_here() -> str:
    """Return the requirement for the pullback whose runtime was compiled."""
    try:
        return f"pullback~={version('pullback')}"
    except PackageNotFoundError:
        return "pullback"


def require_importable(package: Package, folder: Path) -> None:
    """Import the package as a user's machine does: no compiler, no source, an empty cache.

    Raises:
        PullbackError: PB713, with what it said.
    """
    with staging.stage_beside(folder.parent / "import") as elsewhere:
        paths = [str(folder), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        variables = {k: v for k, v in os.environ.items() if k not in toolchain.CHOOSING}
        answer = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", f"import {package.name}"],
            cwd=elsewhere,
            env={
                **variables,
                "PATH": str(elsewhere),
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONSAFEPATH": "1",
                "PULLBACK_CACHE": str(elsewhere),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    if answer.returncode:
        said = answer.stderr.strip().splitlines()
        raise NotImportable.error(
            f"{package.name} cannot be imported where there is neither its folder nor a compiler",
            reason="\n".join(said[-6:]),
            help="make a package folder of files that import one another, with `from . import`; "
            "read no file of kernels at import",
        )


def tag_wheel(project: Path) -> Path:
    """Return the project's wheel, named for the systems on which it installs."""
    plain = pack_wheel(project, f"linux_{platform.machine()}")
    tag = platform_of(plain)
    return plain if tag is None else pack_wheel(project, tag)


def pack_wheel(project: Path, platform_tag: str) -> Path:
    """Have setuptools make the wheel.

    Raises:
        PullbackError: PB712, it failed.
    """
    out = project / "dist" / platform_tag
    words = ["-q", "bdist_wheel", f"--dist-dir={out}", f"--plat-name={platform_tag}"]
    answer = subprocess.run(
        [sys.executable, "setup.py", *words],
        cwd=project,
        env={**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "315532800")},
        capture_output=True,
        text=True,
        check=False,
    )
    found = list(out.glob("*.whl"))
    if answer.returncode or len(found) != 1:
        raise PackingFailed.error(
            "setuptools did not make a wheel",
            reason="\n".join(answer.stderr.strip().splitlines()[-6:]),
            help="pip install 'setuptools>=77'",
        )
    return found[0]


def platform_of(wheel: Path) -> str | None:
    """Return the oldest manylinux that the wheel runs on; None where that cannot be found out.

    PyTorch's own libraries do not count: pip installs them with it.
    """
    if importlib.util.find_spec("auditwheel") is None:
        text = "its platform is linux: pip install 'pullback[deploy]' names the oldest that will do"
        notice(text, ShippingNotice)
        return None
    answer = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        return None
    found = json.loads(answer.stdout)
    if found["overall_tag"].startswith("manylinux"):
        return found["overall_tag"]
    needs = found["policy_upgrades"].get(found["sym_tag"], {})
    others = [lib for lib in needs.get("libs_to_eliminate", ()) if not lib.startswith(OF_TORCH)]
    tied = found["pyfpe"] or found["ucs2"] or found["unsupported_isa"]
    if others or tied or needs.get("blacklisted_symbols"):
        return None
    return found["sym_tag"]
