"""NVIDIA's names for headers: all are found, and their folder is there whole or not at all."""

from __future__ import annotations

import errno
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pullback.diagnostic import PullbackError
from pullback.kernels import cache, cache_folder, toolchain
from pullback.kernels.cuda_on_cpu import headers, library

pytestmark = pytest.mark.compiler


@pytest.fixture(name="root")
def root_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_folder, "_instead", {})
    return tmp_path / "cache"


def files_in(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_a_name_is_in_the_table_once_or_has_a_file() -> None:
    rows = [headers.OURS, headers.LACKING]
    names = [name for table in rows for each in table.values() for name in each.split()]
    assert len(names) == len(set(names))
    assert set(headers.texts()).isdisjoint(files_in(library.INCLUDE))
    assert [ours for ours in headers.OURS if not (headers.CSRC / ours).is_file()] == []


def test_a_header_of_any_name_compiles(tmp_path: Path) -> None:
    lacking = {name for names in headers.LACKING.values() for name in names.split()}
    names = {*headers.texts(), *files_in(library.INCLUDE)} - lacking
    unit = tmp_path / "all.cpp"
    unit.write_text("".join(f"#include <{name}>\n" for name in ["cuda_runtime.h", *sorted(names)]))
    command = [*toolchain.find("c++").command, *library.flags("none"), "-fsyntax-only", str(unit)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.stderr == ""


# NVIDIA's headers read one another, and programs name what came along.
COMES_ALONG = {
    "cub/block/block_exchange.cuh": "cub::WarpExchange<int, 2>",
    "cub/block/block_histogram.cuh": "cub::BlockRadixSort<int, 64, 2>",
    "cub/block/block_load.cuh": "cub::BlockExchange<int, 64, 2>",
    "cub/block/block_radix_rank.cuh": "cub::BlockScan<int, 64>",
    "cub/block/block_radix_sort.cuh": "cub::BlockExchange<int, 64, 2>",
    "cub/block/block_reduce.cuh": "cub::WarpReduce<int>",
    "cub/block/block_scan.cuh": "cub::WarpScan<int>",
    "cub/device/device_reduce.cuh": "cub::BlockReduce<int, 64>",
    "cub/device/device_scan.cuh": "cub::BlockScan<int, 64>",
    "cub/device/device_select.cuh": "cub::BlockLoad<int, 64, 2>",
}


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", COMES_ALONG)
def test_a_header_brings_what_comes_along_with_nvidias(tmp_path: Path, name: str) -> None:
    unit = tmp_path / "one.cpp"
    unit.write_text(f"#include <{name}>\nusing Storage = {COMES_ALONG[name]}::TempStorage;\n")
    command = [*toolchain.find("c++").command, *library.flags("none"), "-fsyntax-only", str(unit)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.stderr == ""


def test_who_asks_at_the_same_time_gets_one_folder(root: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = {each.result() for each in [pool.submit(headers.folder) for _ in range(8)]}
    (folder,) = found
    assert folder.is_relative_to(root)
    assert files_in(folder) == headers.texts()
    assert list((root / cache.BUILDS).iterdir()) == []


def test_another_process_may_be_first_where_there_are_no_locks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = headers.folder()
    monkeypatch.setattr(headers, "_find_made", lambda plan: None)  # type: ignore[misc]
    assert headers.folder() == first
    assert files_in(first) == headers.texts()


def test_on_a_full_disk_there_is_no_folder_and_later_a_whole_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        if path.name == "sort.h":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, text)

    write = headers._write_one
    with monkeypatch.context() as patched:
        patched.setattr(headers, "_write_one", full)
        with pytest.raises(PullbackError, match="PB204"):
            headers.folder()
    assert list(root.rglob("*.h")) == []
    assert files_in(headers.folder()) == headers.texts()


def test_a_folder_that_was_removed_is_written_anew(root: Path) -> None:
    folder = headers.folder()
    cache.clean()
    assert not root.exists()
    assert headers.folder() == folder
    assert files_in(folder) == headers.texts()


def test_another_table_is_another_folder_and_so_another_key(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = library.flags("none")
    headers.texts.cache_clear()
    headers._plan.cache_clear()
    with monkeypatch.context() as patched:
        patched.setitem(headers.OURS, "thrust/sort.h", "thrust/sort.h thrust/new.h")
        after = library.flags("none")
        assert files_in(headers.folder()) == headers.texts()
        assert "thrust/new.h" in headers.texts()
    headers.texts.cache_clear()
    headers._plan.cache_clear()
    assert before != after
    assert before == library.flags("none")
