import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cached import keep, plan_fixture, root_fixture  # noqa: F401  # pyright: ignore

from pullback.kernels import cache
from pullback.kernels.plan import BuildPlan


def test_what_was_stored_is_found(plan: BuildPlan) -> None:
    assert cache.look_up(plan) is None
    library = keep(plan, "one")
    assert cache.look_up(plan) == library
    assert library.read_text() == "one"


def test_folder_and_files_are_the_users_alone(plan: BuildPlan, root: Path) -> None:
    keep(plan, "one")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    for path in root.rglob("*"):
        assert not path.stat().st_mode & 0o077, path


def test_each_state_of_a_source_has_its_library(plan: BuildPlan) -> None:
    first = keep(plan, "one")
    plan.sources[0].write_text("2")
    assert cache.look_up(plan) is None
    second = keep(plan, "two")
    assert cache.look_up(plan) == second
    plan.sources[0].write_text("1")
    assert cache.look_up(plan) == first
    plan.sources[0].unlink()
    assert cache.look_up(plan) is None


def test_the_oldest_of_nine_is_dropped_with_its_file(plan: BuildPlan) -> None:
    libraries: list[Path] = []
    for number in range(9):
        plan.sources[0].write_text(str(number))
        libraries.append(keep(plan, f"library {number}"))
    assert [path.exists() for path in libraries] == [False] + [True] * 8
    plan.sources[0].write_text("0")
    assert cache.look_up(plan) is None
    plan.sources[0].write_text("1")
    assert cache.look_up(plan) == libraries[1]


@pytest.mark.parametrize("damage", ["", "on", "two", None], ids=["empty", "cut", "other", "gone"])
def test_a_damaged_library_is_not_returned(plan: BuildPlan, damage: str | None) -> None:
    library = keep(plan, "one")
    if damage is None:
        library.unlink()
    else:
        library.write_text(damage)
    assert cache.look_up(plan) is None
    plan.sources[0].write_text("2")
    keep(plan, "another")
    assert len(json.loads((library.parent / "manifest.json").read_text())["variants"]) == 1
    assert not library.exists()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"variants": 3}', '{"variants": [{"library": "x"}]}', "\0\xff",
     '{"variants": [{"dependencies": [], "library": "x", "sha256": "y"}]}', "[" * 100_000,
     '{"variants": [{"dependencies": {}, "library": "a\\u0000b", "sha256": "y"}]}',
     '{"variants": [{"dependencies": {"/a\\u0000b": "x"}, "library": "x", "sha256": "y"}]}'],
    ids=range(11),
)  # fmt: skip
def test_a_corrupt_manifest_counts_as_empty(plan: BuildPlan, text: str) -> None:
    library = keep(plan, "one")
    (library.parent / "manifest.json").write_bytes(text.encode("latin-1"))
    assert cache.look_up(plan) is None
    assert keep(plan, "one") == library
    assert cache.look_up(plan) == library


def test_a_manifest_cannot_lead_out_of_its_folder(plan: BuildPlan, root: Path) -> None:
    library = keep(plan, "one")
    outside = root.parent / "evil.so"
    outside.write_text("one")
    manifest = library.parent / "manifest.json"
    manifest.write_text(manifest.read_text().replace(library.name, f"../../{outside.name}"))
    assert cache.look_up(plan) is None


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(
    plan: BuildPlan, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    library = keep(plan, "one")
    files = sorted(library.parent.iterdir())

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    plan.sources[0].write_text("2")
    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        with pytest.raises(OSError, match="No space left"):
            keep(plan, "two")
    assert sorted(library.parent.iterdir()) == files
    plan.sources[0].write_text("1")
    assert cache.look_up(plan) == library


def test_one_thread_at_a_time_holds_the_lock(plan: BuildPlan) -> None:
    order: list[str] = []

    def second() -> None:
        with cache.lock(plan):
            order.append("second")

    with cache.lock(plan):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_killed_process_leaves_no_lock(plan: BuildPlan, root: Path) -> None:
    code = (
        "import fcntl, os, sys, time; handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT);"
        "fcntl.flock(handle, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    )
    path = cache.folder() / f"{plan.key}.lock"
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    with cache.lock(plan):
        pass


def test_a_filesystem_without_locks_is_worked_on_without(
    plan: BuildPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(cache, "fcntl", SimpleNamespace(LOCK_EX=fcntl.LOCK_EX, flock=none))
    with cache.lock(plan):
        library = keep(plan, "one")
    assert cache.look_up(plan) == library


def test_a_workspace_is_removed_even_after_an_error(plan: BuildPlan) -> None:
    made: list[Path] = []

    def fail() -> None:
        with cache.workspace(plan) as where:
            made.append(where)
            (where / "unit.o").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not made[0].exists()


def test_workspaces_of_dead_builds_are_removed_and_running_ones_kept(plan: BuildPlan) -> None:
    with cache.workspace(plan) as running:
        left = running.parent / "build-dead"
        left.mkdir()
        os.utime(left, (1, 1))
        with cache.workspace(plan):
            assert running.exists()
            assert not left.exists()


def test_clean_removes_every_library_and_nothing_else(plan: BuildPlan, root: Path) -> None:
    keep(plan, "one")
    stranger = root / "thesis.txt"
    stranger.write_text("mine")
    cache.clean()
    assert list(root.iterdir()) == [stranger]
    stranger.unlink()
    keep(plan, "one")
    cache.clean()
    assert not root.exists()
