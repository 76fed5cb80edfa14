"""What the tests of examples share."""

from tests.one_thread import one_thread

__all__ = ["one_thread"]
