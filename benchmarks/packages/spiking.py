"""Spiking neurons: snnTorch and Norse."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.packages.arguments import Constant, Sparse, Spikes, real
from benchmarks.packages.case import Case, Package

SURROGATE = (real(4, 6), 2.0)


def lif(*, inputs: str = "", recurrent: bool = True) -> tuple[Any, ...]:
    """Return makers of the input and the state of a neuron, and of its weights."""
    state = [real(2, 4, scale=60.0) for _ in range(2 + len(inputs.split()))]
    if not recurrent:
        return (real(2, 4), *state)
    return (Spikes((2, 3)), Spikes((2, 4)), *state, real(4, 3), real(4, 4))


SNN = "snntorch.surrogate:"
TIME = "snntorch.functional.loss:SpikeTime."
SNNTORCH = Package(
    "snntorch",
    "1.0.0",
    (
        Case(
            SNN + "StraightThroughEstimator",
            "ste(x[...]) -> y[...]",
            SURROGATE[:1],
            intentions=("straight_through",),
        ),
        Case(
            SNN + "Triangular",
            "triangular(x[...], threshold: float) -> y[...]",
            SURROGATE,
            intentions=("surrogate",),
        ),
        Case(
            SNN + "FastSigmoid",
            "fast_sigmoid(x[...], slope: float) -> y[...]",
            SURROGATE,
            intentions=("surrogate",),
        ),
        Case(
            SNN + "ATan",
            "atan(x[...], alpha: float) -> y[...]",
            SURROGATE,
            intentions=("surrogate",),
        ),
        Case(
            SNN + "Heaviside",
            "heaviside(x[...]) -> y[...]",
            SURROGATE[:1],
            intentions=("surrogate",),
        ),
        Case(
            SNN + "Sigmoid",
            "sigmoid(x[...], slope: float) -> y[...]",
            SURROGATE,
            intentions=("surrogate",),
        ),
        Case(
            SNN + "SpikeRateEscape",
            "escape(x[...], beta: float, slope: float) -> y[...]",
            (real(4, 6), 1.0, 25.0),
            intentions=("surrogate",),
        ),
        Case(
            SNN + "StochasticSpikeOperator",
            "stochastic(x[...], mean: float, variance: float) -> y[...]",
            (real(4, 6), 0.0, 0.2),
            random=True,
            intentions=("surrogate", "random_gradient"),
        ),
        Case(
            SNN + "LeakySpikeOperator",
            "leaky(x[...], slope: float) -> y[...]",
            (real(4, 6), 0.1),
            broken="its backward returns one gradient for two arguments",
            intentions=("surrogate",),
        ),
        Case(
            SNN + "SparseFastSigmoid",
            "sparse_fast_sigmoid(x[...], slope: float, B: float) -> y[...]",
            (real(4, 6), 25.0, 0.2),
            intentions=("surrogate",),
        ),
        Case(
            SNN + "CustomSurrogate",
            "custom(x[...], custom_surrogate_function: object) -> y[...]",
            refused="PB362",
        ),
        Case(
            "snntorch._neurons.leakyparallel:LeakyParallel.ATan",
            "atan_parallel(x[...], alpha: float = 2.0) -> y[...]",
            SURROGATE[:1],
            intentions=("surrogate",),
        ),
        Case(
            "snntorch._neurons.leakykernel:LeakyKernel.ATan",
            "atan_kernel(x[...], alpha: float = 2.0) -> y[...]",
            SURROGATE[:1],
            intentions=("surrogate",),
        ),
        Case(
            "snntorch._neurons.leakyunroll:LeakyParallel.ATan",
            "atan_unroll(x[...], alpha: float = 2.0) -> y[...]",
            SURROGATE[:1],
            intentions=("surrogate",),
        ),
        Case(
            TIME + "FirstSpike",
            "first_spike(spk_rec[t, b, n], device: str = 'cpu') -> y[b, n]",
            (Spikes((5, 2, 3)),),
            intentions=("surrogate",),
        ),
        Case(
            TIME + "MultiSpike",
            "multi_spike(spk_rec[t, b, n], spk_count: int, device: str = 'cpu') "
            "-> y[spk_count, b, n]",
            (Spikes((6, 2, 3)), 2),
            intentions=("surrogate",),
        ),
        Case(
            TIME + "Tolerance",
            "tolerance(spk_time[b, n], target[b, n], tolerance: int) -> y[b, n]",
            (real(2, 3), real(2, 3, grad=False), 1),
            intentions=("straight_through",),
        ),
        Case(
            "snntorch.functional.quant:StateQuant",
            "state_quant(x[b, n], levels[m]) -> y[b, n]",
            (real(2, 3), Constant([-1.0, -0.5, 0.0, 0.5, 1.0])),
            intentions=("straight_through",),
        ),
    ),
)
NORSE_THRESHOLD = "norse.torch.functional.threshold:"
ADJOINT = "norse.torch.functional.adjoint."
STATE = "input[b, m], z[b, n], v[b, n], i[b, n]"
WEIGHTS = "input_weights[n, m], recurrent_weights[n, n]"
OMITTED = "p and dt, Python objects, keep their defaults"
NORSE = Package(
    "norse",
    "1.1.0",
    (
        Case(
            "norse.torch.functional.superspike:SuperSpike",
            "superspike(x[...], alpha: float) -> y[...]",
            SURROGATE,
            note="setup_context",
            intentions=("surrogate",),
        ),
        Case(
            NORSE_THRESHOLD + "HeaviErfc",
            "heavi_erfc(x[...], k: float) -> y[...]",
            SURROGATE,
            intentions=("surrogate",),
        ),
        Case(
            NORSE_THRESHOLD + "HeaviTanh",
            "heavi_tanh(x[...], k: float) -> y[...]",
            SURROGATE,
            intentions=("surrogate",),
        ),
        Case(
            NORSE_THRESHOLD + "Logistic",
            "logistic(x[...], k: float) -> y[...]",
            SURROGATE,
            random=True,
            intentions=("surrogate",),
        ),
        Case(
            NORSE_THRESHOLD + "HeaviCirc",
            "heavi_circ(x[...], alpha: float) -> y[...]",
            SURROGATE,
            intentions=("surrogate",),
        ),
        Case(
            NORSE_THRESHOLD + "CircDist",
            "circ_dist(x[...], alpha: float) -> y[...]",
            SURROGATE,
            random=True,
            intentions=("surrogate",),
        ),
        Case(
            NORSE_THRESHOLD + "Triangle",
            "triangle(x[...], alpha: float) -> y[...]",
            SURROGATE,
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lif_adjoint:LIFAdjointFunction",
            f"lif({STATE}, {WEIGHTS}) -> (z1[b, n], v1[b, n], i1[b, n])",
            lif(),
            note=OMITTED,
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lif_adjoint:LIFSparseAdjointFunction",
            f"lif_sparse({STATE}, {WEIGHTS}) -> (z1[b, n], v1[b, n], i1[b, n])",
            (
                Sparse((2, 3)),
                Sparse((2, 4)),
                real(2, 4, scale=60.0),
                real(2, 4, scale=60.0),
                real(4, 3),
                real(4, 4),
            ),
            refused="PB119",
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lif_adjoint:LIFFeedForwardAdjointFunction",
            "lif_feed_forward(input[b, n], v[b, n], i[b, n]) -> (z1[b, n], v1[b, n], i1[b, n])",
            lif(recurrent=False),
            note=OMITTED,
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lif_adjoint:LIFFeedForwardSparseAdjointFunction",
            "lif_feed_forward_sparse(input[b, n], v[b, n], i[b, n]) "
            "-> (z1[b, n], v1[b, n], i1[b, n])",
            lif(recurrent=False),
            note="saves sparse tensors",
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lif_refrac_adjoint:LIFAdjointRefracFunction",
            f"lif_refrac({STATE}, rho[b, n], {WEIGHTS}) "
            "-> (z1[b, n], v1[b, n], i1[b, n], rho1[b, n])",
            lif(inputs="rho"),
            broken="its backward reads a parameter that there is not",
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lif_refrac_adjoint:LIFSparseAdjointRefracFunction",
            "lif_refrac_sparse(input[b, m], lif_state: object, rho[b, n], "
            f"{WEIGHTS}) -> (z1[b, n], v1[b, n], i1[b, n], rho1[b, n])",
            refused="PB362",
        ),
        Case(
            ADJOINT + "lif_refrac_adjoint:LIFAdjointRefracFeedForwardFunction",
            "lif_refrac_feed_forward(input[b, n], v[b, n], i[b, n], rho[b, n]) "
            "-> (z1[b, n], v1[b, n], i1[b, n], rho1[b, n])",
            lif(inputs="rho", recurrent=False),
            note=OMITTED,
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lsnn_adjoint:LSNNAdjointFunction",
            f"lsnn({STATE}, a[b, n], {WEIGHTS}) -> (z1[b, n], v1[b, n], i1[b, n], a1[b, n])",
            lif(inputs="a"),
            note=OMITTED,
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lsnn_adjoint:LSNNFeedForwardAdjointFunction",
            "lsnn_feed_forward(input[b, n], v[b, n], i[b, n], a[b, n]) "
            "-> (z1[b, n], v1[b, n], i1[b, n], a1[b, n])",
            lif(inputs="a", recurrent=False),
            note=OMITTED,
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lif_mc_adjoint:LIFMCAdjointFunction",
            f"lif_mc({STATE}, {WEIGHTS}, g_coupling[n, n]) -> (z1[b, n], v1[b, n], i1[b, n])",
            (*lif(), real(4, 4)),
            broken="its forward calls torch.linear, which there is not",
            intentions=("surrogate",),
        ),
        Case(
            ADJOINT + "lif_mc_refrac_adjoint:LIFMCRefracAdjointFunction",
            f"lif_mc_refrac({STATE}, rho[b, n], {WEIGHTS}, g_coupling[n, n]) "
            "-> (z1[b, n], v1[b, n], i1[b, n], rho1[b, n])",
            (*lif(inputs="rho"), real(4, 4)),
            broken="its forward calls torch.linear, which there is not",
            intentions=("surrogate",),
        ),
        Case(
            "norse.torch.functional.spikes_to_times_decoder:ToSpikeTimes",
            "to_spike_times(spikes[t, b, n], spike_count: int) -> y[spike_count, b, n]",
            (lambda: torch.ones(4, 2, 3, requires_grad=True), 2),
            intentions=("surrogate",),
        ),
    ),
)
