"""The author's text of a target, for a report that is read without the file at hand."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pullback.verify.report import Listing
from pullback.verify.source import is_authors
from pullback.verify.target import Target

LONGEST = 400


def list_sources(target: Target) -> Iterator[Listing]:
    """Yield the text of a class or a function, or of each part of an operator, once."""
    given: list[Any] = list(target.parts.values())
    if target.kind == "function":
        given = [target.given]
    elif target.kind == "module":
        given = [type(target.given)]
    elif target.kind == "callable":
        given = [target.given]
    seen: set[tuple[str, int]] = set()
    for own in given:
        listing = list_source(own)
        if listing and (listing.file, listing.first) not in seen:
            seen.add((listing.file, listing.first))
            yield listing


def list_source(given: Any) -> Listing | None:  # noqa: ANN401
    """Return the text of a class or a function, if it is the author's and Python can find it."""
    given = inspect.unwrap(given) if callable(given) else given
    try:
        file = inspect.getsourcefile(given)
        lines, first = inspect.getsourcelines(given)
    except (OSError, TypeError, IndexError, SyntaxError):
        return None
    if file is None or not is_authors(file):
        return None
    return Listing(file=Path(file).name, first=max(first, 1), text="".join(lines[:LONGEST]))
