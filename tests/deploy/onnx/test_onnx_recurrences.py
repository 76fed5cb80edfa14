"""Recurrences in ONNX: one file for all lengths, run by a stock ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import onnxruntime
import pytest
import torch
from exporting import called, export, inputs
from running import fed
from telling import telling
from torch import Tensor
from torch.export import Dim

import pullback as pb
from pullback.deploy.onnx.exporter import OnnxNotice

D, S, N = 3, 2, 4
Shape = tuple[int | str, ...]

# A line, and the shapes of its tensors; "t" varies, "i" is of numbers below N.
LINES: dict[str, tuple[str, tuple[Shape | float, ...]]] = {
    "lru": (
        "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d]"
        " = a*h[t - 1, d] + x; h[-1, d] = h0",
        ((2, "t", D), (2, "t", D), (D,)),
    ),
    "backwards": (
        "(delta[..., t], c[..., t]) -> adv[..., t] = delta + c*pad(adv[t + 1])",
        ((2, "t"), (2, "t")),
    ),
    "two_back": (
        "(x[t], b[3], a[3]) -> y[t] = b[0]*x + b[1]*pad(x[t - 1]) + b[2]*pad(x[t - 2])"
        " - a[1]*pad(y[t - 1]) - a[2]*pad(y[t - 2])",
        (("t",), (3,), (3,)),
    ),
    "two_ahead": (
        "(x[d, t], w[d, d]) -> y[d, t] ="
        " x + sum[k](w[d, k]*pad(y[k, t + 1]))/4 + pad(y[d, t + 2])/3",
        ((D, "t"), (D, D)),
    ),
    # A turned matrix by a vector, of which onnxruntime's fusion makes a wrong product.
    "turned": (
        "(x[t, d], w[d, d]) -> h[t, d] = tanh(x + sum[k](w[k, d]*pad(h[t - 1, k])))",
        (("t", D), (D, D)),
    ),
    "window": (
        "(x[..., t], c[4]) -> y[..., t] = x - sum[k < 4](c[k]*pad(y[t - 1 - k]))/4",
        ((2, "t"), (4,)),
    ),
    "any_window": (
        "(x[..., t], c[k]) -> y[..., t] = x - sum[k](c[k]*pad(y[t - 1 - k]))/4",
        ((2, "t"), (3,)),
    ),
    "coupled": (
        "(p[4], time[t]) -> (x[t], y[t]) = x = x[t - 1] + 0.1*x[t - 1]*(p[0] - p[1]*y[t - 1]);"
        " x[-1] = 2; y = y[t - 1] + 0.1*y[t - 1]*(p[2]*x[t - 1] - p[3]); y[-1] = 1",
        ((4,), ("t",)),
    ),
    "hidden": (
        "(dt[..., t, d], A[d, s], B[..., t, s], C[..., t, s], x[..., t, d]) -> y[..., t, d] ="
        " h[t, d, s] = exp(-dt*A)*pad(h[t - 1, d, s]) + dt*B*x; y = sum[s](C*h)",
        ((2, "t", D), (D, S), (2, "t", S), (2, "t", S), (2, "t", D)),
    ),
    "in_turn": (
        "(x[t], y[t]) -> z[t] = u[t] = x + pad(u[t - 1])/2; v[t] = u[t] - pad(v[t - 1])/3 + u[0];"
        " z = v*y",
        (("t",), ("t",)),
    ),
    "gathered": (
        "(x[t, n], i[t, n]: int64) -> h[t, n] = x + pad(h[t - 1, i[t, n]])/size(t)",
        (("t", N), ("t", N)),
    ),
    "stencil": (
        "(u0[x], k[x], time[t]) -> u[t, x] = u[t - 1, x]"
        " + 0.1*k*(pad(u[t - 1, x + 1]) - 2*u[t - 1, x] + pad(u[t - 1, x - 1])); u[-1, x] = u0",
        ((5,), (5,), ("t",)),
    ),
    "of_the_time": (
        "(x[t]) -> y[t] = x*t + where(t < size(t) - 1, pad(y[t - 1]), 0)",
        (("t",),),
    ),
    "from_the_end": ("(x[t]) -> y[t] = x[size(t) - 1 - t] + pad(y[t - 1])/2", (("t",),)),
    "maximum": (
        "(x[t, d], w[d, d]) -> y[t, d] = x + max[k](w[d, k] + pad(y[t - 1, k]))",
        (("t", D), (D, D)),
    ),
}
# With at least one step.
ENDS: dict[str, tuple[str, tuple[Shape | float, ...]]] = {
    "end": (
        "(x[..., t, d], r: float) -> (y[..., t, d], end[..., d]) ="
        " y = r*y[t - 1, d] + (1 - r)*x; y[-1, d] = 0; end = y[size(t) - 1, d]",
        ((2, "t", D), 0.75),
    ),
}


def draw(shapes: tuple[Shape | float, ...], length: int) -> list[Tensor | float]:
    return [
        torch.rand([length if n == "t" else int(n) for n in shape]).add(0.1)
        if isinstance(shape, tuple)
        else shape
        for shape in shapes
    ]


def arguments(name: str, length: int) -> list[Tensor | float]:
    drawn = draw((LINES | ENDS)[name][1], length)
    if name == "gathered":
        drawn[1] = torch.randint(N, drawn[1].shape)  # type: ignore[union-attr]
    return drawn


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def exported(operator: pb.Operator, name: str, length: int, file: Path) -> list[str]:
    """Export with a length that varies, and return what the model calls."""
    t = Dim("t")
    shapes = [shape for shape in (LINES | ENDS)[name][1] if isinstance(shape, tuple)]
    dims = tuple({k: t for k, n in enumerate(shape) if n == "t"} or None for shape in shapes)
    tensors, rest = split(arguments(name, length))
    model = export(lambda *ts: operator(*ts, *rest), *tensors, path=file, dynamic_shapes=(dims,))
    return called(model)


def split(given: list[Tensor | float]) -> tuple[list[Tensor], list[float]]:
    """Return tensors, and the scalars behind them."""
    tensors = [value for value in given if isinstance(value, Tensor)]
    return tensors, [value for value in given if not isinstance(value, Tensor)]


@pytest.mark.filterwarnings("ignore:# The axis name")
@pytest.mark.parametrize(
    "name",
    telling({name: name for name in LINES | ENDS}, ["coupled", "end", "turned"]),
)
def test_one_file_serves_all_lengths(name: str, file: Path, seed: int) -> None:
    operator = pb.operator(f"pbscan::{name}{(LINES | ENDS)[name][0]}")
    assert exported(operator, name, 5, file) == [f"pbscan::{name}"]
    session = onnxruntime.InferenceSession(file)
    for length in (5, 1, 2, 40, 0):
        if length or name not in ENDS:
            given = arguments(name, length)
            wanted = operator(*given)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            torch.testing.assert_close(fed(session, inputs(*split(given)[0])), wanted)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:# The axis name")
def test_a_file_is_as_large_at_any_length_and_steps_are_in_it_once(file: Path) -> None:
    lru = pb.operator(f"pbscan::long{LINES['lru'][0]}")
    sizes: list[int] = []
    for length in (6, 600):
        given = draw(LINES["lru"][1], length)
        model = export(lru, *given, path=file)
        [steps] = [f for f in model.functions.values() if f.name == "_long_steps"]
        kinds = [node.op_type for node in ir.traversal.RecursiveGraphIterator(steps)]
        assert kinds.count("Scan") == 1
        sizes.append(len(file.read_bytes()))
    # The length is written in three shapes.
    assert sizes[1] - sizes[0] < 10


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:# The axis name")
def test_batches_and_free_dimensions_vary_too(file: Path, seed: int) -> None:
    lru = pb.operator(f"pbscan::free{LINES['lru'][0]}")
    b, t, d = (Dim(name) for name in "btd")
    shapes = ({0: b, 1: t, 2: d}, {0: b, 1: t, 2: d}, {0: b, 1: d})
    export(
        lru,
        torch.rand(2, 4, 3),
        torch.rand(2, 4, 3),
        torch.rand(2, 3),
        path=file,
        dynamic_shapes=(shapes,),
    )
    for sizes in ((5, 9, 7), (1, 1, 1), (2, 0, 3), (3, 4, 0)):
        given = torch.rand(sizes), torch.rand(sizes), torch.rand(sizes[0], sizes[2])
        session = onnxruntime.InferenceSession(file)
        torch.testing.assert_close(fed(session, inputs(*given)), (lru(*given),))


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes_have_steps_of_their_own(dtype: torch.dtype, file: Path, seed: int) -> None:
    lru = pb.operator(f"pbscan::of_{str(dtype)[6:]}{LINES['lru'][0]}")
    given = [torch.rand(shape).to(dtype) for shape in ((2, 50, D), (2, 50, D), (D,))]
    export(lru, *given, path=file)
    [found] = fed(onnxruntime.InferenceSession(file), inputs(*given))
    torch.testing.assert_close(found, lru(*given))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:# The axis name")
def test_a_gradient_is_exported_too(file: Path, seed: int) -> None:
    lru = pb.operator(f"pbscan::pulled{LINES['lru'][0]}")
    given = [torch.rand(2, 6, D), torch.rand(2, 6, D), torch.rand(2, D)]
    torch.autograd.grad(lru(given[0].requires_grad_(), *given[1:]).sum(), given[0])
    a, x, h0 = (value.detach() for value in given)
    backward = torch.ops.pbscan._pulled_grad
    arguments = torch.rand(2, 6, D), a, h0, lru(a, x, h0)
    wanted = backward(*arguments)
    t = Dim("t")
    shapes = ({1: t}, {1: t}, None, {1: t})
    export(backward, *arguments, path=file, dynamic_shapes=(shapes,))
    torch.testing.assert_close(fed(onnxruntime.InferenceSession(file), inputs(*arguments)), wanted)


@pytest.mark.thorough
def test_fronts_are_written_out_for_a_length_that_does_not_vary(file: Path, seed: int) -> None:
    distance = pb.operator(
        "pbscan::distance(D[i, j]) -> R[i, j] = D + minimum(R[i - 1, j - 1],"
        " minimum(R[i - 1, j], R[i, j - 1])); R[-1, -1] = 0; R[-1, j] = inf; R[i, -1] = inf"
    )
    x = torch.rand(3, 4)
    export(distance, x, path=file)
    torch.testing.assert_close(fed(onnxruntime.InferenceSession(file), inputs(x)), (distance(x),))
    with pytest.warns(OnnxNotice, match="its formula in PyTorch.* varies"):
        export(distance, x, path=file, dynamic_shapes=(({0: Dim("i")},),))


@pytest.mark.filterwarnings("ignore:# The axis name")
def test_a_window_with_its_own_step_is_written_out(file: Path, seed: int) -> None:
    """What `Scan` carries to a step is from before it."""
    smooth = pb.operator(
        "pbscan::smooth(x[t]) -> y[t] = r[t] = x + pad(y[t - 1])/2; y = sum[k < 3](pad(r[t - k]))/4"
    )
    x = torch.rand(6)
    export(smooth, x, path=file)
    torch.testing.assert_close(fed(onnxruntime.InferenceSession(file), inputs(x)), (smooth(x),))
