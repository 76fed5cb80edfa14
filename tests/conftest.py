"""What all tests share: a private cache folder, a source of randomness, Hypothesis' settings."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

# Tests of one stage borrow strategies from another's: `from tests.define.strategies import lines`.
sys.path.insert(0, str(Path(__file__).parent.parent))

# A first example compiles a kernel, so no example has a deadline.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

made = pytest.StashKey[dict[str, str]]()


# PyTorch's own forward mode calls what PyTorch itself has deprecated.
OF_TORCH = ("ignore:`torch.jit.script:DeprecationWarning",)


def pytest_configure(config: pytest.Config) -> None:
    """Build into a folder of this session's, never into the user's cache.

    pytest-xdist's workers inherit the variable, so they share the folder of the session that
    started them.
    """
    for line in OF_TORCH:
        config.addinivalue_line("filterwarnings", line)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # By a shell's `&`; processes that tests interrupt would ignore it too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # PyTorch's own of compiled code would give back programs of an earlier state of the source.
    names = ("PULLBACK_CACHE", "TORCHINDUCTOR_CACHE_DIR", "PULLBACK_TEST_OBJECTS")
    unset = [name for name in names if name not in os.environ]
    config.stash[made] = {name: tempfile.mkdtemp(prefix="pullback-tests-") for name in unset}
    os.environ.update(config.stash[made])
    # Several tests have CMake build nearly the same library.
    launcher = Path(__file__).with_name("compile_once.py")
    os.environ.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", f"{sys.executable};{launcher}")


def pytest_unconfigure(config: pytest.Config) -> None:
    for name, folder in config.stash[made].items():
        del os.environ[name]
        shutil.rmtree(folder, ignore_errors=True)


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
