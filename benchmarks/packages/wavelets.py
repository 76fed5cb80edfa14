"""The Functions of pytorch_wavelets: wavelet transforms and scattering."""

from __future__ import annotations

from typing import Any

from benchmarks.packages.arguments import Buffer, real
from benchmarks.packages.case import Case, Package

DTCWT, INVERSE = "pytorch_wavelets:DTCWTForward", "pytorch_wavelets:DTCWTInverse"
SCATTER = "pytorch_wavelets.scatternet:ScatLayerj2"
BANDPASS = {"biort": "near_sym_b_bp", "qshift": "qshift_b_bp"}


def filters(module: str, names: str, **options: Any) -> tuple[Buffer, ...]:
    """Return makers of the filters of a wavelet transform."""
    return tuple(Buffer(module, name, options) for name in names.split())


DWT, DTCWT_ = "pytorch_wavelets.dwt.lowlevel:", "pytorch_wavelets.dtcwt.transform_funcs:"
SCAT = "pytorch_wavelets.scatternet.lowlevel:"
SCATTERED = "mode: int, bias: float, combine_colour: bool)"
WAVELETS = Package(
    "pytorch-wavelets",
    "1.3.0",
    (
        Case(
            DWT + "AFB2D",
            "afb2d(x[b, c, h, w], h0_row[1, 1, 1, k], h1_row[1, 1, 1, k], h0_col[1, 1, k, 1], "
            "h1_col[1, 1, k, 1], mode: int) -> (low[b, c, (h + k - 1) // 2, (w + k - 1) // 2], "
            "highs[b, c, 3, (h + k - 1) // 2, (w + k - 1) // 2])",
            (
                real(2, 3, 8, 12),
                *filters("pytorch_wavelets:DWTForward", "h0_row h1_row h0_col h1_col", wave="db2"),
                0,
            ),
        ),
        Case(
            DWT + "AFB1D",
            "afb1d(x[b, c, n], h0[1, 1, k], h1[1, 1, k], mode: int) "
            "-> (low[b, c, (n + k - 1) // 2], high[b, c, (n + k - 1) // 2])",
            (real(2, 3, 15), *filters("pytorch_wavelets:DWT1DForward", "h0 h1", wave="db2"), 1),
        ),
        Case(
            DWT + "SFB2D",
            "sfb2d(low[b, c, h, w], highs[b, c, 3, h, w], g0_row[1, 1, 1, k], g1_row[1, 1, 1, k], "
            "g0_col[1, 1, k, 1], g1_col[1, 1, k, 1], mode: int) "
            "-> y[b, c, 2 * h - k + 2, 2 * w - k + 2]",
            (
                real(2, 3, 5, 7),
                real(2, 3, 3, 5, 7),
                *filters("pytorch_wavelets:DWTInverse", "g0_row g1_row g0_col g1_col", wave="db2"),
                0,
            ),
        ),
        Case(
            DWT + "SFB1D",
            "sfb1d(low[b, c, n], high[b, c, n], g0[1, 1, k], g1[1, 1, k], mode: int) "
            "-> y[b, c, 2 * n - k + 2]",
            (
                real(2, 3, 9),
                real(2, 3, 9),
                *filters("pytorch_wavelets:DWT1DInverse", "g0 g1", wave="db2"),
                0,
            ),
        ),
        Case(
            DTCWT_ + "FWD_J1",
            "fwd_j1(x[b, c, h, w], h0[1, 1, k, 1], h1[1, 1, l, 1], skip_hps: bool, o_dim: int, "
            "ri_dim: int, mode: int) -> (ll[b, c, h, w], highs[b, c, 6, h // 2, w // 2, 2])",
            (real(2, 3, 8, 12), *filters(DTCWT, "h0o h1o"), False, 2, -1, 1),
        ),
        Case(
            DTCWT_ + "FWD_J2PLUS",
            "fwd_j2plus(x[b, c, h, w], h0a[1, 1, k, 1], h1a[1, 1, k, 1], h0b[1, 1, k, 1], "
            "h1b[1, 1, k, 1], skip_hps: bool, o_dim: int, ri_dim: int, mode: int) "
            "-> (ll[b, c, h // 2, w // 2], highs[b, c, 6, h // 4, w // 4, 2])",
            (real(2, 3, 8, 12), *filters(DTCWT, "h0a h1a h0b h1b"), False, 2, -1, 1),
        ),
        Case(
            DTCWT_ + "INV_J1",
            "inv_j1(lows[b, c, h, w], highs[b, c, 6, p, q, 2], g0[1, 1, k, 1], g1[1, 1, l, 1], "
            "o_dim: int, ri_dim: int, mode: int) -> y[b, c, h, w]",
            (real(2, 3, 8, 12), real(2, 3, 6, 4, 6, 2), *filters(INVERSE, "g0o g1o"), 2, -1, 1),
        ),
        Case(
            DTCWT_ + "INV_J2PLUS",
            "inv_j2plus(lows[b, c, h, w], highs[b, c, 6, p, q, 2], g0a[1, 1, k, 1], "
            "g1a[1, 1, k, 1], g0b[1, 1, k, 1], g1b[1, 1, k, 1], o_dim: int, ri_dim: int, "
            "mode: int) -> y[b, c, 2 * h, 2 * w]",
            (
                real(2, 3, 4, 6),
                real(2, 3, 6, 2, 3, 2),
                *filters(INVERSE, "g0a g1a g0b g1b"),
                2,
                -1,
                1,
            ),
        ),
        Case(
            SCAT + "SmoothMagFn",
            "smooth_mag(x[...], y[...], b: float) -> r[...]",
            (real(4, 3), real(4, 3), 0.01),
            note="asks x.requires_grad in forward",
        ),
        Case(
            SCAT + "ScatLayerj1_f",
            f"scat_j1(x[b, c, h, w], h0o[1, 1, k, 1], h1o[1, 1, l, 1], {SCATTERED} "
            "-> z[b, 7, c, h // 2, w // 2]",
            (real(2, 3, 16, 24), *filters(SCATTER, "h0o h1o"), 1, 0.01, False),
            note="asks x.requires_grad in forward",
        ),
        Case(
            SCAT + "ScatLayerj1_rot_f",
            "scat_j1_rot(x[b, c, h, w], h0o[1, 1, k, 1], h1o[1, 1, l, 1], h2o[1, 1, l, 1], "
            f"{SCATTERED} -> z[b, 7, c, h // 2, w // 2]",
            (real(2, 3, 16, 24), *filters(SCATTER, "h0o h1o h2o", **BANDPASS), 1, 0.01, False),
            note="asks x.requires_grad in forward",
        ),
        Case(
            SCAT + "ScatLayerj2_f",
            "scat_j2(x[b, c, h, w], h0o[1, 1, k, 1], h1o[1, 1, l, 1], h0a[1, 1, m, 1], "
            f"h0b[1, 1, m, 1], h1a[1, 1, m, 1], h1b[1, 1, m, 1], {SCATTERED} "
            "-> z[b, 49, c, h // 4, w // 4]",
            (real(2, 3, 16, 24), *filters(SCATTER, "h0o h1o h0a h0b h1a h1b"), 1, 0.01, False),
            note="asks x.requires_grad in forward",
        ),
        Case(
            SCAT + "ScatLayerj2_rot_f",
            "scat_j2_rot(x[b, c, h, w], h0o[1, 1, k, 1], h1o[1, 1, l, 1], h2o[1, 1, l, 1], "
            "h0a[1, 1, m, 1], h0b[1, 1, m, 1], h1a[1, 1, m, 1], h1b[1, 1, m, 1], "
            f"h2a[1, 1, m, 1], h2b[1, 1, m, 1], {SCATTERED} -> z[b, 49, c, h // 4, w // 4]",
            (
                real(2, 3, 16, 24),
                *filters(SCATTER, "h0o h1o h2o h0a h0b h1a h1b h2a h2b", **BANDPASS),
                1,
                0.01,
                False,
            ),
            note="asks x.requires_grad in forward",
        ),
    ),
)
