"""One operator of each kind: what a wheel or a project is built of in the tests."""

import pullback as pb

__version__ = "1.2"

scale = pb.operator(
    "sample::scale(x[...], k: float = 2.0) -> y[...]",
    cpu=pb.source("scale.cpp", call="scale(y, x, k, numel(x))"),
    backward={"x": "sample::scale(grad, k)"},
)
bell = pb.operator("sample::bell(x[..., n], s[n]?) -> y[..., n] = exp(-x*x) + s")
doubled = pb.operator("sample::doubled(x[...]) -> y[...]", python=lambda x: 2 * x)
sums = pb.operator("sample::sums(x[n], y[m]) -> u[n] = sum[m]((x[n] - y[m])**3)")
