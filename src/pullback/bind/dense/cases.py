"""Outputs by cases: what a constant place of an index selects is computed there alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind.dense.value import align
from pullback.define.math.cases import Case, Cases

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env


def compute_cases(dense: Dense, cases: Cases, env: Env, dtype: torch.dtype) -> Tensor:
    """Return an output, each case of it written to its place."""
    shape = [dense.space.length(axis, env) for axis in dense.space.axes(env)]
    result = torch.empty(shape, dtype=dtype, device=dense.call.device)
    fill(dense, cases, env, result)
    return result


def fill(dense: Dense, case: Case, env: Env, into: Tensor) -> None:
    """Write the values of an expression for all values of some indices."""
    if not isinstance(case, Cases):
        value = dense.root(case, env)
        if isinstance(value.data, Tensor):
            into.copy_(align(value, dense.space.axes(env)))
        else:
            into.fill_(value.data)
        return
    dim = dense.space.axes(env).index((case.index, 0))
    inner = {index: size for index, size in env.items() if index != case.index}
    inside = {place: own for place, own in case.at.items() if 0 <= place < into.shape[dim]}
    if len(inside) < into.shape[dim]:
        # Of some places more is written below: cheaper than to say which are left.
        fill(dense, case.rest, env, into)
    for place, own in inside.items():
        fill(dense, own, inner, into.select(dim, place))
