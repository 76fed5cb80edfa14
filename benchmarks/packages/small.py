"""Packages of one or two Functions."""

from __future__ import annotations

from benchmarks.packages.arguments import Constant, real
from benchmarks.packages.case import Case, Package

SMALL = (
    Package(
        "pytorch-revgrad",
        "0.2.0",
        (
            Case(
                "pytorch_revgrad.functional:RevGrad",
                "revgrad(x[...], alpha[]) -> y[...]",
                (real(4, 3), Constant(0.7)),
                intentions=("reversal",),
            ),
        ),
    ),
    Package(
        "sparsemax",
        "0.1.9",
        (
            Case(
                "sparsemax.sparsemax:SparsemaxFunction",
                "sparsemax(x[n, d], dim: int = -1) -> y[n, d]",
                (real(3, 7), -1),
            ),
            Case(
                "sparsemax.sparsemax:SparsemaxFunction",
                "sparsemax3(x[a, b, d], dim: int = -1) -> y[a, b, d]",
                (real(2, 3, 7), 1),
                note="three dimensions",
            ),
        ),
    ),
    Package(
        "diffsort",
        "0.2.0",
        (
            Case(
                "diffsort.functional:NormalCDF",
                "normal_cdf(x[...], sigma: float) -> y[...]",
                (real(4, 3), 0.7),
            ),
        ),
    ),
    Package(
        "e3nn",
        "0.6.0",
        (
            Case(
                "e3nn.math._soft_unit_step:_SoftUnitStep",
                "soft_unit_step(x[...]) -> y[...]",
                (real(4, 3),),
            ),
        ),
    ),
    Package(
        "pysdtw",
        "0.0.5",
        (
            Case(
                "pysdtw.sdtw_cpu:SoftDTWcpu",
                "soft_dtw(d[b, m, n], lengths[b, 2]: int64, gamma: float, bandwidth: float) "
                "-> y[b]",
                (real(2, 5, 6), Constant([[5, 6], [5, 6]]), 1.0, 0.0),
                note="numba inside",
            ),
            Case(
                "pysdtw.sdtw_cuda:SoftDTWcuda",
                "soft_dtw_cuda(d[b, m, n], lengths[b, 2]: int64, gamma: float, bandwidth: float) "
                "-> y[b]",
                (real(2, 5, 6), Constant([[5, 6], [5, 6]]), 1.0, 0.0),
                broken="needs a GPU",
            ),
        ),
    ),
)
