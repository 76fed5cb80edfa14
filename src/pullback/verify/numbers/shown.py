"""Numbers of second derivatives and tangents, as evidence."""

from __future__ import annotations

from typing import Any

from pullback.verify.numbers.second import Second


def describe_wrong_seconds(found: Second) -> dict[str, Any]:
    """Return the evidence on wrong second derivatives: one line for each gradient."""
    shown: dict[str, Any] = {}
    for lost in found.lost[:3]:
        name = found.call.leaves[lost.leaf].name
        shown[f"derivative of the gradient of {name}"] = (
            f"{lost.analytic:.6g} by create_graph=True, {lost.numeric:.6g} by differences"
        )
    return shown
