"""What people look at outside a terminal: pages and parts of notebooks, and the files they go to.

A page needs nothing else, no network above all. All pictures share one style, `page.css`, which
applies inside an element of the class `pullback` alone, so that a notebook stays as it is.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from pullback.diagnostic import Rule

UnknownFormat = Rule("PB406", "unknown-format")

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; background: Canvas; color: CanvasText; }}
{style}</style>
</head>
<body class="pullback">
{body}
</body>
</html>"""


def whole(title: str, body: str) -> str:
    """Return a page.

    Args:
        title: plain text.
        body: HTML.
    """
    return PAGE.format(title=escape(title), style=style(), body=body)


def fragment(body: str) -> str:
    """Return a part of a notebook, with the style for it."""
    return f'<div class="pullback"><style>{style()}</style>{body}</div>'


@functools.cache
def style() -> str:
    """Return the style of all pages."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def save(file: str | os.PathLike[str], formats: Mapping[str, Callable[[], str]]) -> Path:
    """Write a file, all or nothing, in the format of its ending.

    Args:
        file: its path.
        formats: by ending, what returns the text.

    Raises:
        PullbackError: PB406, another ending.
    """
    path = Path(file)
    if path.suffix not in formats:
        raise UnknownFormat.error(
            f"there is no format for '{path.name}'", endings=", ".join(formats)
        )
    write(path, formats[path.suffix]() + "\n")
    return path


def write(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
