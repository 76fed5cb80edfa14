"""Inputs that are found where none are given."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function

import pullback as pb
from pullback import PullbackError
from pullback.verify.inputs.inputs import FoundInputs, find_inputs
from pullback.verify.target import target_of


def function_of(
    forward: Callable[..., Any], backward: Callable[..., Any] | None = None
) -> type[Function]:
    """Return a Function; its backward gives each tensor that was saved a gradient of ones."""

    def ones(ctx: Any, grad: Tensor) -> Any:
        saved = iter([torch.ones_like(own) * grad.sum() for own in ctx.saved_tensors])
        return tuple(next(saved) if kind else None for kind in ctx.tensors)

    def watched(ctx: Any, *arguments: Any) -> Any:
        kept = [a for a in arguments if isinstance(a, Tensor) and a.is_floating_point()]
        ctx.tensors = [isinstance(a, Tensor) and a.is_floating_point() for a in arguments]
        ctx.save_for_backward(*kept)
        return forward(ctx, *arguments)

    watched.__wrapped__ = forward  # type: ignore[attr-defined]
    methods = {"forward": staticmethod(watched), "backward": staticmethod(backward or ones)}
    return type(forward.__name__, (Function,), methods)


def found(target: object) -> FoundInputs:
    """Find inputs in this process."""
    return find_inputs(target_of(target), seed=0, isolate=False)


def shown(target: object) -> list[str]:
    """Return what is found, a word for each argument."""
    own = found(target)
    values = [*own.arguments, *own.keywords.values()]
    return [
        f"{str(v.dtype)[6:]} {tuple(v.shape)}" if isinstance(v, Tensor) else repr(v) for v in values
    ]


def elementwise(ctx: Any, x: Any, y: Any) -> Any:
    return x * y


def matmul(ctx: Any, a: Any, b: Any) -> Any:
    assert a.shape[1] != b.shape[1]
    return a @ b


def linear(ctx: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return nn.functional.linear(x, weight, bias)


def scaled(ctx: Any, x: Tensor, by: float, eps: float = 1e-5, mode: str = "mean") -> Any:
    assert isinstance(by, float)
    return (x * by + eps).mean() if mode == "mean" else x.sum()


def optioned(ctx: Any, x: Any, reduction: Any) -> Any:
    return {"total": x.sum, "average": x.mean}[reduction]()


def gather(ctx: Any, x: Any, index: Any) -> Any:
    return x[index]


def convolution(ctx: Any, x: Any, weight: Any, stride: int = 1) -> Any:
    assert x.dim() == 4
    return nn.functional.conv2d(x, weight, stride=stride)


def several(ctx: Any, *tensors: Any) -> Any:
    return sum(tensors)


def single(ctx: Any, x: Any) -> Any:
    assert x.dtype == torch.float32
    return x * 2


def square(ctx: Any, x: Any) -> Any:
    return torch.linalg.inv(x)


CASES: list[tuple[Callable[..., Any], list[str]]] = [
    (elementwise, ["float64 (3, 4)", "float64 (3, 4)"]),
    (matmul, ["float64 (3, 4)", "float64 (4, 5)"]),
    (linear, ["float64 (3, 4)", "float64 (3, 4)", "float64 ()"]),
    (scaled, ["float64 (3, 4)", "0.5", "1e-05", "'mean'"]),
    (optioned, ["float64 (3, 4)", "'total'"]),
    (gather, ["float64 (3, 4)", "int64 (3, 4)"]),
    (convolution, ["float64 (2, 3, 6, 6)", "float64 (4, 3, 3, 3)", "1"]),
    (several, ["float64 (3, 4)", "float64 (3, 4)"]),
    (single, ["float32 (3, 4)"]),
    (square, ["float64 (4, 4)"]),
]


@pytest.mark.parametrize(
    ("forward", "expected"), CASES, ids=lambda own: getattr(own, "__name__", "")
)
def test_a_function_gets_what_its_forward_takes(
    forward: Callable[..., Any], expected: list[str]
) -> None:
    given = shown(function_of(forward))
    assert [text.split()[0] for text in given] == [text.split()[0] for text in expected]
    if forward is not linear:  # more than one shape of a bias fits
        assert given == expected


def test_a_number_is_told_from_a_tensor_by_the_missing_gradient() -> None:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, tensor: Any, constant: Any) -> Any:
            ctx.constant = constant
            return tensor * constant

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return grads[0] * ctx.constant, None

    assert shown(Scale) == ["float64 (3, 4)", "0.5"]
    assert pb.check(Scale, probes=["PB512", "PB553"]).ok


def test_annotations_are_followed() -> None:
    def run(
        x: Tensor, y: Tensor | None, kind: Literal["a", "b"], n: int, *, on: bool, by: float = 2.0
    ) -> Tensor:
        assert y is not None
        assert kind == "a"
        return x * y * n * on * by

    assert shown(run) == ["float64 (3, 4)", "float64 (3, 4)", "'a'", "1", "True", "2.0"]


def test_values_are_positive_where_others_give_nan() -> None:
    (x,) = found(torch.log).arguments
    assert bool((x > 0).all())


def test_an_operator_gets_what_its_line_says() -> None:
    operator = pb.operator(
        "found::mix(x[..., n], w[m, n], i[m]: int64, s: float, k: int = 3) -> y[..., m]",
        python=lambda x, w, i, s, k: (x @ w.t() + i) * s * k,
    )
    own = found(operator)
    assert [type(value).__name__ for value in own.arguments] == [*["Tensor"] * 3, "float", "int"]
    x, w, i = own.arguments[:3]
    assert (tuple(x.shape), tuple(w.shape), tuple(i.shape)) == ((2, 3, 4), (5, 4), (5,))
    assert i.dtype == torch.int64


def test_an_operator_of_the_library_gets_what_its_schema_says() -> None:
    @torch.library.custom_op("found::scale", mutates_args=())
    def scale(x: Tensor, k: int, by: float = 2.0, other: Tensor | None = None) -> Tensor:
        return x * k * by if other is None else x * other

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.x, ctx.other = inputs[0], inputs[3]

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad * ctx.other, None, None, grad * ctx.x

    scale.register_autograd(backward, setup_context=setup)
    assert shown(scale) == ["float64 (3, 4)", "1", "2.0", "float64 (3, 4)"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Linear(7, 2), "float32 (3, 7)"),
        (nn.Conv2d(3, 5, 3), "float32 (2, 3, 8, 8)"),
        (nn.Embedding(9, 3), "int64"),
        (nn.Sequential(nn.Linear(7, 2), nn.ReLU()).double(), "float64 (3, 7)"),
    ],
)
def test_a_module_gets_what_its_parameters_fit(module: nn.Module, expected: str) -> None:
    assert shown(module)[0].startswith(expected)


def test_what_was_found_is_told_and_is_the_same_each_time() -> None:
    first, second = (pb.check(function_of(elementwise), probes=["PB501"]) for _ in range(2))
    said = "no inputs were given; found in 1 trial: x: float64 (3, 4), y: float64 (3, 4)"
    assert first.notes == second.notes == (said,)
    assert first.target == "elementwise(x: float64 (3, 4), y: float64 (3, 4))"


def test_a_trial_that_ends_the_process_is_passed_over() -> None:
    def fragile(x: Tensor) -> Tensor:
        if x.dim() == 2:
            os.abort()
        return x * 2

    assert find_inputs(target_of(fragile), seed=0, isolate=True).arguments[0].shape == (6,)


def test_what_takes_nothing_that_was_tried_is_told() -> None:
    def never(x: Tensor) -> Tensor:
        raise ValueError("only on Sundays")

    with pytest.raises(PullbackError) as caught:
        pb.check(never)
    text = str(caught.value)
    assert "no-inputs [PB404]: never: no inputs were given, and none were found" in text
    assert "combinations of tensors and numbers" in text
    assert "ValueError: only on Sundays" in text
    assert "help:  give them: pb.check(target, x, ...)" in text


def test_a_target_without_parameters_is_called_without_inputs() -> None:
    weight = torch.randn(3, requires_grad=True)
    assert pb.check(lambda: weight * 2, probes=["PB501"]).notes[0].startswith("no input is")


# --- a fault that hangs on a guess is advice


class Levels(Function):
    """To the nearest level: a constant, which nothing says."""

    @staticmethod
    def forward(ctx: Any, x: Any, levels: Any) -> Any:
        ctx.save_for_backward(levels)
        return x * levels.mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.saved_tensors[0].mean(), None


class Cube(Function):
    """The trace of a third power; right for symmetric matrices: `.mT` is left out."""

    @staticmethod
    def forward(ctx: Any, matrix: Any) -> Any:
        ctx.save_for_backward(matrix)
        return (matrix @ matrix @ matrix).diagonal(dim1=-2, dim2=-1).sum(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (matrix,) = ctx.saved_tensors
        return 3 * grads[0][..., None, None] * (matrix @ matrix)


class Solve(Function):
    """Right for Cholesky factors."""

    @staticmethod
    def forward(ctx: Any, chol: Any, vector: Any) -> Any:
        solved = torch.linalg.solve(chol, vector)
        ctx.save_for_backward(chol, solved)
        return solved

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        chol, solved = ctx.saved_tensors
        given = torch.linalg.solve_triangular(chol.mT, grads[0].reshape(4, -1), upper=True)
        return -(given @ solved.reshape(4, -1).mT), given.reshape(grads[0].shape)


class Sort(Function):
    """Right for permutations."""

    @staticmethod
    def forward(ctx: Any, x: Any, index: Any) -> Any:
        assert index.dim() == 1
        assert index.shape[0] == x.shape[0]
        ctx.save_for_backward(index)
        return x[index]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (index,) = ctx.saved_tensors
        return grads[0][index.argsort()], None


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    ("target", "contract"),
    [
        pytest.param(Levels, "levels is a constant", marks=pytest.mark.thorough),
        (Cube, "matrix is symmetric"),
        (Solve, "chol is lower triangular"),
        (Sort, "index is a permutation"),
    ],
    ids=lambda own: getattr(own, "__name__", ""),
)
def test_a_fault_that_hangs_on_a_guess_is_advice(target: type[Function], contract: str) -> None:
    report = pb.check(target, skip=["PB583"])
    assert report.ok, report
    assert report.notes[-1] == f"some faults hang on what was guessed: checked where {contract}"
    hanging = [dict(f.evidence).get("hangs on a guess") for f in report.advice]
    assert f"not found where {contract}" in hanging


def test_the_same_inputs_given_have_the_fault() -> None:
    matrix = torch.randn(4, 4, dtype=torch.float64)
    assert [f.code for f in pb.check(Cube, matrix, skip=["PB583"]).faults] == ["PB553"]


def test_a_fault_that_no_contract_takes_away_is_one() -> None:
    class Negative(Cube):
        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            (matrix,) = ctx.saved_tensors
            return -3 * grads[0][..., None, None] * (matrix @ matrix).mT

    report = pb.check(Negative, skip=["PB583"])
    assert [finding.code for finding in report.faults] == ["PB553"]


def test_a_crash_that_no_contract_takes_away_is_one() -> None:
    class Crash(Cube):
        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            (matrix,) = ctx.saved_tensors
            if not matrix.is_contiguous():
                os.abort()
            return 3 * grads[0][..., None, None] * (matrix @ matrix).mT

    report = pb.check(Crash, skip=["PB583"])
    assert [finding.code for finding in report.faults] == ["PB403"]
    assert not any("hang on what was guessed" in note for note in report.notes)


def test_a_float_constant_is_preferred_to_indices_that_a_name_does_not_say() -> None:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: Any) -> Any:
            ctx.save_for_backward(by)
            return x * by

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return grads[0] * ctx.saved_tensors[0], None

    assert shown(Scale) == ["float64 (3, 4)", "float64 (3, 4)"]
