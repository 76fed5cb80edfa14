"""Most checks of these tests run in the worker itself, which has to stay as it was."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pullback.verify.probes.global_settings import settings


@pytest.fixture(autouse=True)
def the_process_stays_as_it_was() -> Generator[None]:
    before = settings()
    yield
    assert settings() == before, "what changes its process is checked with isolate=True"
