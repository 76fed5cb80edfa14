"""Gaussian processes: GPyTorch and its linear operators."""

from __future__ import annotations

from benchmarks.packages.arguments import Definite, Sparse, Symmetric, real
from benchmarks.packages.case import Case, Package

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
            intentions=("surrogate",),
        ),
        Case(
            GP + "tril_natural_variational_distribution:_TrilNaturalToMuVarSqrt",
            "tril_natural(nat_mean[m], tril_nat_covar[m, m]) -> (mu[m], root[m, m])",
            (real(4), Definite(4, factor=True)),
            intentions=("surrogate",),
        ),
        Case(
            GP + "ciq_variational_strategy:_NgdInterpTerms",
            "ngd_interp_terms(interp_term[m, n], natural_vec[m], natural_mat[m, m]) "
            "-> (mean[n], variance[n], kl[])",
            (real(4, 5), real(4), Definite(4, scale=-0.5)),
            intentions=("surrogate",),
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
