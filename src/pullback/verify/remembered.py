"""What is asked of a call once: several probes read one answer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from pullback.verify.call import Call
from pullback.verify.probe import NotApplicable

Answer = TypeVar("Answer")


def remembered(ask: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
    """Keep what a function answers, or why it does not, for as long as the call is kept."""
    known: WeakKeyDictionary[Call, Answer | NotApplicable] = WeakKeyDictionary()

    @functools.wraps(ask)
    def answered(call: Call) -> Answer:
        if call not in known:
            try:
                known[call] = ask(call)
            except NotApplicable as reason:
                known[call] = reason
        found = known[call]
        if isinstance(found, NotApplicable):
            # A new one: an exception that is raised again grows a traceback.
            raise NotApplicable(*found.args)
        return found

    return answered
