"""The operator of a C++ function and a CUDA kernel that add: one line for both devices."""

import pullback as pb

add2 = pb.operator(
    "examples::add2(a[...], b[...]) -> c[...]",
    cpu=pb.source("add2.cpp", call="launch_add2(c, a, b, numel(c))"),
    cuda=pb.source("add2.cu", call="launch_add2(c, a, b, numel(c), stream)"),
    backward={"a": "grad", "b": "grad"},
)
