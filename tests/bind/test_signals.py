"""A kernel that ends the process, or does not return, is named before it is too late."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from forked import in_fork

import pullback as pb

pytestmark = pytest.mark.compiler

ENDS = {
    "segv": ("*(volatile int*)8 = 1;", signal.SIGSEGV),
    "abort": ("abort();", signal.SIGABRT),
    "its_thread": ("std::thread([] { *(volatile int*)8 = 1; }).join();", signal.SIGSEGV),
}


def ending(name: str, body: str) -> pb.Operator:
    """Return an operator whose kernel does something that no kernel should."""
    text = f"""#include <cstdlib>
    #include <chrono>
    #include <thread>
    inline void run(float* y) {{ {body} *y = 1; }}"""
    return pb.operator(f"pbsignals::{name}(x[]) -> y[]", cpu=pb.source(text, call="run(y)"))


@pytest.mark.parametrize("how", ENDS)
def test_a_kernel_that_ends_the_process_is_named_and_the_end_is_the_same(
    how: str, tmp_path: Path
) -> None:
    body, number = ENDS[how]
    operator = ending(how, body)

    def work() -> None:
        faulthandler.enable(sys.stderr)
        operator(torch.ones(()))

    ran = in_fork(work, folder=tmp_path)
    assert ran.returncode == -number
    assert f"the kernel of pbsignals::{how} ends the process: {number.name}" in ran.stderr
    # Whoever else handles it is asked too.
    assert "Fatal Python error" in ran.stderr


def test_what_is_no_kernels_fault_is_none(tmp_path: Path) -> None:
    operator = ending("fine", "")

    def work() -> None:
        operator(torch.ones(()))
        os.abort()

    ran = in_fork(work, folder=tmp_path)
    assert ran.returncode == -signal.SIGABRT
    assert "the kernel of" not in ran.stderr


@pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL), reason="nobody interrupts"
)
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_names_the_kernel_that_goes_on_and_a_second_one_ends_it(
    presses: int, tmp_path: Path
) -> None:
    long = "std::this_thread::sleep_for(std::chrono::milliseconds(700));"
    endless = "volatile bool on = true; while (on) {}"
    operator = ending(f"loop{presses}", long if presses == 1 else endless)

    def press() -> None:
        for _ in range(presses):
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)  # two at once are one
            time.sleep(1)

    def work() -> None:
        threading.Thread(target=press, daemon=True).start()
        try:
            operator(torch.ones(()))
        except KeyboardInterrupt:
            sys.stdout.write("interrupted")

    ran = in_fork(work, folder=tmp_path, seconds=60)
    assert f"the kernel of pbsignals::loop{presses} is running" in ran.stderr
    if presses == 1:
        assert (ran.returncode, ran.stdout) == (0, "interrupted")
    else:
        assert ran.returncode == -signal.SIGINT
        assert "the process ends" in ran.stderr
