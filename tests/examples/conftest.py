"""What the tests of examples share."""

from tests.fresh import no_process_is_left

__all__ = ["no_process_is_left"]
