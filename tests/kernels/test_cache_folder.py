"""Which folder the cache is in, and whose files in it are loaded."""

import os
import pwd
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from cached import keep, plan_fixture, root_fixture  # noqa: F401  # pyright: ignore

from pullback.kernels import cache, cache_folder
from pullback.kernels.plan import BuildPlan

STRANGER = 54_321


def give_away(path: Path) -> None:
    """Give a file to another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, STRANGER, -1, follow_symlinks=False)


def refused(root: Path | None, reason: str) -> None:
    """Check that another folder is used and that this is said once."""
    with pytest.warns(cache_folder.CacheNotice, match=reason) as caught:
        private = cache.folder()
    assert "set PULLBACK_CACHE" in str(caught[0].message)
    assert private != root
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.folder() == private
    cache_folder._remove_own(private, os.getpid() + 1)
    assert private.exists(), "a forked child must not remove it"
    cache_folder._remove_own(private, os.getpid())
    assert not private.exists()


def test_an_empty_folder_of_ours_is_closed_to_others(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)
    assert cache.folder() == root
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777], ids=oct)
def test_a_folder_that_others_could_write_to_is_neither_read_nor_closed(
    root: Path, plan: BuildPlan, mode: int
) -> None:
    keep(plan, "one")
    root.chmod(mode)
    assert cache.look_up(plan) is None
    refused(root, "can be written by other users")
    assert stat.S_IMODE(root.stat().st_mode) == mode


def test_a_folder_of_another_user_is_refused(
    root: Path, plan: BuildPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(plan, "one")
    owner = root.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(cache_folder, "ROOT", owner + 2)
    assert cache.look_up(plan) is None
    refused(root, f"belongs to user {owner}")


@pytest.mark.parametrize("owner", ["root", "the user"])
def test_a_read_only_folder_is_read_and_what_it_lacks_is_kept_elsewhere(
    root: Path, plan: BuildPlan, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    shared = keep(plan, "one")
    before = sorted(root.rglob("*"))
    if owner == "root":
        monkeypatch.setattr(cache_folder, "ROOT", root.stat().st_uid)
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    else:  # Root may write everywhere, whatever the mode.
        monkeypatch.setattr(os, "access", lambda path, *_: path != root)  # pyright: ignore
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.look_up(plan) == shared
    plan.sources[0].write_text("2")
    assert cache.look_up(plan) is None
    with pytest.warns(cache_folder.CacheNotice, match="cannot be written"):
        own = keep(plan, "two")
    assert not own.is_relative_to(root)
    assert sorted(root.rglob("*")) == before


def test_a_file_in_place_of_the_folder_is_refused(root: Path) -> None:
    root.write_text("a file")
    refused(root, "file exists")
    assert root.read_text() == "a file"


def test_the_private_folder_is_gone_after_the_process(root: Path) -> None:
    root.write_text("a file")
    code = "from pullback.kernels import cache; print(cache.folder())"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "CacheNotice" in ran.stderr
    assert not Path(ran.stdout.strip()).exists()


def test_without_a_home_the_folder_that_is_named_is_used(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert cache.folder() == root
    monkeypatch.delenv("PULLBACK_CACHE")
    refused(None, "no home folder")


def parts(plan: BuildPlan, library: Path) -> dict[str, Path]:
    """Return what there is to forge of a library."""
    entry = library.parent
    return {"entry": entry, "manifest": entry / cache.MANIFEST, "library": library}


@pytest.mark.parametrize("part", ["entry", "manifest", "library"])
@pytest.mark.parametrize("whose", ["another user's", "open to others"])
def test_what_others_may_have_written_is_not_loaded_but_made_anew(
    plan: BuildPlan, part: str, whose: str
) -> None:
    library = keep(plan, "one")
    forged = parts(plan, library)[part]
    if whose == "another user's":
        give_away(forged)
    else:
        forged.chmod(0o777)
    assert cache.look_up(plan) is None
    with pytest.warns(cache_folder.CacheNotice, match=r"belongs to user|other users.*made anew"):
        made = keep(plan, "one")
    assert cache.look_up(plan) == made
    for path in parts(plan, made).values():
        assert path.stat().st_uid == os.geteuid()
        assert not path.stat().st_mode & 0o022


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a file": lambda path: path.write_text("nothing"),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to a folder": lambda path: path.symlink_to("/"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("what", IN_THE_WAY)
@pytest.mark.parametrize("part", ["entry", "manifest", "library", "lock", "builds"])
def test_what_is_in_the_way_is_set_aside_with_a_notice(
    plan: BuildPlan, part: str, what: str
) -> None:
    root = cache.folder()
    library = keep(plan, "one")
    places = {**parts(plan, library), "lock": root / f"{plan.key}.lock", "builds": root / "builds"}
    place = places[part]
    is_expected = what == ("a folder" if part in ("entry", "builds") else "a file")
    if place.exists():
        place.rename(root / "before")
    IN_THE_WAY[what](place)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache.look_up(plan)
        with cache.lock(plan), cache.workspace(plan) as where:
            assert where.is_dir()
            assert keep(plan, "one") == library
    assert cache.look_up(plan) == library
    told = [str(one.message) for one in caught]
    assert is_expected or any(str(place) in text and "made anew" in text for text in told), told
    cache.clean()


def test_what_only_root_can_write_is_set_aside_by_its_user(
    plan: BuildPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run with sudo leaves entries that the user's own runs could not write to."""
    entry = keep(plan, "one").parent
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != entry and access(path, mode))
    with pytest.warns(cache_folder.CacheNotice, match="cannot be written"):
        keep(plan, "two")
