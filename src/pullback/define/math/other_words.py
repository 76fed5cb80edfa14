"""Names of other libraries, and how this language says the same, or why it cannot."""

from __future__ import annotations

# A line for each name, from the operator's parameters on.
LINES = {
    "softmax": "(x[..., n]) -> y[..., n] = t = exp(x - max[k](x[k])); y = t/sum[k](t[k])",
    "softmin": "(x[..., n]) -> y[..., n] = t = exp(min[k](x[k]) - x); y = t/sum[k](t[k])",
    "log_softmax": "(x[..., n]) -> y[..., n] = t = x - max[k](x[k]); "
    "y = t - log(sum[k](exp(t[k])))",
    "logsumexp": "(x[..., n]) -> y[...] = t = max[n](x); y = t + log(sum[n](exp(x - t)))",
    "cross_entropy": "(x[n, c], target[n]: int64) -> y[] = m = max[c](x[n, c]); "
    "t = m[n] + log(sum[c](exp(x[n, c] - m[n]))); y = mean[n](t[n] - x[n, target[n]])",
    "nll_loss": "(x[n, c], target[n]: int64) -> y[] = -mean[n](x[n, target[n]])",
    "mse_loss": "(x[n], t[n]) -> y[] = mean[n]((x - t)**2)",
    "l1_loss": "(x[n], t[n]) -> y[] = mean[n](abs(x - t))",
    "huber_loss": "(x[n], t[n]) -> y[] = d = abs(x - t); y = mean[n](where(d < 1, d*d/2, d - 1/2))",
    "norm": "(x[..., n]) -> y[...] = sqrt(sum[n](x**2))",
    "normalize": "(x[..., n]) -> y[..., n] = x/sqrt(sum[k](x[k]**2))",
    "rms_norm": "(x[..., n], w[n], eps: float) -> y[..., n] = x/sqrt(mean[k](x[k]**2) + eps)*w",
    "layer_norm": "(x[..., n], w[n], b[n], eps: float) -> y[..., n] = t = x - mean[k](x[k]); "
    "y = t/sqrt(mean[k](t[k]**2) + eps)*w + b",
    "var": "(x[..., n]) -> y[...] = m = mean[n](x); y = sum[n]((x - m)**2)/(size(n) - 1)",
    "std": "(x[..., n]) -> y[...] = m = mean[n](x); y = sqrt(sum[n]((x - m)**2)/(size(n) - 1))",
    "cosine_similarity": "(x[..., n], y[..., n]) -> z[...] = "
    "sum[n](x*y)/sqrt(sum[n](x**2)*sum[n](y**2))",
    "cdist": "(x[n, d], y[m, d]) -> z[n, m] = sqrt(sum[d]((x[n, d] - y[m, d])**2))",
    "dot": "(x[n], y[n]) -> z[] = sum[n](x*y)",
    "outer": "(x[n], y[m]) -> z[n, m] = x*y",
    "mv": "(x[n, k], v[k]) -> y[n] = sum[k](x*v)",
    "matmul": "(x[n, k], y[k, m]) -> z[n, m] = sum[k](x[n, k]*y[k, m])",
    "bmm": "(x[b, n, k], y[b, k, m]) -> z[b, n, m] = sum[k](x[b, n, k]*y[b, k, m])",
    "linear": "(x[..., i], w[o, i], b[o]) -> y[..., o] = sum[i](x*w) + b",
    "cumsum": "(x[..., n]) -> y[..., n] = pad(y[n - 1]) + x",
    "cumprod": "(x[..., n]) -> y[..., n] = y[n - 1]*x; y[-1] = 1",
    "cummax": "(x[..., n]) -> y[..., n] = maximum(y[n - 1], x); y[-1] = -inf",
    "cummin": "(x[..., n]) -> y[..., n] = minimum(y[n - 1], x); y[-1] = inf",
    "logcumsumexp": "(x[..., n]) -> y[..., n] = logaddexp(y[n - 1], x); y[-1] = -inf",
    "trace": "(x[n, n]) -> y[] = sum[i](x[i, i])",
    "diagonal": "(x[n, n]) -> y[i] = x[i, i]",
    "transpose": "(x[n, m]) -> y[m, n] = x[n, m]",
    "flip": "(x[n]) -> y[n] = x[size(n) - 1 - n]",
    "roll": "(x[n]) -> y[n] = where(n > 0, x[n - 1], x[size(n) - 1])",
    "diff": "(x[n]) -> y[i] = x[i + 1] - x[i]",
    "gather": "(x[n, m], index[n]: int64) -> y[n] = x[n, index[n]]",
    "embedding": "(table[v, d], index[n]: int64) -> y[n, d] = table[index[n], d]",
    "one_hot": "(index[n]: int64, like[c]) -> y[n, c] = float(index[n] == c) + 0*like",
    "conv1d": "(x[c, h], k[o, c, p]) -> y[o, i] = sum[c, p](x[c, i + p]*k[o, c, p])",
    "conv2d": "(x[c, h, w], k[o, c, p, q]) -> y[o, i, j] = "
    "sum[c, p, q](x[c, i + p, j + q]*k[o, c, p, q])",
    "max_pool1d": "(x[..., h]) -> y[..., i] = max[k < 2](x[2*i + k])",
    "avg_pool1d": "(x[..., h]) -> y[..., i] = mean[k < 2](x[2*i + k])",
    "tril": "(x[n, m]) -> y[n, m] = where(m <= n, x, 0)",
    "triu": "(x[n, m]) -> y[n, m] = where(m >= n, x, 0)",
    "masked_fill": "(x[n], mask[n]: bool) -> y[n] = where(mask, 0, x)",
    "argmin": "(x[n]) -> y[]: int64 = argmax[n](-x)",
    "any": "(x[n]: bool) -> y[]: bool = sum[n](x) > 0",
    "all": "(x[n]: bool) -> y[]: bool = sum[n](not x) == 0",
    "prod": "(x[n]) -> y[] = p[n] = p[n - 1]*x; p[-1] = 1; y = p[size(n) - 1]",
    "sum": "(x[..., n]) -> y[...] = sum[n](x)",
    "mean": "(x[..., n]) -> y[...] = mean[n](x)",
    "argmax": "(x[..., n]) -> y[...]: int64 = argmax[n](x)",
    "amax": "(x[..., n]) -> y[...] = max[n](x)",
    "amin": "(x[..., n]) -> y[...] = min[n](x)",
    "nan_to_num": "(x[...]) -> y[...] = where(isnan(x), 0, x)",
    "swish": "(x[...]) -> y[...] = silu(x)",
    "ln": "(x[...]) -> y[...] = log(x)",
    "cbrt": "(x[...]) -> y[...] = sign(x)*abs(x)**(1/3)",
    "glu": "(a[...], b[...]) -> y[...] = a*sigmoid(b)",
}
SAME = {
    **{"mm": "matmul", "einsum": "matmul", "tensordot": "matmul", "baddbmm": "bmm"},
    **{"inner": "dot", "vdot": "dot", "ger": "outer", "addmm": "linear", "dist": "cdist"},
    **{"max": "amax", "min": "amin", "take": "gather", "diag": "diagonal"},
    **{"index_select": "embedding", "take_along_dim": "gather", "t": "transpose"},
    **{"permute": "transpose", "swapaxes": "transpose", "variance": "var"},
    **{"rmsnorm": "rms_norm", "layernorm": "layer_norm", "l2_norm": "norm", "vector_norm": "norm"},
    **{"max_pool2d": "max_pool1d", "avg_pool2d": "avg_pool1d", "smooth_l1_loss": "huber_loss"},
    **{"log_sum_exp": "logsumexp", "conv": "conv1d", "fliplr": "flip"},
}

RANDOM = "give it random numbers as an input, noise[...]: a formula is the same in every call"
ELSEWHERE = "no formula can say it: give a function in PyTorch or NumPy, python=, and backward="
NUMBERS = "write the number: it is the same for every element"
INDEX = "an index is a number: write n*x[n]"
RECURRENCE = "an output may read itself: h[t] = a*h[t - 1] + x; h[-1] = h0 (docs/recurrences.md)"
SIZE = "write size(n), with the name of a dimension"
REASONS = {
    **dict.fromkeys(("rand", "randn", "rand_like", "randn_like", "dropout", "bernoulli"), RANDOM),
    **dict.fromkeys(("sort", "argsort", "topk", "median", "quantile", "unique", "mode"), ELSEWHERE),
    **dict.fromkeys(("kthvalue", "searchsorted", "nonzero", "bincount", "histc"), ELSEWHERE),
    **dict.fromkeys(("scan", "associative_scan", "lfilter"), RECURRENCE),
    "interp": ELSEWHERE,
    **dict.fromkeys(("inv", "inverse", "pinv", "solve", "det", "logdet", "slogdet"), ELSEWHERE),
    **dict.fromkeys(("svd", "eigh", "eig", "qr", "cholesky", "lstsq", "matrix_exp"), ELSEWHERE),
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "fft2", "stft"), ELSEWHERE),
    **dict.fromkeys(("zeros", "ones", "full", "zeros_like", "ones_like", "full_like"), NUMBERS),
    **dict.fromkeys(("arange", "linspace", "range"), INDEX),
    **dict.fromkeys(("len", "shape", "numel", "dim"), SIZE),
}


def suggest_instead(name: str) -> str | None:
    """Return what to write in place of a function that the language does not have."""
    known = SAME.get(name, name)
    if known not in LINES:
        return REASONS.get(name)
    return f"index notation says it: {LINES[known]}"
