"""A cache of a test's own, and a plan whose library can be kept there without a compiler."""

import hashlib
from pathlib import Path

import pytest

from pullback.kernels import cache, cache_folder
from pullback.kernels.plan import BuildPlan, TranslationUnit
from pullback.kernels.toolchain import Compiler

GXX = Compiler(language="c++", path=Path("/bin/g++"), version="12.2.0", identity="g++ 12.2.0")


@pytest.fixture(name="root")
def root_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_folder, "_instead", {})
    return tmp_path / "cache"


@pytest.fixture(name="plan")
def plan_fixture(root: Path) -> BuildPlan:
    source = root.parent / "add2.cpp"
    source.write_text("1")
    return BuildPlan(
        name="demo",
        compiler=GXX,
        units=(TranslationUnit("u.cpp", ""),),
        sources=(source,),
        flags=(),
        abi="1",
    )


def keep(plan: BuildPlan, content: str) -> Path:
    """Store a library as if it were compiled from the sources as they are."""
    built = plan.sources[0].parent / "library.so"
    built.write_text(content)
    hashes = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in plan.sources}
    return cache.store(plan, built, hashes)
