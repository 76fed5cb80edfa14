"""Functions of packages on PyPI, adopted as they are: `python -m benchmarks.packages`.

Each is compared with its own `apply`, in values and in all gradients: in eager mode, compiled, in
`torch.func` and under `torch.vmap`. `--write` renews the tables in `docs/packages.md`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from torch import Tensor

import pullback as pb
from benchmarks.measure import console, show

PAGE = Path(__file__).parents[1] / "docs" / "packages.md"
BEGIN, END = "<!-- written by benchmarks/packages.py -->", "<!-- end of what is written -->"
SAMPLES = 3
TOLERANCE = 1e-5  # of float32, relative to the largest value; most are equal bit by bit
EQUAL = "="


# --- Example arguments: a maker is called, any other value is passed as it is.


@dataclass(frozen=True)
class Real:
    """Normally distributed numbers, whose gradient is compared."""

    shape: tuple[int, ...]
    grad: bool = True
    scale: float = 1.0
    dtype: torch.dtype = torch.float32

    def __call__(self) -> Tensor:
        return (torch.randn(self.shape, dtype=self.dtype) * self.scale).requires_grad_(self.grad)


@dataclass(frozen=True)
class Definite:
    """A symmetric positive definite matrix times `scale`, or its Cholesky factor."""

    size: int
    scale: float = 1.0
    factor: bool = False

    def __call__(self) -> Tensor:
        root = torch.randn(self.size, self.size)
        matrix = root @ root.T + self.size * torch.eye(self.size)
        made = torch.linalg.cholesky(matrix) if self.factor else matrix * self.scale
        return made.requires_grad_()


@dataclass(frozen=True)
class Symmetric:
    """A symmetric matrix."""

    size: int

    def __call__(self) -> Tensor:
        root = torch.randn(self.size, self.size)
        return (root + root.T).requires_grad_()


@dataclass(frozen=True)
class Spikes:
    """Zeros and ones, as floating-point numbers."""

    shape: tuple[int, ...]

    def __call__(self) -> Tensor:
        return (torch.rand(self.shape) < 0.4).float().requires_grad_()


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix, without a gradient."""

    shape: tuple[int, int]
    grad: bool = False

    def __call__(self) -> Tensor:
        return torch.randn(self.shape).relu().to_sparse().requires_grad_(self.grad)


@dataclass(frozen=True)
class Whole:
    """Integers below `limit`."""

    limit: int
    shape: tuple[int, ...]

    def __call__(self) -> Tensor:
        return torch.randint(self.limit, self.shape)


@dataclass(frozen=True)
class Constant:
    """A tensor of given values, without a gradient."""

    values: Any

    def __call__(self) -> Tensor:
        return torch.tensor(self.values)


@dataclass(frozen=True)
class Buffer:
    """An attribute of a module of the package itself: its filters, its tables."""

    module: str
    names: str
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        module = found(self.module)(**self.options)
        tensors = [getattr(module, name).detach() for name in self.names.split()]
        return tensors[0] if len(tensors) == 1 else tensors


@dataclass(frozen=True)
class Case:
    """A Function, the line it is adopted with, and arguments for it.

    Attributes:
        function: its import path; `module:factory()` where a factory returns its `apply`.
        line: without a namespace.
        arguments: makers and plain values.
        refused: the code of the error that adoption, or the first call, raises.
        broken: what the original says when it is called, or differentiated, by itself.
        random: whether it draws random numbers, so that `vmap` need not agree with a loop.
        loses: whether its forward goes wrong in a compiled program behind any operator.
        note: what a reader should know.
    """

    function: str
    line: str
    arguments: tuple[Any, ...] = ()
    refused: str | None = None
    broken: str | None = None
    random: bool = False
    loses: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        """The class's name, with the class around it if there is one."""
        return self.function.partition(":")[2]


@dataclass(frozen=True)
class Package:
    """A package, the version that the table was made with, and its Functions."""

    name: str
    version: str
    cases: tuple[Case, ...]

    @property
    def namespace(self) -> str:
        """Where its operators are registered."""
        return "packages_" + re.sub(r"\W", "_", self.name)

    @cached_property
    def installed(self) -> str | None:
        """The version that is installed."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None


def real(*shape: int, scale: float = 1.0, grad: bool = True) -> Real:
    """Return a maker of random numbers."""
    return Real(shape, scale=scale, grad=grad)


def image(*shape: int, grad: bool = True) -> Real:
    """Return a maker of random complex numbers."""
    return Real(shape, dtype=torch.complex64, grad=grad)


def found(path: str) -> Any:
    """Return what an import path names."""
    module, _, attributes = path.partition(":")
    value: Any = importlib.import_module(module)
    for name in attributes.removesuffix("()").split("."):
        value = getattr(value, name)
    return value(None).__self__ if path.endswith("()") else value


# --- The table.

SURROGATE = (real(4, 6), 2.0)
DTCWT, INVERSE = "pytorch_wavelets:DTCWTForward", "pytorch_wavelets:DTCWTInverse"
SCATTER = "pytorch_wavelets.scatternet:ScatLayerj2"
BANDPASS = {"biort": "near_sym_b_bp", "qshift": "qshift_b_bp"}


def filters(module: str, names: str, **options: Any) -> tuple[Buffer, ...]:
    """Return makers of the filters of a wavelet transform."""
    return tuple(Buffer(module, name, options) for name in names.split())


def lif(*, inputs: str = "", recurrent: bool = True) -> tuple[Any, ...]:
    """Return makers of the input and the state of a neuron, and of its weights."""
    state = [real(2, 4, scale=60.0) for _ in range(2 + len(inputs.split()))]
    if not recurrent:
        return (real(2, 4), *state)
    return (Spikes((2, 3)), Spikes((2, 4)), *state, real(4, 3), real(4, 4))


KB = "torchkbnufft:KbInterp"
KB_OPTIONS = {"im_size": (4, 4), "grid_size": (8, 8)}


def tables() -> tuple[Any, ...]:
    """Return makers of what a non-uniform FFT interpolates with."""
    names = ("n_shift", "numpoints", "table_oversamp", "offsets")
    return (
        Buffer(KB, "table_0 table_1", KB_OPTIONS),
        *(Buffer(KB, name, KB_OPTIONS) for name in names),
    )


ENTMAX = Package(
    "entmax",
    "1.3",
    (
        Case(
            "entmax.activations:SparsemaxFunction",
            "sparsemax(x[n, d], dim: int = -1, k: int?) -> y[n, d]",
            (real(3, 7), -1, None),
        ),
        Case(
            "entmax.activations:Entmax15Function",
            "entmax15(x[n, d], dim: int = 0, k: int?) -> y[n, d]",
            (real(3, 7), -1, 4),
        ),
        Case(
            "entmax.root_finding:EntmaxBisectFunction",
            "entmax_bisect(x[n, d], alpha[n, 1], dim: int = -1, n_iter: int = 50, "
            "ensure_sum_one: bool = True) -> y[n, d]",
            (real(3, 7), lambda: torch.tensor([[1.3], [1.5], [2.5]], requires_grad=True)),
        ),
        Case(
            "entmax.root_finding:SparsemaxBisectFunction",
            "sparsemax_bisect(x[n, d], dim: int = -1, n_iter: int = 50) -> y[n, d]",
            (real(3, 7),),
        ),
        Case(
            "entmax.root_finding:NormmaxBisectFunction",
            "normmax_bisect(x[n, d], alpha: float = 2.0, dim: int = -1) -> y[n, d]",
            (real(3, 7), 1.7),
        ),
        Case(
            "entmax.root_finding:BudgetBisectFunction",
            "budget_bisect(x[n, d], budget: float = 2.0, dim: int = -1) -> y[n, d]",
            (real(3, 7),),
        ),
        Case(
            "entmax.losses:SparsemaxLossFunction",
            "sparsemax_loss(x[n, d], target[n]: int64, k: int?) -> loss[n]",
            (real(4, 6), Whole(6, (4,)), 3),
        ),
        Case(
            "entmax.losses:SparsemaxBisectLossFunction",
            "sparsemax_bisect_loss(x[n, d], target[n]: int64, n_iter: int = 50) -> loss[n]",
            (real(4, 6), Whole(6, (4,))),
        ),
        Case(
            "entmax.losses:Entmax15LossFunction",
            "entmax15_loss(x[n, d], target[n]: int64, k: int?) -> loss[n]",
            (real(4, 6), Whole(6, (4,))),
        ),
        Case(
            "entmax.losses:EntmaxBisectLossFunction",
            "entmax_bisect_loss(x[n, d], target[n]: int64, alpha: float = 1.5, n_iter: int = 50) "
            "-> loss[n]",
            (real(4, 6), Whole(6, (4,))),
        ),
        Case(
            "entmax.losses:NormmaxBisectLossFunction",
            "normmax_bisect_loss(x[n, d], target[n]: int64, alpha: float = 2.0, n_iter: int = 50) "
            "-> loss[n]",
            (real(4, 6), Whole(6, (4,))),
        ),
        Case(
            "entmax.losses:_GenericLossFunction",
            "generic_loss(x[n, d], target[n]: int64, alpha: float, proj_args: object) -> loss[n]",
            refused="PB362",
            note="the base class of the five above",
        ),
    ),
)

SMALL = (
    Package(
        "pytorch-revgrad",
        "0.2.0",
        (
            Case(
                "pytorch_revgrad.functional:RevGrad",
                "revgrad(x[...], alpha[]) -> y[...]",
                (real(4, 3), Constant(0.7)),
            ),
        ),
    ),
    Package(
        "sparsemax",
        "0.1.9",
        (
            Case(
                "sparsemax.sparsemax:SparsemaxFunction",
                "sparsemax(x[n, d], dim: int = -1) -> y[n, d]",
                (real(3, 7), -1),
            ),
            Case(
                "sparsemax.sparsemax:SparsemaxFunction",
                "sparsemax3(x[a, b, d], dim: int = -1) -> y[a, b, d]",
                (real(2, 3, 7), 1),
                note="three dimensions",
            ),
        ),
    ),
    Package(
        "diffsort",
        "0.2.0",
        (
            Case(
                "diffsort.functional:NormalCDF",
                "normal_cdf(x[...], sigma: float) -> y[...]",
                (real(4, 3), 0.7),
            ),
        ),
    ),
    Package(
        "e3nn",
        "0.6.0",
        (
            Case(
                "e3nn.math._soft_unit_step:_SoftUnitStep",
                "soft_unit_step(x[...]) -> y[...]",
                (real(4, 3),),
            ),
        ),
    ),
    Package(
        "pysdtw",
        "0.0.5",
        (
            Case(
                "pysdtw.sdtw_cpu:SoftDTWcpu",
                "soft_dtw(d[b, m, n], lengths[b, 2]: int64, gamma: float, bandwidth: float) "
                "-> y[b]",
                (real(2, 5, 6), Constant([[5, 6], [5, 6]]), 1.0, 0.0),
                note="numba inside",
            ),
            Case(
                "pysdtw.sdtw_cuda:SoftDTWcuda",
                "soft_dtw_cuda(d[b, m, n], lengths[b, 2]: int64, gamma: float, bandwidth: float) "
                "-> y[b]",
                (real(2, 5, 6), Constant([[5, 6], [5, 6]]), 1.0, 0.0),
                broken="needs a GPU",
            ),
        ),
    ),
)

SNN = "snntorch.surrogate:"
TIME = "snntorch.functional.loss:SpikeTime."
SNNTORCH = Package(
    "snntorch",
    "1.0.0",
    (
        Case(SNN + "StraightThroughEstimator", "ste(x[...]) -> y[...]", SURROGATE[:1]),
        Case(SNN + "Triangular", "triangular(x[...], threshold: float) -> y[...]", SURROGATE),
        Case(SNN + "FastSigmoid", "fast_sigmoid(x[...], slope: float) -> y[...]", SURROGATE),
        Case(SNN + "ATan", "atan(x[...], alpha: float) -> y[...]", SURROGATE),
        Case(SNN + "Heaviside", "heaviside(x[...]) -> y[...]", SURROGATE[:1]),
        Case(SNN + "Sigmoid", "sigmoid(x[...], slope: float) -> y[...]", SURROGATE),
        Case(
            SNN + "SpikeRateEscape",
            "escape(x[...], beta: float, slope: float) -> y[...]",
            (real(4, 6), 1.0, 25.0),
        ),
        Case(
            SNN + "StochasticSpikeOperator",
            "stochastic(x[...], mean: float, variance: float) -> y[...]",
            (real(4, 6), 0.0, 0.2),
            random=True,
        ),
        Case(
            SNN + "LeakySpikeOperator",
            "leaky(x[...], slope: float) -> y[...]",
            (real(4, 6), 0.1),
            broken="its backward returns one gradient for two arguments",
        ),
        Case(
            SNN + "SparseFastSigmoid",
            "sparse_fast_sigmoid(x[...], slope: float, B: float) -> y[...]",
            (real(4, 6), 25.0, 0.2),
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
        ),
        Case(
            "snntorch._neurons.leakykernel:LeakyKernel.ATan",
            "atan_kernel(x[...], alpha: float = 2.0) -> y[...]",
            SURROGATE[:1],
        ),
        Case(
            "snntorch._neurons.leakyunroll:LeakyParallel.ATan",
            "atan_unroll(x[...], alpha: float = 2.0) -> y[...]",
            SURROGATE[:1],
        ),
        Case(
            TIME + "FirstSpike",
            "first_spike(spk_rec[t, b, n], device: str = 'cpu') -> y[b, n]",
            (Spikes((5, 2, 3)),),
        ),
        Case(
            TIME + "MultiSpike",
            "multi_spike(spk_rec[t, b, n], spk_count: int, device: str = 'cpu') "
            "-> y[spk_count, b, n]",
            (Spikes((6, 2, 3)), 2),
        ),
        Case(
            TIME + "Tolerance",
            "tolerance(spk_time[b, n], target[b, n], tolerance: int) -> y[b, n]",
            (real(2, 3), real(2, 3, grad=False), 1),
        ),
        Case(
            "snntorch.functional.quant:StateQuant",
            "state_quant(x[b, n], levels[m]) -> y[b, n]",
            (real(2, 3), Constant([-1.0, -0.5, 0.0, 0.5, 1.0])),
        ),
    ),
)

STE = "brevitas.ops.autograd_ste_ops:"
BREVITAS = Package(
    "brevitas",
    "0.13.4",
    (
        Case(
            STE + "ScalarClampSteFn",
            "scalar_clamp(x[...], min_val: float, max_val: float) -> y[...]",
            (real(4, 3), -0.5, 0.5),
        ),
        Case(
            STE + "ScalarClampMinSteFn",
            "scalar_clamp_min(x[...], min_val: float) -> y[...]",
            (real(4, 3), -0.5),
        ),
        Case(
            STE + "TensorClampSteFn",
            "tensor_clamp(x[...], min_val[...], max_val[...]) -> y[...]",
            (real(4, 3), Constant([[-0.5]] * 4), Constant(0.5)),
        ),
        Case(
            STE + "InplaceTensorClampSteFn",
            "tensor_clamp_(x[n, d], min_val[], max_val[]) -> x[n, d]",
            (real(4, 3), Constant(-0.5), Constant(0.5)),
            refused="PB375",
            note="changes its input without mark_dirty",
        ),
        Case(STE + "RoundToZeroSteFn", "round_to_zero(x[...]) -> y[...]", (real(4, 3),)),
        Case(STE + "DPURoundSteFn", "dpu_round(x[...]) -> y[...]", (real(4, 3),)),
        Case(STE + "CeilSteFn", "ceil(x[...]) -> y[...]", (real(4, 3),)),
        Case(STE + "FloorSteFn", "floor(x[...]) -> y[...]", (real(4, 3),)),
        Case(STE + "BinarySignSteFn", "binary_sign(x[...]) -> y[...]", (real(4, 3),)),
        Case(STE + "TernarySignSteFn", "ternary_sign(x[...]) -> y[...]", (real(4, 3),)),
        Case(STE + "RoundSteFn", "round(x[...]) -> y[...]", (real(4, 3),)),
        Case(STE + "AbsBinarySignGradFn", "abs_sign_grad(x[...]) -> y[...]", (real(4, 3),)),
        Case(
            "brevitas.core.function_wrapper.stochastic_round:stochastic_round_ste_fn()",
            "stochastic_round(x[...]) -> y[...]",
            (real(4, 3),),
            random=True,
        ),
    ),
)

GP = "gpytorch.variational."
GPYTORCH = Package(
    "gpytorch",
    "1.15.2",
    (
        Case(
            "gpytorch.functions._log_normal_cdf:LogNormalCDF",
            "log_normal_cdf(z[...]) -> y[...]",
            (real(4, 6),),
        ),
        Case(
            "gpytorch.functions.matern_covariance:MaternCovariance",
            "matern(x1[n, d], x2[m, d], lengthscale[1, 1], nu: float, dist_func: object) "
            "-> k[n, m]",
            refused="PB362",
        ),
        Case(
            "gpytorch.functions.rbf_covariance:RBFCovariance",
            "rbf(x1[n, d], x2[m, d], lengthscale[1, 1], sq_dist_func: object) -> k[n, m]",
            refused="PB362",
        ),
        Case(
            GP + "variational_strategy:ComputePredictiveUpdates",
            "predictive_updates(chol[m, m], induc_data_covar[m, n], middle[m, m], "
            "inducing_values[m]) -> (mean[n], variance[n])",
            (Definite(4, factor=True), real(4, 5), Symmetric(4), real(4)),
        ),
        Case(
            GP + "natural_variational_distribution:_NaturalToMuVarSqrt",
            "natural(nat_mean[m], nat_covar[m, m]) -> (mu[m], root[m, m])",
            (real(4), Definite(4, scale=-0.5)),
        ),
        Case(
            GP + "tril_natural_variational_distribution:_TrilNaturalToMuVarSqrt",
            "tril_natural(nat_mean[m], tril_nat_covar[m, m]) -> (mu[m], root[m, m])",
            (real(4), Definite(4, factor=True)),
        ),
        Case(
            GP + "ciq_variational_strategy:_NgdInterpTerms",
            "ngd_interp_terms(interp_term[m, n], natural_vec[m], natural_mat[m, m]) "
            "-> (mean[n], variance[n], kl[])",
            (real(4, 5), real(4), Definite(4, scale=-0.5)),
        ),
        Case(
            GP + "large_batch_variational_strategy:QuadFormDiagonal",
            "quad_form_diagonal(matrix[m, m], rhs[m, n]) -> y[n]",
            (Symmetric(4), real(4, 5)),
        ),
    ),
)

TREE = "linear_operator.functions."
LINEAR_OPERATOR = Package(
    "linear-operator",
    "0.6.1",
    (
        Case(
            TREE + "_dsmm:DSMM",
            "dsmm(sparse[n, m], dense[m, k]) -> y[n, k]",
            (Sparse((4, 5)), real(5, 3)),
            refused="PB119",
        ),
        *(
            Case(TREE + path, f"{path[1:].partition(':')[0]}({line}", refused="PB362")
            for path, line in (
                (
                    "_diagonalization:Diagonalization",
                    "representation_tree: object, device: object, dtype: object, "
                    "matrix_shape: object, max_iter: int, batch_shape: object, "
                    "matrix_args[*]*) -> (evals[n], evecs[n, n])",
                ),
                ("_inv_quad:InvQuad", "representation_tree: object, args[*]*) -> y[]"),
                (
                    "_inv_quad_logdet:InvQuadLogdet",
                    "representation_tree: object, precond_representation_tree: object, "
                    "preconditioner: object, num_precond_args: int, inv_quad: bool, "
                    "probe_vectors[n, p]?, probe_vector_norms[1, p]?, args[*]*) "
                    "-> (inv_quad[], logdet[])",
                ),
                (
                    "_matmul:Matmul",
                    "representation_tree: object, rhs[n, k], matrix_args[*]*) -> y[n, k]",
                ),
                (
                    "_pivoted_cholesky:PivotedCholesky",
                    "representation_tree: object, max_iter: int, error_tol: float?, "
                    "matrix_args[*]*) -> y[n, max_iter]",
                ),
                (
                    "_root_decomposition:RootDecomposition",
                    "representation_tree: object, max_iter: int, dtype: object, device: object, "
                    "batch_shape: object, matrix_shape: object, root: bool, inverse: bool, "
                    "initial_vectors[n]?, matrix_args[*]*) -> (root[n, n], inverse[n, n])",
                ),
                (
                    "_solve:Solve",
                    "representation_tree: object, has_left: bool, args[*]*) -> y[n, k]",
                ),
                (
                    "_sqrt_inv_matmul:SqrtInvMatmul",
                    "representation_tree: object, rhs[n, k], lhs[k, n]?, matrix_args[*]*) "
                    "-> y[n, k]",
                ),
            )
        ),
    ),
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
        ),
        Case(NORSE_THRESHOLD + "HeaviErfc", "heavi_erfc(x[...], k: float) -> y[...]", SURROGATE),
        Case(NORSE_THRESHOLD + "HeaviTanh", "heavi_tanh(x[...], k: float) -> y[...]", SURROGATE),
        Case(
            NORSE_THRESHOLD + "Logistic",
            "logistic(x[...], k: float) -> y[...]",
            SURROGATE,
            random=True,
        ),
        Case(
            NORSE_THRESHOLD + "HeaviCirc", "heavi_circ(x[...], alpha: float) -> y[...]", SURROGATE
        ),
        Case(
            NORSE_THRESHOLD + "CircDist",
            "circ_dist(x[...], alpha: float) -> y[...]",
            SURROGATE,
            random=True,
        ),
        Case(NORSE_THRESHOLD + "Triangle", "triangle(x[...], alpha: float) -> y[...]", SURROGATE),
        Case(
            ADJOINT + "lif_adjoint:LIFAdjointFunction",
            f"lif({STATE}, {WEIGHTS}) -> (z1[b, n], v1[b, n], i1[b, n])",
            lif(),
            note=OMITTED,
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
        ),
        Case(
            ADJOINT + "lif_adjoint:LIFFeedForwardAdjointFunction",
            "lif_feed_forward(input[b, n], v[b, n], i[b, n]) -> (z1[b, n], v1[b, n], i1[b, n])",
            lif(recurrent=False),
            note=OMITTED,
        ),
        Case(
            ADJOINT + "lif_adjoint:LIFFeedForwardSparseAdjointFunction",
            "lif_feed_forward_sparse(input[b, n], v[b, n], i[b, n]) "
            "-> (z1[b, n], v1[b, n], i1[b, n])",
            lif(recurrent=False),
            note="saves sparse tensors",
        ),
        Case(
            ADJOINT + "lif_refrac_adjoint:LIFAdjointRefracFunction",
            f"lif_refrac({STATE}, rho[b, n], {WEIGHTS}) "
            "-> (z1[b, n], v1[b, n], i1[b, n], rho1[b, n])",
            lif(inputs="rho"),
            broken="its backward reads a parameter that there is not",
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
        ),
        Case(
            ADJOINT + "lsnn_adjoint:LSNNAdjointFunction",
            f"lsnn({STATE}, a[b, n], {WEIGHTS}) -> (z1[b, n], v1[b, n], i1[b, n], a1[b, n])",
            lif(inputs="a"),
            note=OMITTED,
        ),
        Case(
            ADJOINT + "lsnn_adjoint:LSNNFeedForwardAdjointFunction",
            "lsnn_feed_forward(input[b, n], v[b, n], i[b, n], a[b, n]) "
            "-> (z1[b, n], v1[b, n], i1[b, n], a1[b, n])",
            lif(inputs="a", recurrent=False),
            note=OMITTED,
        ),
        Case(
            ADJOINT + "lif_mc_adjoint:LIFMCAdjointFunction",
            f"lif_mc({STATE}, {WEIGHTS}, g_coupling[n, n]) -> (z1[b, n], v1[b, n], i1[b, n])",
            (*lif(), real(4, 4)),
            broken="its forward calls torch.linear, which there is not",
        ),
        Case(
            ADJOINT + "lif_mc_refrac_adjoint:LIFMCRefracAdjointFunction",
            f"lif_mc_refrac({STATE}, rho[b, n], {WEIGHTS}, g_coupling[n, n]) "
            "-> (z1[b, n], v1[b, n], i1[b, n], rho1[b, n])",
            (*lif(inputs="rho"), real(4, 4)),
            broken="its forward calls torch.linear, which there is not",
        ),
        Case(
            "norse.torch.functional.spikes_to_times_decoder:ToSpikeTimes",
            "to_spike_times(spikes[t, b, n], spike_count: int) -> y[spike_count, b, n]",
            (lambda: torch.ones(4, 2, 3, requires_grad=True), 2),
        ),
    ),
)

BLOCK = "xin[b, c, h, w], Fm: object, Gm: object, weights[*]*) -> y[b, c, h, w]"
OBJECTS = (
    Package(
        "memcnn",
        "1.5.2",
        (
            *(
                Case(f"memcnn.models.{kind}:{name}", f"{kind}{index}({BLOCK}", refused="PB362")
                for kind in ("additive", "affine")
                for index, name in enumerate(
                    f"{kind.title()}Block{inverse}Function{second}"
                    for second in ("", "2")
                    for inverse in ("", "Inverse")
                )
            ),
            Case(
                "memcnn.models.revop:InvertibleCheckpointFunction",
                "checkpoint(fn: object, fn_inverse: object, keep_input: bool, num_bwd_passes: int, "
                "preserve_rng_state: bool, num_inputs: int, inputs_and_weights[*]*) -> y[n]",
                refused="PB362",
            ),
        ),
    ),
    Package(
        "revtorch",
        "0.2.4",
        (
            Case(
                "revtorch.revtorch:_ReversibleModuleFunction",
                "reversible(x[b, c], reversible_blocks: object, eagerly_discard: bool) -> y[b, c]",
                refused="PB362",
            ),
        ),
    ),
    Package(
        "torchdiffeq",
        "0.2.5",
        (
            Case(
                "torchdiffeq._impl.misc:_StitchGradient",
                "stitch_gradient(x1[n, d], out[n, d]) -> y[n, d]",
                (real(4, 3), real(4, 3, grad=False)),
            ),
            Case(
                "torchdiffeq._impl.rk_common:_UncheckedAssign",
                "unchecked_assign(scratch[n, k], value[k], index: int) -> scratch[n, k]",
                (real(4, 3), real(3), 1),
                refused="PB375",
                note="changes its input without mark_dirty",
            ),
            Case(
                "torchdiffeq._impl.odeint:ImplicitFnGradientRerouting",
                "rerouting(func: object, event_fn: object, event_t[], state_t[n]) "
                "-> (event_t1[], state_t1[n])",
                refused="PB362",
            ),
            Case(
                "torchdiffeq._impl.adjoint:OdeintAdjointMethod",
                "odeint(shapes: object, func: object, y0[n], t[k], rtol: float, atol: float, "
                "method: str, options: object, event_fn: object, adjoint_rtol: float, "
                "adjoint_atol: float, adjoint_method: str, adjoint_options: object, "
                "t_requires_grad: bool, adjoint_params[*]*) -> y[k, n]",
                refused="PB362",
            ),
        ),
    ),
    Package(
        "torchsde",
        "0.2.6",
        (
            Case(
                "torchsde._core.adjoint:_SdeintAdjointMethod",
                "sdeint(sde: object, ts[k], dt: float, bm: object, solver: object, method: str, "
                "adjoint_method: str, adjoint_adaptive: bool, adjoint_rtol: float, "
                "adjoint_atol: float, dt_min: float, adjoint_options: object, len_extras: int, "
                "y0[b, n], extras[*]*) -> y[k, b, n]",
                refused="PB362",
            ),
        ),
    ),
    Package(
        "xitorch",
        "0.5.1",
        (
            Case(
                "xitorch._impls.linalg.symeig:degen_symeig",
                "degen_symeig(A[n, n]) -> (eival[n], eivec[n, n])",
                (Symmetric(4),),
            ),
            Case(
                "xitorch.integrate.quad:_Quadrature",
                "quad(fcn: object, xl[], xu[], fwd_options: object, bck_options: object, "
                "nparams: int, dtype: object, device: object, all_params[*]*) -> y[n]",
                refused="PB362",
            ),
            Case(
                "xitorch.integrate.solve_ivp:_SolveIVP",
                "solve_ivp(pfcn: object, ts[k], fwd_options: object, bck_options: object, "
                "nparams: int, y0[n], allparams[*]*) -> y[k, n]",
                refused="PB362",
            ),
            Case(
                "xitorch.integrate.mcquad:_MCQuad",
                "mcquad(ffcn: object, log_pfcn: object, x0[n], xsamples[s, n]?, wsamples[s]?, "
                "method: object, fwd_options: object, bck_options: object, nfparams: int, "
                "nf_objparams: int, npparams: int, all_fpparams[*]*) -> y[n]",
                refused="PB362",
            ),
            Case(
                "xitorch.linalg.solve:solve_torchfcn",
                "solve(A: object, B[n, k], E[k]?, M: object, method: object, "
                "fwd_options: object, bck_options: object, na: int, all_params[*]*) -> x[n, k]",
                refused="PB362",
            ),
            Case(
                "xitorch.linalg.symeig:symeig_torchfcn",
                "symeig(A: object, neig: int, mode: str, M: object, fwd_options: object, "
                "bck_options: object, na: int, amparams[*]*) -> (evals[neig], evecs[n, neig])",
                refused="PB362",
            ),
            Case(
                "xitorch.optimize.rootfinder:_RootFinder",
                "rootfinder(fcn: object, y0[n], fwd_fcn: object, alg_type: str, options: object, "
                "bck_options: object, nparams: int, allparams[*]*) -> y[n]",
                refused="PB362",
            ),
        ),
    ),
)

PACKAGES = (
    ENTMAX,
    *SMALL,
    SNNTORCH,
    BREVITAS,
    GPYTORCH,
    LINEAR_OPERATOR,
    TORCHKBNUFFT,
    WAVELETS,
    NORSE,
    *OBJECTS,
)


# --- Running a Function, whatever calls it.

Values = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Arguments:
    """Arguments of one call, of which some are differentiated."""

    values: tuple[Any, ...]

    @staticmethod
    def made(makers: Sequence[Any], seed: int) -> Arguments:
        """Return arguments from the random numbers of a seed."""
        torch.manual_seed(seed)
        return Arguments(tuple(made(maker) for maker in makers))

    @property
    def wanted(self) -> list[int]:
        """Which are differentiated."""
        return [i for i, v in enumerate(self.values) if isinstance(v, Tensor) and v.requires_grad]

    @property
    def tensors(self) -> list[Tensor]:
        """Those that are differentiated."""
        return [self.values[index] for index in self.wanted]

    def differentiating(self, tensors: Sequence[Tensor]) -> Arguments:
        """Return the same arguments, with others in place of those that are differentiated."""
        values = list(self.values)
        for index, tensor in zip(self.wanted, tensors, strict=True):
            values[index] = tensor
        return Arguments(tuple(values))

    def call(self, run: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        """Return a function of the differentiated arguments alone."""

        def called(*tensors: Tensor) -> tuple[Tensor, ...]:
            returned = run(*self.differentiating(tensors).values)
            return (returned,) if isinstance(returned, Tensor) else tuple(returned)

        return called


def made(maker: Any) -> Any:
    """Return what a maker makes; a tuple of them makes a tuple."""
    if isinstance(maker, tuple):
        return tuple(made(each) for each in maker)
    return maker() if callable(maker) else maker


def cotangents(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return seeded random gradients of the outputs."""
    torch.manual_seed(11)
    return [torch.randn(output.shape, dtype=output.dtype) for output in outputs]


def pulled(run: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor]) -> Values:
    """Return the outputs and all gradients, by PyTorch's engine."""
    torch.manual_seed(7)
    outputs = run(*tensors)
    pairs = [(o, g) for o, g in zip(outputs, cotangents(outputs), strict=True) if o.requires_grad]
    torch.manual_seed(7)
    gradients = torch.autograd.grad(
        [o for o, _ in pairs], tensors, [g for _, g in pairs], allow_unused=True
    )
    return (*(o.detach() for o in outputs), *gradients)


def pulled_by_func(run: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor]) -> Values:
    """Return the outputs and all gradients, by `torch.func.vjp`."""
    torch.manual_seed(7)
    outputs, pull = torch.func.vjp(run, *(t.detach() for t in tensors))[:2]
    gradients = cotangents(outputs)
    torch.manual_seed(7)
    return (*outputs, *pull(tuple(gradients)))


def compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled without a graph break."""
    torch._dynamo.reset()
    return torch.compile(run, fullgraph=True, backend="aot_eager")


def stacked(samples: Sequence[Arguments]) -> list[Tensor]:
    """Return the differentiated arguments of several calls as one batch."""
    rows = [[t.detach() for t in sample.tensors] for sample in samples]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


# --- Comparing.


def difference(first: Tensor | None, second: Tensor | None) -> float:
    """Return how far two tensors are apart, relative to the largest value; 0 if bit by bit equal.

    A gradient that is None is one of zeros.
    """
    if first is None or second is None:
        given = first if second is None else second
        return 0.0 if given is None or not bool(given.any()) else float("inf")
    if first.shape != second.shape or first.dtype != second.dtype:
        return float("inf")
    if torch.equal(first.nan_to_num(1e30), second.nan_to_num(1e30)):
        return 0.0
    first, second = first.nan_to_num(), second.nan_to_num()
    largest = float(second.abs().max()) or 1.0
    return float((first - second).abs().max()) / largest


def verdict(first: Values, second: Values) -> str:
    """Return `=` for equal bit by bit, else the difference; raise if it is too large."""
    worst = max(difference(a, b) for a, b in zip(first, second, strict=True))
    if worst > TOLERANCE:
        raise AssertionError(f"differs by {worst:.1e}")
    return EQUAL if worst == 0 else f"{worst:.0e}"


@dataclass(frozen=True)
class Result:
    """What came of one Function."""

    package: Package
    case: Case
    cells: tuple[str, ...] = ()
    alone: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something did not go as the table says."""
        return any(cell.startswith("FAILED") for cell in (*self.cells, self.message))


CHECKS = ("eager", "compile", "func", "vmap")


def checks(case: Case, run: Callable[..., Any], original: Any) -> Iterator[Callable[[], str]]:
    """Yield the four comparisons of `run` with the original Function."""
    first = Arguments.made(case.arguments, 0)
    others = [Arguments.made(case.arguments, seed).tensors for seed in range(1, SAMPLES)]
    samples = [first, *map(first.differentiating, others)]
    expected = pulled(first.call(original), first.tensors)
    mine = first.call(run)

    def vmap() -> str:
        if case.random:
            return "random"
        rows = [[o.detach() for o in s.call(original)(*s.tensors)] for s in samples]
        outputs = torch.vmap(mine)(*stacked(samples))
        wanted = tuple(torch.stack(column) for column in zip(*rows, strict=True))
        return verdict(tuple(outputs), wanted)

    yield lambda: verdict(pulled(mine, first.tensors), expected)
    yield lambda: verdict(pulled(compiled(mine), first.tensors), expected)
    yield lambda: verdict(pulled_by_func(mine, first.tensors), expected)
    yield vmap


def tried(check: Callable[[], str]) -> str:
    """Return a check's verdict, or how it failed."""
    try:
        return check()
    except Exception as error:  # whatever a package raises is a result
        return f"FAILED: {type(error).__name__}: {first_line(error)}"


def compared(case: Case, run: Callable[..., Any], original: Any) -> tuple[str, ...]:
    """Return the verdicts of all checks."""
    try:
        return tuple(tried(check) for check in checks(case, run, original))
    except Exception as error:  # the original itself does not run
        return (f"FAILED: the original: {type(error).__name__}: {first_line(error)}",) * 4


def is_right(cell: str) -> bool:
    """Return whether a verdict is equal or near."""
    return cell[0] == EQUAL or cell[0].isdigit()


def first_line(error: BaseException) -> str:
    """Return the first line of an error that says something."""
    return next((row.strip() for row in str(error).splitlines() if row.strip()), "")


def adopted(package: Package, case: Case) -> pb.Operator:
    """Return the operator that a Function was made into."""
    return pb.operator(f"{package.namespace}::{case.line}", function=found(case.function))


class PythonObject:
    """Stands for an argument that is a function, a module, a tree of operators."""


STAND_INS: dict[str, Any] = {"int": 1, "float": 1.0, "bool": True, "str": "text"}


def by_example(package: Package, case: Case) -> None:
    """Adopt a Function that takes objects by an example call, which is to raise."""
    name, _, rest = case.line.partition("(")
    parameters = re.findall(r"\w+(?:(\[[^]]*\])|: (\w+))", rest.partition(") ->")[0])
    example = tuple(
        torch.ones(2, 2) if dims else STAND_INS.get(type_, PythonObject())
        for dims, type_ in parameters
    )
    qualname = f"{package.namespace}::{name}"
    pb.operator(qualname, function=found(case.function), example=example)


def on_its_own(case: Case, original: Any) -> str:
    """Return which of the checks the Function passes without pullback."""
    verdicts = compared(case, original, original)
    passed = [n for n, v in zip(CHECKS, verdicts, strict=True) if is_right(v)]
    return ", ".join(passed[1:]) or "none"


def said(finding: pb.Finding) -> str:
    """Return an error in one line, without the evidence."""
    help = f" ({finding.help})" if finding.help else ""
    return f"{finding.name} [{finding.code}]: {finding.message}{help}"


def refusal(package: Package, case: Case) -> str:
    """Return what pullback says to a Function that cannot be adopted."""
    try:
        if ": object" in case.line:
            by_example(package, case)
        operator = adopted(package, case)
        operator(*Arguments.made(case.arguments, 0).values)
    except pb.PullbackError as error:
        right = error.finding.code == case.refused
        text = said(error.finding)
        return text if right else f"FAILED: expected {case.refused}, got {text}"
    except Exception as error:  # an error that does not say why
        return f"FAILED: {type(error).__name__}: {first_line(error)}"
    return f"FAILED: expected {case.refused}, and it was adopted"


def behind_custom_op(case: Case, original: Any, operator: pb.Operator) -> str:
    """Return the verdict on the original's forward, compiled behind PyTorch's own custom operator.

    What goes wrong there as well is between the Function and `torch.compile`.
    """
    given = Arguments.made(case.arguments, 0)
    expected = tuple(o.detach() for o in given.call(original)(*given.tensors))
    signature = str(operator.overload._schema).partition("::")[2].partition("(")[2]
    with torch.library._scoped_library("packages_control", "FRAGMENT") as library:
        library.define(f"f({signature}")
        library.impl("f", original, "CompositeExplicitAutograd")
        likes = tuple(torch.empty_like(o) for o in expected)
        fake = likes[0] if len(likes) == 1 else likes
        torch.library.register_fake("packages_control::f", lambda *_: fake, lib=library)
        run = compiled(given.call(torch.ops.packages_control.f.default))
        return verdict(tuple(run(*(t.detach() for t in given.tensors))), expected)


def examine(package: Package, case: Case) -> Result:
    """Adopt a Function and compare it, or check that it is refused."""
    original = found(case.function).apply
    result = Result(package, case)
    if case.refused:
        return replace(result, message=refusal(package, case))
    if case.broken:
        said = compared(case, original, original)[0].replace("the original: ", "")
        text = f"{case.broken}: {said.removeprefix('FAILED: ')}"
        return replace(result, message=text if said.startswith("FAILED") else f"FAILED: {said}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            operator = adopted(package, case)
            cells = compared(case, operator, original)
            if cells[1].startswith("FAILED") and case.loses:
                control = tried(lambda: behind_custom_op(case, original, operator))
                cells = (cells[0], "its own" if control == cells[1] else cells[1], *cells[2:])
        except pb.PullbackError as error:
            cells = (f"FAILED: {first_line(error)}",) * 4
    copied = any(w.category.__name__ == "AliasNotice" for w in caught)
    notes = [*([case.note] if case.note else []), *(["output copied"] if copied else [])]
    return replace(result, cells=cells, alone=on_its_own(case, original), notes=tuple(notes))


def uncovered(package: Package) -> list[str]:
    """Return the Functions in the package's loaded modules that the table does not have."""
    known = {found(case.function) for case in package.cases}
    roots = {case.function.partition(".")[0].partition(":")[0] for case in package.cases}

    def below(function: type[Any]) -> Iterator[type[Any]]:
        for each in function.__subclasses__():
            yield each
            yield from below(each)

    return [
        f"{each.__module__}.{each.__qualname__}"
        for each in below(torch.autograd.Function)
        if each.__module__.partition(".")[0] in roots
        and each not in known
        and "<locals>" not in each.__qualname__
    ]


# --- Printing.


def outcome(result: Result) -> list[str]:
    """Return a result's row in the terminal."""
    cells = result.cells or ("",) * len(CHECKS)
    short = ["FAILED" if cell.startswith("FAILED") else cell for cell in cells]
    kind = "refused" if result.case.refused else "original fails" if result.case.broken else ""
    return [result.case.name, *short, result.alone, kind]


def details(results: Sequence[Result]) -> Iterator[str]:
    """Yield what pullback said, and all failures at length."""
    for result in results:
        if result.message:
            yield f"{result.case.name}: {result.message}"
        for name, cell in zip(CHECKS, result.cells, strict=False):
            if cell.startswith("FAILED"):
                yield f"{result.case.name}: {name}: {cell}"


def summary(results: Sequence[Result]) -> str:
    """Return the counts; a Function with two lines counts once."""
    results = list({result.case.function: result for result in results}.values())
    kinds = Counter(
        "refused with the reason"
        if r.case.refused
        else "fail by themselves"
        if r.case.broken
        else "adopted"
        for r in results
        if not r.failed
    )
    failed = sum(result.failed for result in results)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    packages = len({result.package.name for result in results})
    return f"{len(results)} Functions of {packages} packages: {counts}, {failed} failed"


def comparison(results: Sequence[Result]) -> str:
    """Return how many pass each check, adopted and by themselves."""
    results = [r for r in {r.case.function: r for r in results}.values() if r.cells]
    counts = [
        f"{name}: {sum(is_right(r.cells[i]) for r in results)} adopted, "
        f"{sum(name in r.alone.split(', ') for r in results)} alone"
        for i, name in enumerate(CHECKS)
        if i > 0
    ]
    drawn = sum(r.case.random for r in results)
    return f"Of {len(results)}, {'; '.join(counts)} ({drawn} draw random numbers, left out)"


def install_command() -> str:
    """Return the command that installs all packages."""
    names = " ".join(f"{package.name}=={package.version}" for package in PACKAGES)
    return f"pip install -c constraints.txt {names}"


def shown_line(case: Case) -> str:
    """Return a line for a cell of a Markdown table."""
    return f"`{case.line}`"


def markdown(results: Sequence[Result]) -> str:
    """Return the part of the page that is written."""
    rows = [f"{summary(results)}. {comparison(results)}.", "", "```sh", install_command(), "```"]
    for package, own in itertools.groupby(results, lambda result: result.package):
        rows += ["", f"### {package.name} {package.installed}", "", *tables_of(list(own))]
    return "\n".join(rows)


def tables_of(results: Sequence[Result]) -> Iterator[str]:
    """Yield the rows of one package."""
    compared = [r for r in results if r.cells]
    if compared:
        yield f"| Function | line | {' | '.join(CHECKS)} | alone |"
        yield "|---|---|" + "---|" * (len(CHECKS) + 1)
    for result in compared:
        notes = f" ({'; '.join(result.notes)})" if result.notes else ""
        cells = " | ".join(cell.partition(":")[0] for cell in result.cells)
        name = f"`{result.case.name}`{notes}"
        yield f"| {name} | {shown_line(result.case)} | {cells} | {result.alone} |"
    rest = [r for r in results if not r.cells]
    if compared and rest:
        yield ""
    if rest:
        yield "| Function | line | not adopted, because |"
        yield "|---|---|---|"
    for result in rest:
        message = result.message.replace("|", "\\|")
        yield f"| `{result.case.name}` | {shown_line(result.case)} | {message} |"


def write(results: Sequence[Result]) -> None:
    """Renew the part of the page between the two comments."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n\n{END}{after}", encoding="utf-8")


def chosen(only: str | None) -> list[Package]:
    """Return the packages to run; say which are not installed."""
    packages = [p for p in PACKAGES if only in (None, p.name)]
    missing = [p.name for p in packages if p.installed is None]
    if missing:
        console.print(f"not installed: {', '.join(missing)}; to install all:\n{install_command()}")
    for package in packages:
        if package.installed not in (None, package.version):
            console.print(
                f"{package.name} is {package.installed}, the table says {package.version}"
            )
    return [p for p in packages if p.installed is not None]


def main(only: str | None = None, *, renew: bool = False) -> list[Result]:
    """Print the table and what pullback says to the rest; return the results."""
    warnings.simplefilter("ignore")
    results: list[Result] = []
    for package in chosen(only):
        own = [examine(package, case) for case in package.cases]
        missing = [f"not in the table: {name}" for name in uncovered(package)]
        show(
            f"{package.name} {package.installed}: adopted unchanged, against the original",
            ["Function", *CHECKS, "alone", ""],
            [outcome(result) for result in own],
            [escape(note) for note in (*details(own), *missing)],
        )
        results += own
    console.print(summary(results), comparison(results), sep="\n")
    if renew:
        write(results)
    return results


def arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packages", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="one package")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    sys.exit(any(r.failed for r in main(given.only, renew=given.write)))
