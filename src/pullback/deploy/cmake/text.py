"""C++ literals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

DTYPES = {
    **{"float64": "at::kDouble", "float32": "at::kFloat", "float16": "at::kHalf"},
    **{"bfloat16": "at::kBFloat16", "complex64": "at::kComplexFloat"},
    **{"complex128": "at::kComplexDouble", "int64": "at::kLong", "int32": "at::kInt"},
    **{"int16": "at::kShort", "int8": "at::kChar", "uint8": "at::kByte", "bool": "at::kBool"},
}


def quoted(text: str) -> str:
    """Return a text as C++ writes it; control characters in octal, which has three digits."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{ord(found[0]):03o}", escaped) + '"'


def truth(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def braces(items: Iterable[str]) -> str:
    """Return a list in braces."""
    return f"{{{', '.join(items)}}}"


def fields(**values: str | None) -> str:
    """Return an aggregate by the names of its members, in their order; None leaves one out."""
    return braces(f".{name} = {value}" for name, value in values.items() if value is not None)


def number(value: float) -> str:
    """Return a number of double's precision, to the last bit."""
    if math.isnan(value):
        return "std::numeric_limits<double>::quiet_NaN()"
    if math.isinf(value):
        return f"{'-' * (value < 0)}std::numeric_limits<double>::infinity()"
    return repr(value)


def integer(value: int) -> str:
    """Return a whole number of 64 bits."""
    return "INT64_MIN" if value == -(2**63) else f"int64_t{{{value}}}"
