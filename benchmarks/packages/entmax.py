"""The Functions of entmax: sparse softmaxes and their losses."""

from __future__ import annotations

import torch

from benchmarks.packages.arguments import Whole, real
from benchmarks.packages.case import Case, Package

ENTMAX = Package(
    "entmax",
    "1.3",
    (
        Case(
            "entmax.activations:SparsemaxFunction",
            "sparsemax(x[n, d], dim: int = -1, k: int?) -> y[n, d]",
            (real(3, 7), -1, None),
        ),
        Case(
            "entmax.activations:Entmax15Function",
            "entmax15(x[n, d], dim: int = 0, k: int?) -> y[n, d]",
            (real(3, 7), -1, 4),
        ),
        Case(
            "entmax.root_finding:EntmaxBisectFunction",
            "entmax_bisect(x[n, d], alpha[n, 1], dim: int = -1, n_iter: int = 50, "
            "ensure_sum_one: bool = True) -> y[n, d]",
            (real(3, 7), lambda: torch.tensor([[1.3], [1.5], [2.5]], requires_grad=True)),
        ),
        Case(
            "entmax.root_finding:SparsemaxBisectFunction",
            "sparsemax_bisect(x[n, d], dim: int = -1, n_iter: int = 50) -> y[n, d]",
            (real(3, 7),),
        ),
        Case(
            "entmax.root_finding:NormmaxBisectFunction",
            "normmax_bisect(x[n, d], alpha: float = 2.0, dim: int = -1) -> y[n, d]",
            (real(3, 7), 1.7),
        ),
        Case(
            "entmax.root_finding:BudgetBisectFunction",
            "budget_bisect(x[n, d], budget: float = 2.0, dim: int = -1) -> y[n, d]",
            (real(3, 7),),
        ),
        Case(
            "entmax.losses:SparsemaxLossFunction",
            "sparsemax_loss(x[n, d], target[n]: int64, k: int?) -> loss[n]",
            (real(4, 6), Whole(6, (4,)), 3),
        ),
        Case(
            "entmax.losses:SparsemaxBisectLossFunction",
            "sparsemax_bisect_loss(x[n, d], target[n]: int64, n_iter: int = 50) -> loss[n]",
            (real(4, 6), Whole(6, (4,))),
        ),
        Case(
            "entmax.losses:Entmax15LossFunction",
            "entmax15_loss(x[n, d], target[n]: int64, k: int?) -> loss[n]",
            (real(4, 6), Whole(6, (4,))),
        ),
        Case(
            "entmax.losses:EntmaxBisectLossFunction",
            "entmax_bisect_loss(x[n, d], target[n]: int64, alpha: float = 1.5, n_iter: int = 50) "
            "-> loss[n]",
            (real(4, 6), Whole(6, (4,))),
        ),
        Case(
            "entmax.losses:NormmaxBisectLossFunction",
            "normmax_bisect_loss(x[n, d], target[n]: int64, alpha: float = 2.0, n_iter: int = 50) "
            "-> loss[n]",
            (real(4, 6), Whole(6, (4,))),
        ),
        Case(
            "entmax.losses:_GenericLossFunction",
            "generic_loss(x[n, d], target[n]: int64, alpha: float, proj_args: object) -> loss[n]",
            refused="PB362",
            note="the base class of the five above",
        ),
    ),
)
