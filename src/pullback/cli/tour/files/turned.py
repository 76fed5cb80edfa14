"""A CUDA kernel with a race: a __syncthreads() is missing."""

import pullback as pb

turned = pb.operator(
    "tour::turned(x[n]) -> y[n]",
    cuda=pb.source("turned.cu", call="launch_turn(y, x, n)"),
)
