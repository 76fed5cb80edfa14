"""In pytest: CUDA on the CPU, and the fixture `check` for derivatives.

The options `--cuda-on-cpu`, `--cuda-race`, `--cuda-memory` and `--cuda-order` belong to the first.
Without one of them, and without the fixture, only this file is imported and nothing is done.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pullback.kernels.cuda_on_cpu.mode import Mode

LAUNCHES = "cuda_launches"
# The parameter that every test has for `--cuda-order=all`.
ORDER = "_cuda_order"
CHECKED = {"none": "run", "race": "checked for races", "memory": "checked for memory errors"}

running = pytest.StashKey["CudaSession"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("cuda", "CUDA kernels on the CPU (pullback)")
    group.addoption(
        "--cuda-on-cpu",
        action="store_true",
        help="CUDA code is built for the CPU, and code that asks for a GPU gets the CPU",
    )
    group.addoption(
        "--cuda-race",
        action="store_true",
        help="as --cuda-on-cpu, and accesses of two threads that nothing orders fail the test",
    )
    group.addoption(
        "--cuda-memory",
        action="store_true",
        help="as --cuda-on-cpu, and accesses out of bounds fail the test; starts pytest again with"
        " AddressSanitizer",
    )
    group.addoption(
        "--cuda-order",
        action="append",
        nargs="?",
        const="all",
        metavar="ORDER",
        help="as --cuda-on-cpu, with the threads of a block in this order: forward, reverse,"
        " random, random:SEED; all, or no ORDER, runs every test in each of the first three",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Turn CUDA on the CPU on before a conftest is imported, and before output is captured."""
    chosen = mode_of(early_config.known_args_namespace)
    if chosen:
        with_sanitizer(chosen)
        early_config.stash[running] = CudaSession(chosen)
    return (yield)


def mode_of(options: Any) -> Mode | None:  # noqa: ANN401  (argparse's)
    """Return the mode that the options ask for, if they do; its `order` may be "all"."""
    orders: list[str] = options.cuda_order or []
    if not (options.cuda_on_cpu or options.cuda_race or options.cuda_memory or orders):
        return None
    if options.cuda_race and options.cuda_memory:
        raise pytest.UsageError("--cuda-race and --cuda-memory are two runs: give one of them")
    if len(orders) > 1:
        raise pytest.UsageError(f"--cuda-order is given {len(orders)} times: {', '.join(orders)}")
    from dataclasses import replace  # noqa: PLC0415

    from pullback.diagnostic import PullbackError  # noqa: PLC0415
    from pullback.kernels.cuda_on_cpu import mode  # noqa: PLC0415

    check = "race" if options.cuda_race else "memory" if options.cuda_memory else None
    try:
        known = mode.read_mode()
        return replace(
            known, check=check or known.check, order=orders[0] if orders else known.order
        )
    except PullbackError as error:
        raise pytest.UsageError(str(error)) from None


def with_sanitizer(chosen: Mode) -> None:
    """Start pytest again if its check needs AddressSanitizer, which cannot be loaded later."""
    from pullback.diagnostic import PullbackError  # noqa: PLC0415
    from pullback.kernels.cuda_on_cpu import sanitizer  # noqa: PLC0415

    if chosen.check != "memory" or sanitizer.is_loaded():
        return
    try:
        environment = {**os.environ, **sanitizer.environment()}
    except PullbackError as error:
        raise pytest.UsageError(str(error)) from None
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


class CudaSession:
    """A session of tests with CUDA on the CPU."""

    def __init__(self, mode: Mode) -> None:
        from dataclasses import replace  # noqa: PLC0415

        from pullback.cuda import switch  # noqa: PLC0415
        from pullback.kernels.cuda_on_cpu.environment import FINDINGS  # noqa: PLC0415

        self.mode = mode
        self.launches = 0
        folder = tempfile.mkdtemp(prefix="pullback-pytest-")
        self.findings = Path(folder) / "findings"
        first = replace(mode, order="forward") if mode.order == "all" else mode
        added = {**first.environment(), FINDINGS: str(self.findings)}
        self._before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        switch.install()

    def end(self) -> None:
        """Put the environment back."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self.findings.unlink(missing_ok=True)
        self.findings.parent.rmdir()

    def size(self) -> int:
        """Return how much has been found, in bytes of text."""
        return self.findings.stat().st_size if self.findings.exists() else 0

    def of_the_host_since(self, size: int) -> list[str]:
        """Return what was found outside kernels, where nothing is raised."""
        if self.size() == size:
            return []
        new = self.findings.read_bytes()[size:].decode(errors="replace").split("\0")
        return [text for text in new if ": the host " in text.partition("\n")[0]]

    def __str__(self) -> str:
        check = "" if self.mode.check == "none" else f"{self.mode.check} check, "
        return f"cuda on the CPU: {check}order {self.mode.order}"


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say in which mode kernels run."""
    session = config.stash.get(running, None)
    return str(session) if session else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test in each order, for `--cuda-order=all`."""
    session = metafunc.config.stash.get(running, None)
    if session and session.mode.order == "all":
        from pullback.kernels.cuda_on_cpu.mode import EACH_ORDER  # noqa: PLC0415

        metafunc.fixturenames.append(ORDER)
        names = [order.partition(":")[0] for order in EACH_ORDER]
        metafunc.parametrize(ORDER, EACH_ORDER, ids=names)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: Any) -> Generator[None, Any, Any]:  # noqa: ANN401
    """Run the kernels of a test and of its fixtures in the order that is its parameter."""
    order = item.callspec.params.get(ORDER) if hasattr(item, "callspec") else None
    if order is None:
        return (yield)
    set_order(order)
    try:
        return (yield)
    finally:
        set_order("forward")


def set_order(order: str) -> None:
    """Set the order of threads for launches from now on, also of runtimes loaded later."""
    from pullback.kernels.cuda_on_cpu import mode, runtimes  # noqa: PLC0415
    from pullback.kernels.cuda_on_cpu.environment import OPTIONS  # noqa: PLC0415

    os.environ[OPTIONS["order"]] = order
    runtimes.configure(mode.current_mode())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test during which the host did something that stops a kernel."""
    session = item.config.stash.get(running, None)
    size = session.size() if session else 0
    result = yield
    if session and (found := session.of_the_host_since(size)):
        pytest.fail("\n\n".join(found), pytrace=False)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Count launches; a worker of pytest-xdist tells the session that started it."""
    ours = session.config.stash.get(running, None)
    if ours:
        from pullback.kernels.cuda_on_cpu import runtimes  # noqa: PLC0415

        ours.launches += runtimes.count_launches()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[LAUNCHES] = ours.launches


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401  (pytest-xdist's)
    """Add what a worker of pytest-xdist counted."""
    session = node.config.stash.get(running, None)
    if session:
        session.launches += getattr(node, "workeroutput", {}).get(LAUNCHES, 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:  # noqa: ANN401
    """Say how many launches there were: none may mean that no kernel ran on the CPU."""
    session = config.stash.get(running, None)
    if session:
        what = "launch" if session.launches == 1 else "launches"
        checked = CHECKED[session.mode.check]
        terminalreporter.write_line(f"cuda on the CPU: {session.launches} {what} {checked}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave the process as it was."""
    session = config.stash.get(running, None)
    if session:
        session.end()


# The checker: `pb.check` in tests.


def pytest_configure(config: pytest.Config) -> None:
    """Give the fixture its short name, unless the package pytest-check has that name."""
    if not config.pluginmanager.hasplugin("check"):
        config.pluginmanager.register(Short(), "pullback-check")


class Short:
    """The fixture `check`."""

    @pytest.fixture
    def check(self, pullback_check: Callable[..., Any]) -> Callable[..., Any]:
        """`check(target, *inputs, **options)`: as `pb.check`; a fault fails the test."""
        return pullback_check


@pytest.fixture
def pullback_check(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`pullback_check(target, *inputs, **options)`: as `pb.check`; a fault fails the test.

    Each test has its own seed, the same in every run.
    """
    from dataclasses import replace  # noqa: PLC0415

    node: Any = request.node
    seed = zlib.crc32(node.nodeid.encode())

    def check(target: Any, *inputs: Any, **options: Any) -> Any:  # noqa: ANN401
        __tracebackhide__ = True
        from pullback.verify.check import check as examine  # noqa: PLC0415

        options.setdefault("seed", seed)
        report = examine(target, *inputs, **options)
        if not report.ok:
            pytest.fail(str(replace(report, replay=f'pytest "{node.nodeid}"')))
        return report

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Show the reports that failed `assert pb.check(...)` below the failure."""
    made = yield
    checker = sys.modules.get("pullback.verify.report")
    if checker is not None:
        if made.failed:
            made.sections += [("pullback check", str(report)) for report in checker.denied]
        checker.denied.clear()
    return made
