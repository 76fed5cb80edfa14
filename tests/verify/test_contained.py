"""Work in a forked process: what comes back, how it may end, and what is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from pullback.verify.isolation import Died, run_forked

Work = Callable[[], Iterator[object]]


def outcome(work: Work, seconds: float = 20) -> tuple[list[object], Died | None]:
    """Return what a stream yields, and how it ended."""
    messages, found = run_forked(work, seconds=seconds), list[object]()
    while True:
        try:
            found.append(next(messages))
        except StopIteration as stopped:
            return found, stopped.value


def several() -> Iterator[object]:
    yield from range(1000)


def then(end: Callable[[], object]) -> Work:
    """Return work that yields 1 and then ends so."""

    def work() -> Iterator[object]:
        yield 1
        end()
        yield 2

    return work


def test_items_come_in_order() -> None:
    assert outcome(several) == (list(range(1000)), None)


def test_the_time_limit_is_that_of_each_item() -> None:
    def slowly() -> Iterator[object]:
        for number in range(4):
            time.sleep(0.5)
            yield number

    assert outcome(slowly, seconds=1.5) == ([0, 1, 2, 3], None)


def test_an_item_may_be_large() -> None:
    found, died = outcome(lambda: iter([torch.arange(3_000_000)]))
    assert died is None
    assert isinstance(found[0], torch.Tensor)
    assert found[0][-1] == 2_999_999


@pytest.mark.parametrize(
    ("end", "how", "why"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV", "killed"),
        (os.abort, "SIGABRT", "killed"),
        (lambda: os._exit(3), "exit code 3", "killed"),
        (lambda: os._exit(0), "exit code 0", "killed"),
        (lambda: sys.exit(3), "SystemExit: 3", "stopped"),
        (lambda: 1 // 0, "ZeroDivisionError: integer division or modulo by zero", "failed"),
        (lambda: time.sleep(60), "no answer in 1 s", "late"),
    ],
)
def test_an_end_before_the_end_is_told(end: Callable[[], object], how: str, why: str) -> None:
    found, died = outcome(then(end), seconds=1)
    assert found == [1]
    assert died is not None
    assert (died.how, died.why) == (how, why)


def test_an_item_that_cannot_be_sent_is_told() -> None:
    found, died = outcome(lambda: iter([1, lambda: 2]))
    assert found == [1]
    assert died is not None
    assert died.why == "failed"


def test_the_line_of_a_crash_is_found() -> None:
    def crash() -> None:
        os.kill(os.getpid(), signal.SIGSEGV)  # here

    _, died = outcome(then(crash))
    assert died is not None
    assert "in crash: os.kill(os.getpid(), signal.SIGSEGV)  # here" in str(died.place)


def test_output_of_the_work_is_kept_away(capfd: pytest.CaptureFixture[str]) -> None:
    print("before", end="")  # noqa: T201

    def talk() -> None:
        print("python")  # noqa: T201
        os.write(1, b"file\n")
        sys.stderr.write("error\n")

    assert outcome(then(talk)) == ([1, 2], None)
    assert capfd.readouterr().out == "before"


def processes() -> set[str]:
    """Return the children of this process."""
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def files() -> int:
    """Return how many files are open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_nothing_is_left_behind() -> None:
    before = processes(), files()
    for end in (lambda: None, lambda: os._exit(1), lambda: sys.exit(1)):
        outcome(then(end))
    outcome(then(lambda: time.sleep(60)), seconds=0.1)
    stopped = run_forked(several, seconds=9)
    next(stopped)
    stopped.close()
    assert (processes(), files()) == before


def test_an_interrupt_in_the_caller_ends_the_child() -> None:
    before = processes()
    messages = run_forked(then(lambda: time.sleep(60)), seconds=60)
    next(messages)
    with pytest.raises(KeyboardInterrupt):
        messages.throw(KeyboardInterrupt)
    assert processes() == before


def test_somebody_else_may_reap_the_children() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert outcome(several) == (list(range(1000)), None)
        _, died = outcome(then(lambda: os._exit(3)))
        assert died is not None
        assert died.why == "killed"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_several_threads_may_do_it_at_once() -> None:
    results: list[object] = []

    def run() -> None:
        results.extend(outcome(several) for _ in range(3))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(list(range(1000)), None)] * 12


def test_a_child_may_do_it_again() -> None:
    found, died = outcome(lambda: iter([outcome(several)]))
    assert died is None
    assert found == [(list(range(1000)), None)]


def in_a_daemon(connection: object) -> None:
    connection.send(outcome(several)[1])  # type: ignore[attr-defined]


def test_a_daemon_may_do_it() -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    daemon = context.Process(target=in_a_daemon, args=(theirs,), daemon=True)
    daemon.start()
    assert ours.poll(20)
    assert ours.recv() is None
    daemon.join()


def test_a_process_without_standard_streams_may_do_it(tmp_path: Path) -> None:
    """The pipe gets one of their numbers then."""
    told = tmp_path / "told"
    code = f"""
import os, sys
for number in (0, 1, 2):
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from pullback.verify.isolation import run_forked
found = list(run_forked(lambda: iter([1, print("out"), 3]), seconds=20))
open({str(told)!r}, "w").write(repr(found))
"""
    import subprocess  # noqa: PLC0415

    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False, timeout=100)
    assert told.read_text() == "[1, None, 3]"
