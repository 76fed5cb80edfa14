"""Compile the runtime against the headers of other PyTorch versions, with warnings as errors.

    python tests/headers.py 2.11.0 2.15.0

Only the headers are taken out of a wheel; which platform it is for does not matter to them, so the
smallest is fetched. It is no test of the suite because it downloads a hundred megabytes a version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from pullback.bind.runtime import FLAGS, HALVES, SOURCES

PLATFORMS = ("macosx_11_0_arm64", "macosx_14_0_arm64")


def fetch(version: str, folder: Path) -> Path:
    """Download a wheel of PyTorch and return its headers."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"torch=={version}"]
    command += ["--only-binary=:all:", "--python-version=3.11", *platforms, f"--dest={folder}"]
    # What pip is told to keep to is about what is installed; nothing is.
    subprocess.run(command, check=True, env={**os.environ, "PIP_CONSTRAINT": os.devnull})
    (wheel,) = folder.glob(f"torch-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("torch/include/")]
        archive.extractall(folder, names)
    return folder / "torch" / "include"


def compile_against(headers: Path) -> bool:
    """Compile every file of the runtime for syntax and warnings."""
    python = sysconfig.get_paths()["include"]
    flags = [flag for flag in FLAGS if not flag.startswith("-O") and flag != "-shared"]
    flags += ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    flags += ["-isystem", str(headers), "-isystem", python]
    files = [str(SOURCES / f"{file}.cpp") for half in HALVES for file in half]
    running = [subprocess.Popen(["g++", *flags, file]) for file in files]
    return all([process.wait() == 0 for process in running])


def main() -> int:
    """Compile against each version named on the command line."""
    failed: list[str] = []
    for version in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            good = compile_against(fetch(version, Path(folder)))
        sys.stdout.write(f"torch {version}: {'compiles without a warning' if good else 'FAILED'}\n")
        failed += [] if good else [version]
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
