"""Packages whose Functions mostly take functions, modules and other Python objects."""

from __future__ import annotations

from benchmarks.packages.arguments import Symmetric, real
from benchmarks.packages.case import Case, Package

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
                intentions=("straight_through",),
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
