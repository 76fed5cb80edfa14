"""Rows of the matrix in index notation."""

from __future__ import annotations

import pullback as pb
from pullback.define.operator import Autocast


def linear(name: str, autocast: Autocast) -> pb.Operator:
    line = (
        f"everywhere::{name}(x[n, i], weight[o, i], bias[o]?) -> y[n, o]"
        " = sum[i](x[n, i]*weight[o, i]) + bias[o]"
    )
    return pb.operator(line, autocast=autocast)


def softmax(name: str, autocast: Autocast) -> pb.Operator:
    line = (
        f"everywhere::{name}(x[..., n]) -> y[..., n]"
        " = exp(x[n] - max[m](x[m]))/sum[m](exp(x[m] - max[k](x[k])))"
    )
    return pb.operator(line, autocast=autocast)


def correlate(name: str, autocast: Autocast) -> pb.Operator:
    line = f"everywhere::{name}(x[h], k[p]) -> y[i] = sum[p](x[i + p]*k[p])"
    return pb.operator(line, autocast=autocast)
