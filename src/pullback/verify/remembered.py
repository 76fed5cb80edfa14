"""Answers that are computed once a call and read by several probes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from pullback.verify.call import Call
from pullback.verify.probe import NotApplicable

Answer = TypeVar("Answer")


def remembered(ask: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
    """Cache a function's answer, or why it has none, for as long as the call lives."""
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
            # A new one: the traceback of an exception grows each time it is raised.
            raise NotApplicable(*found.args)
        return found

    return answered
