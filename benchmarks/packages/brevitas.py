"""The Functions of Brevitas: roundings and clamps with straight-through gradients."""

from __future__ import annotations

from benchmarks.packages.arguments import Constant, real
from benchmarks.packages.case import Case, Package

STE = "brevitas.ops.autograd_ste_ops:"
BREVITAS = Package(
    "brevitas",
    "0.13.4",
    (
        Case(
            STE + "ScalarClampSteFn",
            "scalar_clamp(x[...], min_val: float, max_val: float) -> y[...]",
            (real(4, 3), -0.5, 0.5),
            intentions=("straight_through",),
        ),
        Case(
            STE + "ScalarClampMinSteFn",
            "scalar_clamp_min(x[...], min_val: float) -> y[...]",
            (real(4, 3), -0.5),
            intentions=("straight_through",),
        ),
        Case(
            STE + "TensorClampSteFn",
            "tensor_clamp(x[...], min_val[...], max_val[...]) -> y[...]",
            (real(4, 3), Constant([[-0.5]] * 4), Constant(0.5)),
            intentions=("straight_through",),
        ),
        Case(
            STE + "InplaceTensorClampSteFn",
            "tensor_clamp_(x[n, d], min_val[], max_val[]) -> x[n, d]",
            (real(4, 3), Constant(-0.5), Constant(0.5)),
            refused="PB375",
            note="changes its input without mark_dirty",
            intentions=("straight_through",),
        ),
        Case(
            STE + "RoundToZeroSteFn",
            "round_to_zero(x[...]) -> y[...]",
            (real(4, 3),),
            intentions=("straight_through",),
        ),
        Case(
            STE + "DPURoundSteFn",
            "dpu_round(x[...]) -> y[...]",
            (real(4, 3),),
            intentions=("straight_through",),
        ),
        Case(
            STE + "CeilSteFn",
            "ceil(x[...]) -> y[...]",
            (real(4, 3),),
            intentions=("straight_through",),
        ),
        Case(
            STE + "FloorSteFn",
            "floor(x[...]) -> y[...]",
            (real(4, 3),),
            intentions=("straight_through",),
        ),
        Case(
            STE + "BinarySignSteFn",
            "binary_sign(x[...]) -> y[...]",
            (real(4, 3),),
            intentions=("straight_through",),
        ),
        Case(
            STE + "TernarySignSteFn",
            "ternary_sign(x[...]) -> y[...]",
            (real(4, 3),),
            intentions=("straight_through",),
        ),
        Case(
            STE + "RoundSteFn",
            "round(x[...]) -> y[...]",
            (real(4, 3),),
            intentions=("straight_through",),
        ),
        Case(STE + "AbsBinarySignGradFn", "abs_sign_grad(x[...]) -> y[...]", (real(4, 3),)),
        Case(
            "brevitas.core.function_wrapper.stochastic_round:stochastic_round_ste_fn()",
            "stochastic_round(x[...]) -> y[...]",
            (real(4, 3),),
            random=True,
            intentions=("straight_through",),
        ),
    ),
)
