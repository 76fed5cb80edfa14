"""Reductions over a long index for tests: how many passes they and their gradients take."""

from __future__ import annotations

from collections.abc import Mapping

ATTENTION = "p[n, m] = exp(s[n, m] - max[r](s[n, r])); o = sum[m](p[n, m]*v[m, e])/sum[m](p[n, m])"
SCORES = "sum[d](q[n, d]*k[m, d])"
QKV = "(q[n, d], k[m, d], v[m, e]"


def attention(scores: str, more: str = "") -> str:
    """Return the line of an attention with some scores."""
    return f"f{QKV}{more}) -> o[n, e] = s[n, m] = {scores}; {ATTENTION}"


# An attention of two-dimensional positions, whose bias says how far they are apart.
POSITIONS = (
    "f(q[h, w, d], k[u, j, d], v[u, j, e], b[y, x]) -> o[h, w, e] = s[h, w, u, j] = "
    "sum[d](q[h, w, d]*k[u, j, d]) + pad(b[h - u + size(u) - 1, w - j + size(j) - 1]); "
    "p[h, w, u, j] = exp(s[h, w, u, j] - max[r, t](s[h, w, r, t])); "
    "o = sum[u, j](p[h, w, u, j]*v[u, j, e])/sum[u, j](p[h, w, u, j])"
)

# The line, the passes of its values, and those of its gradients, None if it has none; with the
# statistics of rows that they read, one less but for READING.
LINES: Mapping[str, tuple[str, int, int | None]] = {
    "plain": (attention(SCORES), 1, 2),
    "causal": (attention(f"where(m <= n, {SCORES}, -inf)"), 1, 2),
    "window": (attention(f"where((m <= n) and (n - m < 3), {SCORES}, -inf)"), 1, 2),
    "alibi": (attention(f"where(m <= n, {SCORES} - 0.1*(n - m), -inf)"), 1, 2),
    "soft-capping": (attention(f"5*tanh({SCORES}/5)"), 1, 2),
    "bias": (attention(f"{SCORES} + b[n, m]", ", b[n, m]"), 1, 2),
    "relative bias": (attention(f"{SCORES} + pad(b[n - m + 3])", ", b[c]"), 1, 2),
    "clamped bias": (attention(f"{SCORES} + pad(b[clamp(n - m, -2, 2) + 2])", ", b[c]"), 1, 2),
    "bias by data": (attention(f"{SCORES} + b[t[n, m]]", ", b[c], t[n, m]: int64"), 1, 2),
    "bias of antidiagonals": (attention(f"{SCORES} + pad(b[n + m])", ", b[n]"), 1, 2),
    "relative bias of all heads": (
        "f(q[h, n, d], k[h, m, d], v[h, m, e], b[c]) -> o[h, n, e] = s[h, n, m] = "
        "sum[d](q[h, n, d]*k[h, m, d]) + pad(b[n - m + 3]); "
        "p[h, n, m] = exp(s[h, n, m] - max[r](s[h, n, r])); "
        "o = sum[m](p[h, n, m]*v[h, m, e])/sum[m](p[h, n, m])",
        1,
        2,
    ),
    "relative bias of each head": (
        "f(q[..., n, d], k[..., m, d], v[..., m, e], b[..., c]) -> o[..., n, e] = s[..., n, m] = "
        "sum[d](q[..., n, d]*k[..., m, d]) + pad(b[..., n - m + size(m) - 1]); "
        "p[..., n, m] = exp(s[..., n, m] - max[r](s[..., n, r])); "
        "o = sum[m](p[..., n, m]*v[..., m, e])/sum[m](p[..., n, m])",
        1,
        2,
    ),
    "padding": (
        "f(q[n, d], k[m, d], v[m, e], t[n]: int64) -> o[n, e] = "
        f"s[n, m] = where(m < t[n], {SCORES}, -inf); {ATTENTION}",
        1,
        2,
    ),
    "segments": (
        attention(f"where(a[n] == b[m], {SCORES}, -inf)", ", a[n]: int64, b[m]: int64"),
        1,
        2,
    ),
    "grouped heads": (
        "f(q[..., g, h, n, d], k[..., g, m, d], v[..., g, m, e]) -> o[..., g, h, n, e] = "
        "s[..., g, h, n, m] = sum[d](q[..., g, h, n, d]*k[..., g, m, d]); "
        "p[..., g, h, n, m] = exp(s[..., g, h, n, m] - max[r](s[..., g, h, n, r])); "
        "o = sum[m](p[..., g, h, n, m]*v[..., g, m, e])/sum[m](p[..., g, h, n, m])",
        1,
        2,
    ),
    # Here the gradients sum over heads within the sum over rows: indices are sorted by name.
    "grouped heads by another name": (
        "f(q[g, u, n, d], k[g, m, d], v[g, m, e]) -> o[g, u, n, e] = "
        "s[g, u, n, m] = sum[d](q[g, u, n, d]*k[g, m, d]); "
        "p[g, u, n, m] = exp(s[g, u, n, m] - max[r](s[g, u, n, r])); "
        "o = sum[m](p[g, u, n, m]*v[g, m, e])/sum[m](p[g, u, n, m])",
        1,
        2,
    ),
    "of itself": (
        "f(x[n, d]) -> o[n, d] = s[n, m] = sum[c](x[n, c]*x[m, c]); "
        "p[n, m] = exp(s[n, m] - max[r](s[n, r])); "
        "o = sum[m](p[n, m]*x[m, d])/sum[m](p[n, m])",
        1,
        2,
    ),
    "divided inside": (
        f"f{QKV}) -> o[n, e] = s[n, m] = {SCORES}; p[n, m] = exp(s[n, m] - max[r](s[n, r])); "
        "o = sum[m](p[n, m]/sum[r](p[n, r])*v[m, e])",
        1,
        2,
    ),
    "no maximum": (
        f"f{QKV}) -> o[n, e] = s[n, m] = {SCORES}; "
        "o = sum[m](exp(s[n, m] - log(sum[r](exp(s[n, r]))))*v[m, e])",
        1,
        2,
    ),
    "sigmoid": (f"f{QKV}) -> o[n, e] = sum[m](sigmoid({SCORES})*v[m, e])", 1, 1),
    "Gaussian": (
        "f(q[n, d], k[m, d], v[m, e]) -> o[n, e] = "
        "sum[m](exp(-sum[d]((q[n, d] - k[m, d])**2))*v[m, e])",
        1,
        1,
    ),
    "distances": (attention("-sum[d]((q[n, d] - k[m, d])**2)"), 1, 2),
    "distances of each head": (
        "f(q[h, n, d], k[h, m, d], v[h, m, e], a[h]) -> o[h, n, e] = s[h, n, m] = "
        "-a[h]*sum[d](abs(q[h, n, d] - k[h, m, d])); "
        "p[h, n, m] = exp(s[h, n, m] - max[r](s[h, n, r])); "
        "o = sum[m](p[h, n, m]*v[h, m, e])/sum[m](p[h, n, m])",
        1,
        2,
    ),
    "log-sum-exp": (
        "f(q[n, d], k[m, d]) -> l[n] = s[n, m] = sum[d](q[n, d]*k[m, d]); z[n] = max[m](s[n, m]); "
        "l = z[n] + log(sum[m](exp(s[n, m] - z[n])))",
        1,
        2,
    ),
    "cross-entropy": (
        "f(x[n, d], w[m, d], t[n]: int64) -> l[n] = s[n, m] = sum[d](x[n, d]*w[m, d]); "
        "z[n] = max[m](s[n, m]); "
        "l = z[n] + log(sum[m](exp(s[n, m] - z[n]))) - sum[d](x[n, d]*w[t[n], d])",
        1,
        2,
    ),
    "all pairs": (
        "f(q[n, d], k[m, d]) -> l[] = s[n, m] = sum[d](q[n, d]*k[m, d]); "
        "t = max[n, m](s[n, m]); l = t + log(sum[n, m](exp(s[n, m] - t)))",
        2,
        2,
    ),
    "greatest of the row before": (
        f"f{QKV}) -> o[n, e] = s[n, m] = {SCORES}; z[n] = max[m](s[n, m]); "
        "o = sum[m](exp(s[n, m] - pad(z[n - 1]))*v[m, e])",
        1,
        2,
    ),
    "both ways": (
        "f(q[n, d], k[m, d]) -> (a[n], b[m]) = s[n, m] = sum[d](q[n, d]*k[m, d]); "
        "a = max[r](s[n, r]) + log(sum[m](exp(s[n, m] - max[r](s[n, r])))); "
        "b = max[i](s[i, m]) + log(sum[n](exp(s[n, m] - max[i](s[i, m]))))",
        1,
        2,
    ),
    "temperature by the norm": (
        f"f{QKV}) -> o[n, e] = s[n, m] = {SCORES}; z[n, m] = s[n, m]/sqrt(sum[r](s[n, r]**2)); "
        "o = sum[m](exp(z[n, m])*v[m, e])/sum[m](exp(z[n, m]))",
        2,
        4,
    ),
    "variance": (
        "f(q[n, d], k[m, d]) -> l[n] = s[n, m] = sum[d](q[n, d]*k[m, d]); "
        "l = sum[m]((s[n, m] - sum[r](s[n, r]))**2)",
        2,
        2,
    ),
    "greatest difference": (
        "f(q[n, d], k[m, d]) -> l[n] = s[n, m] = sum[d](q[n, d]*k[m, d]); "
        "l = max[m](tanh(s[n, m]) - sum[r](s[n, r]))",
        1,
        3,
    ),
    "greatest": (f"f(q[n, d], k[m, d]) -> a[n] = max[m]({SCORES})", 1, 1),
    "nearest": (
        "f(q[n, d], k[m, d]) -> i[n]: int64 = argmax[m](-sum[d]((q[n, d] - k[m, d])**2))",
        1,
        None,
    ),
    "row at a place": (
        f"f{QKV}) -> (o[n, e], a[n]) = o = v[argmax[m]({SCORES}), e]; a = max[m]({SCORES})",
        1,
        1,
    ),
    "places both ways": (
        "f(q[..., n, d], k[..., m, d]) -> (a[..., n], i[..., n]: int64, j[..., m]: int64) = "
        "s[..., n, m] = sum[d](q[..., n, d]*k[..., m, d]); a = max[m](s[..., n, m]); "
        "i = argmax[m](s[..., n, m]); j = argmax[n](s[..., n, m])",
        1,
        0,
    ),
    "place after a sum": (
        "f(q[n, d], k[m, d]) -> i[n]: int64 = s[n, m] = sum[d](q[n, d]*k[m, d]); "
        "i = argmax[m](where(m <= n, tanh(s[n, m]) - sum[r](s[n, r]), -inf))",
        2,
        None,
    ),
    "distances of two sets": (
        "f(q[n, d], k[m, d]) -> l[] = s[n, m] = sum[d]((q[n, d] - k[m, d])**2); "
        "l = sum[n](min[m](s[n, m])) + sum[m](min[n](s[n, m]))",
        1,
        2,
    ),
    "mean of both ways": (
        f"f(q[n, d], k[n, d], t[]) -> l[] = s[n, m] = t*{SCORES}; "
        "w[n] = max[m](s[n, m]); u[m] = max[n](s[n, m]); "
        "l = mean[n](w[n] + log(sum[m](exp(s[n, m] - w[n])))) "
        "+ mean[m](u[m] + log(sum[n](exp(s[n, m] - u[m])))) - 2*mean[n](s[n, n])",
        1,
        2,
    ),
    "mean of probabilities": (
        f"f(q[n, d], k[n, d]) -> l[] = s[n, m] = {SCORES}; "
        "l = mean[n](log(exp(s[n, n])/sum[m](exp(s[n, m])))) "
        "+ mean[n](log(exp(s[n, n])/sum[i](exp(s[i, n]))))",
        1,
        2,
    ),
    "weights too": (
        f"f{QKV}) -> (o[n, e], w[n, m]) = s[n, m] = {SCORES}; "
        "p[n, m] = exp(s[n, m] - max[r](s[n, r])); w = p[n, m]/sum[r](p[n, r]); "
        "o = sum[m](p[n, m]*v[m, e])/sum[m](p[n, m])",
        2,
        2,
    ),
}

# The passes of gradients that read statistics, if they are not one less: None if there are none.
READING = {
    **dict.fromkeys(["sigmoid", "Gaussian", "nearest", "places both ways", "place after a sum"]),
    # The first row has no row before it.
    "greatest of the row before": None,
    # Each place is a pass of its own.
    "greatest difference": 1,
    # The sum of the rows' gradients is no statistic of the values.
    **{"no maximum": 2, "variance": 2, "temperature by the norm": 2},
}

SIZES = {"n": 7, "m": 7, "d": 3, "e": 4, "c": 5, "h": 3, "g": 2, "u": 3, "...": 2}
