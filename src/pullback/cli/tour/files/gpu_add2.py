"""An operator that has a CUDA kernel only."""

import pullback as pb

add2 = pb.operator(
    "tour::gpu_add2(a[...], b[...]) -> c[...]",
    cuda=pb.source("gpu_add2.cu", call="launch_add2(c, a, b, numel(c))"),
    backward={"a": "grad", "b": "grad"},
)
