"""A kernel and a formula: what projects are built of in the tests, again and again."""

import pullback as pb

scale = pb.operator(
    "small::scale(x[...], k: float = 2.0) -> y[...]",
    cpu=pb.source("scale.cpp", call="scale(y, x, k, numel(x))"),
    backward={"x": "small::scale(grad, k)"},
)
smooth = pb.operator("small::smooth(x[...]) -> y[...] = tanh(x)")
