"""Rows of the matrix that are formulas: nothing but their line is written."""

from __future__ import annotations

import pullback as pb
from pullback.define.operator import Autocast


def product(name: str, autocast: Autocast) -> pb.Operator:
    line = f"everywhere::{name}(a[...], b[...]) -> c[...] = a * b"
    return pb.operator(line, autocast=autocast)


def exp(name: str, autocast: Autocast) -> pb.Operator:
    return pb.operator(f"everywhere::{name}(x[...]) -> y[...] = exp(x)", autocast=autocast)


def sin_cos(name: str, autocast: Autocast) -> pb.Operator:
    line = f"everywhere::{name}(x[...]) -> (s[...], c[...]) = s = sin(x); c = cos(x)"
    return pb.operator(line, autocast=autocast)


def swish(name: str, autocast: Autocast) -> pb.Operator:
    @pb.formula(f"everywhere::{name}", autocast=autocast)
    def made(x):  # noqa: ANN001, ANN202  # pyright: ignore
        return x * x.sigmoid()  # pyright: ignore

    return made
