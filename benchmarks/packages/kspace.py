"""The Functions of torchkbnufft: non-uniform FFTs, between images and k-space."""

from __future__ import annotations

from typing import Any

from benchmarks.packages.arguments import Buffer, Constant, Sparse, image, real
from benchmarks.packages.case import Case, Package

KB = "torchkbnufft:KbInterp"
KB_OPTIONS = {"im_size": (4, 4), "grid_size": (8, 8)}


def tables() -> tuple[Any, ...]:
    """Return makers of what a non-uniform FFT interpolates with."""
    names = ("n_shift", "numpoints", "table_oversamp", "offsets")
    return (
        Buffer(KB, "table_0 table_1", KB_OPTIONS),
        *(Buffer(KB, name, KB_OPTIONS) for name in names),
    )


NUFFT = "torchkbnufft._autograd.interp:"
TORCHKBNUFFT = Package(
    "torchkbnufft",
    "1.5.2",
    (
        Case(
            NUFFT + "KbTableInterpForward",
            "table_interp(image[b, c, h, w]: complex64, omega[2, k], tables[*]: complex64*, "
            "n_shift[2], numpoints[2]: int64, table_oversamp[2]: int64, offsets[j, 2]: int64) "
            "-> data[b, c, k]: complex64",
            (image(1, 2, 8, 8), real(2, 9, grad=False), *tables()),
            note="a list of tensors",
        ),
        Case(
            NUFFT + "KbTableInterpAdjoint",
            "table_interp_adjoint(data[b, c, k]: complex64, omega[2, k], tables[*]: complex64*, "
            "n_shift[2], numpoints[2]: int64, table_oversamp[2]: int64, offsets[j, 2]: int64, "
            "grid_size[2]: int64) -> image[b, c, 8, 8]: complex64",
            (
                image(1, 2, 9),
                real(2, 9, grad=False),
                *tables(),
                Constant([8, 8]),
            ),
            loses=True,
            note="one grid: its size is the value of a tensor; uses torch.jit.fork",
        ),
        Case(
            NUFFT + "KbSpmatInterpForward",
            "spmat_interp(image[b, c, h, w]: complex64, interp_mats[k, p]*) "
            "-> data[b, c, k]: complex64",
            (image(1, 2, 4, 4), (Sparse((9, 16)), Sparse((9, 16)))),
            refused="PB119",
        ),
        Case(
            NUFFT + "KbSpmatInterpAdjoint",
            "spmat_interp_adjoint(data[b, c, k]: complex64, interp_mats[k, p]*, "
            "grid_size[2]: int64) -> image[b, c, 4, 4]: complex64",
            (image(1, 2, 9), (Sparse((9, 16)), Sparse((9, 16))), Constant([4, 4])),
            refused="PB119",
        ),
    ),
)
