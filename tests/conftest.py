"""What all tests share: how many of them run, where they build, what is drawn, what they cost.

`tests/README.md` says how to use it.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Tests of one stage borrow strategies from another's: `from tests.define.strategies import lines`.
sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fresh import no_process_is_left
from tests.telling import one_in

__all__ = ["no_process_is_left"]

# A first example compiles a kernel, so no example has a deadline.
# What CI says of a change has to be the change's: it draws the same in each run.
IN_CI = "CI" in os.environ
settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("thorough", deadline=None, derandomize=IN_CI, print_blob=True)

# PyTorch's own forward mode calls what PyTorch itself has deprecated; and a process has the GPU
# code that its other tests loaded, and says so whenever CUDA runs on the CPU.
IGNORED = (
    "ignore:`torch.jit.script:DeprecationWarning",
    "ignore::pullback.bind.on_cpu.CudaOnCpuNotice",
)
# Libraries of many versions of the source; when there are more, the next run begins with none.
MOST_KEPT = 4 << 30

made = pytest.StashKey[list[str]]()


# --- how much runs


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pullback's tests")
    group.addoption(
        "--thorough",
        action="store_true",
        help="run also what is marked `thorough`, on numbers that are drawn anew",
    )
    group.addoption(
        "--minutes",
        type=float,
        metavar="MINUTES",
        help="begin no test later than this, and at another one for each commit; says what it left",
    )
    group.addoption(
        "--cpu-budget",
        type=float,
        metavar="SECONDS",
        help="fail if all processes of the tests together take more processor time",
    )


def is_thorough(config: pytest.Config) -> bool:
    """Tell whether everything is to run: `--thorough`, or `-m thorough` for the rest alone."""
    return config.getoption("thorough") or "thorough" in (config.getoption("markexpr") or "")


def marks_left_out(config: pytest.Config) -> tuple[str, ...]:
    """Return the marks of tests that do not run: none if all are asked for, or one is named."""
    if is_thorough(config) or any("::" in word for word in config.args):
        return ()
    # Who asks by marks, as for all that needs a GPU, has what CI has.
    return ("thorough",) if IN_CI or config.getoption("markexpr") else ("thorough", "ci")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """A worker a core; none for one file or one test, which would wait for workers to start."""
    chosen = [Path(word.partition("::")[0]) for word in config.args]
    if len(chosen) == 1 and chosen[0].is_file():
        return 0
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not asked for or named; begin where `--minutes` says."""
    marks = marks_left_out(config)

    def is_left_out(item: pytest.Item) -> bool:
        found = map(item.get_closest_marker, marks)
        return any(mark is not None and not mark.args for mark in found)

    config.hook.pytest_deselected(items=[item for item in items if is_left_out(item)])
    items[:] = [item for item in items if not is_left_out(item)]
    if config.getoption("minutes") is not None and items:
        first = zlib.crc32(commit(config.rootpath)) % len(items)
        items[:] = items[first:] + items[:first]


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make no tests of parameters that would be left out: thousands, in each worker."""
    marks = marks_left_out(metafunc.config)
    if not marks:
        return
    calls: list[Any] = metafunc._calls
    kept = [each for each in calls if all(mark.name not in marks for mark in each.marks)]
    # One at least: else pytest makes a test without parameters.
    calls[:] = kept or calls[:1]
    for mark in filter(None, map(metafunc.definition.get_closest_marker, marks)):
        calls[:] = one_in(mark.args[0], calls) if mark.args else calls[:1]


def commit(folder: Path) -> bytes:
    """Return the name of the commit that is tested; nothing where git knows none."""
    try:
        return subprocess.check_output(
            ["git", "rev-parse", "HEAD"], cwd=folder, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        return b""


def pytest_collection_finish() -> None:
    """Have Python not look through tests and libraries whenever it looks for what to free.

    And look seldom: a tenth of the time of tests that trace or derive would be that.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip what would begin too late, and have PyTorch not measure what guards cost.

    It empties the caches for that, which takes 20 ms for each frame that is traced, and is for
    those who profile PyTorch.
    """
    if time.time() > float(os.environ.get("PULLBACK_TESTS_END", "inf")):
        # A test that runs pytest has that end before it, too, and no `--minutes`.
        pytest.skip("not begun in time")
    guards = sys.modules.get("torch._dynamo.guards")
    if guards:
        vars(guards)["profile_guard_manager"] = lambda *_: 0.0


# --- where it builds, and in how many threads


def pytest_configure(config: pytest.Config) -> None:
    """Set up what this process and those that it starts have in common.

    pytest-xdist's workers inherit the variables, so they share the folders of the session that
    started them.
    """
    if not config.getoption("numprocesses", default=None):
        # Where tests run: to know a warning's class imports PyTorch, which takes seconds.
        for line in IGNORED:
            config.addinivalue_line("filterwarnings", line)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # By a shell's `&`; processes that tests interrupt would ignore it too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Container images forbid it, and then each process translates our modules, and each worker all
    # tests, anew: a minute of a run.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.dont_write_bytecode = False
    # Tensors are small, and the other cores have tests of their own.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if torch := sys.modules.get("torch"):
        # A plugin has imported it already, and it does not look again.
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"].partition(",")[0]))
    if config.pluginmanager.has_plugin("cacheprovider"):
        for name in ("PULLBACK_CACHE", "PULLBACK_TEST_OBJECTS"):
            if name not in os.environ:
                os.environ[name] = str(kept(config, name.lower()))
    # PyTorch's own of compiled code would give back programs of an earlier state of the source.
    names = ("TORCHINDUCTOR_CACHE_DIR", "PULLBACK_TEST_OBJECTS", "PULLBACK_CACHE")
    config.stash[made] = [name for name in names if name not in os.environ]
    for name in config.stash[made]:
        os.environ[name] = tempfile.mkdtemp(prefix="pullback-tests-")
    # Several tests have CMake build nearly the same library.
    launcher = Path(__file__).with_name("compile_once.py")
    os.environ.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", f"{sys.executable};{launcher}")
    if (minutes := config.getoption("minutes")) is not None:
        os.environ.setdefault("PULLBACK_TESTS_END", str(time.time() + 60 * minutes))
    draw(config)


def kept(config: pytest.Config, name: str) -> Path:
    """Return a folder of what was compiled, which the next run finds: never the user's own.

    `pytest --cache-clear` empties it.
    """
    assert config.cache
    folder = config.cache.mkdir(name)
    if size(folder) > MOST_KEPT:
        shutil.rmtree(folder)
        folder.mkdir()
    folder.chmod(0o700)
    return folder


def size(folder: Path) -> int:
    """Return how many bytes the files of a folder have."""
    with os.scandir(folder) as inside:
        return sum(
            size(Path(entry)) if entry.is_dir() else entry.stat(follow_symlinks=False).st_size
            for entry in inside
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    for name in config.stash.get(made, []):
        shutil.rmtree(os.environ.pop(name), ignore_errors=True)


# --- what is drawn


def draw(config: pytest.Config) -> None:
    """Choose the seeds: the same in each run, but drawn anew where everything runs."""
    settings.load_profile("thorough" if is_thorough(config) else "default")
    if is_thorough(config) and not IN_CI:
        os.environ.setdefault("PULLBACK_SEED", str(random.SystemRandom().randrange(2**31)))
    if (chosen := os.environ.get("PULLBACK_SEED")) and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = int(chosen)


def pytest_report_header() -> str:
    """Say what would draw the same numbers again."""
    chosen = os.environ.get("PULLBACK_SEED")
    return f"drawn with PULLBACK_SEED={chosen}" if chosen else "every test has a seed of its own"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The only source of randomness of a test; pytest shows what is printed where a test fails.

    Every test has its own seed, the same in each run; PULLBACK_SEED sets another one.
    """
    own = zlib.crc32(request.node.nodeid.encode())
    value = int(os.environ.get("PULLBACK_SEED") or own)
    print(f"seed {value}; replay with PULLBACK_SEED={value}")  # noqa: T201
    random.seed(value)
    torch = sys.modules.get("torch")
    if torch:
        torch.manual_seed(value)
    return value


# --- what it costs


def spent() -> float:
    """Return the processor time of this process and those it has started and seen end."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Add up what the workers and this process have spent; workers are its children by then."""
    yield
    budget = session.config.getoption("cpu_budget")
    if hasattr(session.config, "workerinput"):
        return
    if budget is not None and spent() > budget:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    budget = config.getoption("cpu_budget")
    of = f" of {budget:.0f} that they may take" if budget else ""
    over = budget is not None and spent() > budget
    terminalreporter.write_line(
        f"the tests' processes took {spent():.0f} s of processor time{of}", red=over, bold=over
    )
