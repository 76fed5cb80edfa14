"""Rows of the matrix that read themselves: one with lanes, one without, one with a final state."""

from __future__ import annotations

import pullback as pb
from pullback.define.operator import Autocast


def lru(name: str, autocast: Autocast) -> pb.Operator:
    line = (
        f"everywhere::{name}(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d]"
        " = a*h[t - 1, d] + x; h[-1, d] = h0"
    )
    return pb.operator(line, autocast=autocast)


def filtered(name: str, autocast: Autocast) -> pb.Operator:
    line = (
        f"everywhere::{name}(x[..., t], c[k]) -> y[..., t] = x - sum[k](c[k]*pad(y[t - 1 - k]))/4"
    )
    return pb.operator(line, autocast=autocast)


def averaged(name: str, autocast: Autocast) -> pb.Operator:
    line = (
        f"everywhere::{name}(x[..., t], r[...]) -> (y[..., t], end[...])"
        " = y = r*pad(y[t - 1])/2 + x; end = y[size(t) - 1]"
    )
    return pb.operator(line, autocast=autocast)
