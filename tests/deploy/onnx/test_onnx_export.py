"""Whole models: each operator one node, and a stock ONNX Runtime gives PyTorch's numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from exporting import Calling, called, export, inputs, linear, own_nodes, picked, split, swish
from onnxscript import FLOAT, script
from onnxscript import opset18 as op
from running import run
from torch import Tensor, nn

import pullback as pb
from pullback.deploy.onnx.exporter import OnnxNotice
from tests.telling import telling

pytestmark = pytest.mark.compiler


def several(x: Tensor, weight: Tensor, bias: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """Call every operator, with and without what is optional."""
    y = swish(linear(x, weight, bias), bias)
    first, second = split(swish(y, None, 0.1), 3, False)
    rows, places = picked(y, index, index > 0)
    return y, first, second, rows, places, linear(x, weight, None)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnx") / "model.onnx"


def arguments(dtype: torch.dtype, rows: int = 3) -> tuple[Tensor, ...]:
    floats = (torch.randn(shape, dtype=dtype) for shape in ((rows, 2), (4, 2), (4,)))
    return (*floats, torch.tensor([1, 0, 2]))


@pytest.mark.parametrize(
    ("dtype", "opset"),
    [
        (torch.float32, 18),
        pytest.param(torch.float64, 23, marks=pytest.mark.thorough),
        pytest.param(torch.float16, 25, marks=pytest.mark.thorough),
        pytest.param(torch.bfloat16, 20, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_operators_of_every_kind_run_in_onnx_runtime(
    dtype: torch.dtype, opset: int, file: Path, seed: int
) -> None:
    model = export(several, *arguments(dtype), path=file, opset=opset)
    assert model.opset_imports[""] == opset
    assert sorted(set(called(model))) == [
        *("pbonnx::linear", "pbonnx::linear_2", "pbonnx::picked", "pbonnx::split"),
        *("pbonnx::swish", "pbonnx::swish_2"),
    ]
    args = arguments(dtype)
    eps = torch.finfo(dtype).eps
    for found, wanted in zip(run(file, inputs(*args)), several(*args), strict=True):
        torch.testing.assert_close(found, wanted, rtol=16 * eps, atol=16 * eps)


# PyTorch takes a size of 1 for one that never varies, if it can.
@pytest.mark.parametrize("example", [1, pytest.param(3, marks=pytest.mark.thorough)])
def test_the_batch_varies_whatever_the_example_has(example: int, file: Path, seed: int) -> None:
    weight, bias = torch.randn(4, 2), torch.randn(4)

    def layer(x: Tensor) -> tuple[Tensor, ...]:
        return split(swish(linear(x, weight, bias), bias))

    export(layer, torch.randn(example, 2), path=file, dynamic=True)
    for rows in (1, 2, 7):
        x = torch.randn(rows, 2)
        for found, wanted in zip(run(file, inputs(x)), layer(x), strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_runtime_without_pytorch_and_pullback_runs_the_file(file: Path, seed: int) -> None:
    x = torch.randn(2, 3)
    export(lambda x: swish(x, x[0]), x, path=file)
    np.save(file.with_name("x.npy"), x.numpy())
    program = (
        "import sys; sys.modules.update(torch=None, pullback=None, onnx=None, onnxscript=None)\n"
        "import numpy, onnxruntime; folder = sys.argv[1]\n"
        "session = onnxruntime.InferenceSession(folder + '/model.onnx')\n"
        "y, = session.run(None, {'in0': numpy.load(folder + '/x.npy')})\n"
        "numpy.save(folder + '/y.npy', y)"
    )
    subprocess.run([sys.executable, "-c", program, str(file.parent)], check=True)
    found = torch.from_numpy(np.load(file.with_name("y.npy")))
    torch.testing.assert_close(found, swish(x, x[0]))


def test_scalars_are_attributes_and_a_node_is_called_as_its_operator(file: Path) -> None:
    model = export(lambda x: split(swish(x, None, 2.5), 3), torch.ones(2, 4), path=file)
    first, second = own_nodes(model)
    assert (first.domain, first.op_type) == ("pbonnx", "swish")
    assert first.attributes["beta"].as_float() == 2.5
    assert [second.attributes[name].as_int() for name in ("k", "up")] == [3, 1]
    assert len(second.outputs) == 2


def test_calls_that_are_alike_share_a_body_and_others_have_one_each(file: Path) -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        same = swish(swish(x, None), None, 3.0), swish(x.double(), None)
        return (*same, swish(x.half(), None), swish(x, x[0]))

    x = torch.randn(2, 3)
    made = export(model, x, path=file)
    assert sorted(node.op_type for node in own_nodes(made)) == [
        *("swish", "swish", "swish", "swish_2", "swish_3"),
    ]
    assert len(made.functions) == 3
    for found, wanted in zip(run(file, inputs(x)), model(x), strict=True):
        torch.testing.assert_close(found, wanted)


def test_operators_in_the_branches_of_a_condition(file: Path) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: swish(x, None), lambda x: swish(x, x[0]), (x,))

    x = torch.randn(2, 3)
    assert sorted(called(export(model, x, path=file))) == ["pbonnx::swish", "pbonnx::swish_2"]
    for each in (x, x.abs(), -x.abs()):
        torch.testing.assert_close(run(file, inputs(each))[0], model(each))


def test_a_backward_is_exported_as_any_operator(file: Path, seed: int) -> None:
    backward = pb.operator("pbonnx::_swish_grad")
    grad, x = torch.randn(2, 3), torch.randn(2, 3)

    def model(grad: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        values = {"grad": grad, "x": x, "b": x[0], "beta": 1.5}
        return tuple(backward(*(values[p.name] for p in backward.line.parameters)))

    export(model, grad, x, path=file)
    for found, wanted in zip(run(file, inputs(grad, x)), model(grad, x), strict=True):
        torch.testing.assert_close(found, wanted)


def test_parameters_an_exported_program_and_keywords(file: Path, seed: int) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 2))

        def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
            return linear(x, self.weight, None) * scale

    layer, x, scale = Layer().eval(), torch.randn(3, 2), torch.tensor(2.0)
    wanted = layer(x, scale=scale)
    pb.export_onnx(layer, (x,), file, kwargs={"scale": scale}, output_names=["y"])
    torch.testing.assert_close(run(file, {"x": x, "scale": scale})[0], wanted)
    program = torch.export.export(layer, (x,), {"scale": scale})
    made = pb.export_onnx(program, path=file)
    assert called(made.model) == ["pbonnx::linear"]
    torch.testing.assert_close(run(file, {"x": x, "scale": scale})[0], wanted)


def test_weights_in_a_file_of_their_own(tmp_path: Path, seed: int) -> None:
    weight = nn.Parameter(torch.randn(64, 64))
    module = Calling(lambda x: linear(x, weight, None)).eval()
    module.register_parameter("weight", weight)
    x = torch.randn(3, 64)
    pb.export_onnx(module, (x,), tmp_path / "big.onnx", external_data=True, input_names=["in0"])
    assert {p.name for p in tmp_path.iterdir()} == {"big.onnx", "big.onnx.data"}
    torch.testing.assert_close(run(tmp_path / "big.onnx", inputs(x))[0], linear(x, weight, None))
    session = pb.onnx_session(tmp_path / "big.onnx")
    (found,) = session.run(None, {"in0": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), linear(x, weight, None))


# --- Bodies


@pytest.fixture(scope="session")
def shift(tmp_path_factory: pytest.TempPathFactory) -> pb.Operator:
    """A kernel, which does not say what it computes."""
    source = tmp_path_factory.mktemp("shift") / "shift.cpp"
    source.write_text(
        "void shift(float* y, const float* x, double k, long n) {\n"
        "  for (long i = 0; i < n; ++i) y[i] = x[i] + k;\n}\n"
    )
    call = "shift(y, x, k, numel(x))"
    return pb.operator(
        "pbonnx::shift(x[...], k: float = 1.0) -> y[...]", cpu=pb.source(str(source), call=call)
    )


def test_without_a_body_the_node_is_written_alone_and_said_to_be(
    shift: pb.Operator, file: Path
) -> None:
    with pytest.warns(OnnxNotice) as notices:
        model = export(lambda x: shift(shift(x)), torch.ones(3), path=file)
    (notice,) = notices
    assert notice.filename == sys.modules["exporting"].__file__
    assert str(notice.message) == (
        "pbonnx::shift is written as a node pbonnx::shift without a body, so a runtime needs a "
        "kernel for it\n"
        "    why:  a kernel alone does not say what it computes\n"
        "    help: give the operator reference=, a function of PyTorch, or "
        'bodies={"pbonnx::shift": ...}'
    )
    assert called(model) == ["pbonnx::shift"] * 2
    assert not model.functions
    with pytest.raises(Exception, match="shift"):
        run(file, inputs(torch.ones(3)))


@script(default_opset=op)
def number(k: float):  # noqa: ANN201  # pyright: ignore
    """Return a number that is an attribute."""
    return op.Constant(value_float=k)  # pyright: ignore


@script(default_opset=op)
def shifted(x: FLOAT[...], k: float):  # noqa: ANN201  # pyright: ignore
    """Add a number, by another function."""
    return op.Add(x, number(k=k))  # pyright: ignore


TEXT = """
<domain: "any", opset_import: ["": 18]>
any <k>(x) => (y) { a = Constant <value_float: float = @k> ()  y = Add(x, a) }
"""


@pytest.mark.parametrize(
    "body",
    [
        shifted,
        pytest.param(onnx.parser.parse_function(TEXT), marks=pytest.mark.thorough),
        TEXT,
        pytest.param(ir.from_proto(onnx.parser.parse_function(TEXT)), marks=pytest.mark.thorough),
        lambda x, k: x + k,
    ],
    ids=["script", "proto", "text", "ir", "pytorch"],
)
def test_a_body_that_is_given_runs(body: Any, shift: pb.Operator, file: Path) -> None:
    x = torch.ones(3)
    model = export(lambda x: shift(x, 2.5), x, path=file, bodies={shift: body})
    assert called(model) == ["pbonnx::shift"]
    assert torch.equal(run(file, inputs(x))[0], x + 2.5)


def test_a_body_that_calls_what_is_not_there_is_said_to(shift: pb.Operator, file: Path) -> None:
    with pytest.warns(OnnxNotice, match="has a node this::number without a body"):
        export(shift, torch.ones(3), path=file, bodies={shift: shifted.to_function_proto()})


def test_a_body_that_is_given_comes_before_a_formula(file: Path) -> None:
    text = '<domain: "any", opset_import: ["": 18]> any (x, b) => (y) { y = Neg(x) }'
    x = torch.randn(3)
    export(lambda x: swish(x, None), x, path=file, bodies={"pbonnx::swish": text})
    assert torch.equal(run(file, inputs(x))[0], -x)


def test_a_reference_that_works_for_one_size_only_serves_where_that_is_fixed(file: Path) -> None:
    def reference(x: Tensor) -> Tensor:
        return x * float(x.shape[0]) if x.shape[0] == 3 else -x

    odd = pb.operator("pbonnx::odd(x[n]) -> y[n]", python=reference)
    x = torch.randn(3)
    export(odd, x, path=file)
    assert torch.equal(run(file, inputs(x))[0], odd(x))
    with pytest.warns(OnnxNotice, match="3 elements in dimension 0"):
        export(odd, x, path=file, dynamic=True)


def test_what_pytorch_cannot_see_through_is_said(file: Path) -> None:
    def with_numpy(x: Tensor) -> Tensor:
        return torch.from_numpy(np.sort(x.numpy()))

    sorted_ = pb.operator("pbonnx::sorted_(x[n]) -> y[n]", python=with_numpy)
    with pytest.warns(OnnxNotice, match="why:  its Python function: "):
        export(sorted_, torch.ones(3), path=file)
    wrong = pb.operator(
        "pbonnx::wrong(x[n]) -> y[n]", python=with_numpy, reference=lambda x: x.double()
    )
    with pytest.warns(OnnxNotice, match="its reference: it returns DOUBLE for 'y', not FLOAT"):
        export(wrong, torch.ones(3), path=file)


def test_a_reference_may_call_other_operators(file: Path, seed: int) -> None:
    twice = pb.operator(
        "pbonnx::twice(x[n]) -> y[n]",
        python=lambda x: 2 * swish(x, None),
        reference=lambda x: swish(x, None) + swish(x, None, 1.5),
    )
    x = torch.randn(5)
    model = export(lambda x: twice(x) + swish(x.half(), None), x, path=file)
    assert called(model) == ["pbonnx::twice", "pbonnx::swish_2"]
    torch.testing.assert_close(run(file, inputs(x))[0], twice(x) + swish(x.half(), None))


def test_a_node_may_have_another_name(file: Path) -> None:
    x = torch.randn(2, 3)
    model = export(lambda x: swish(x, None), x, path=file, names={swish: "com.acme.layers::Gated"})
    assert called(model) == ["com.acme.layers::Gated"]
    torch.testing.assert_close(run(file, inputs(x))[0], swish(x, None))


@pytest.mark.thorough
def test_a_sum_in_index_notation_has_a_body_of_pytorchs_operations(file: Path, seed: int) -> None:
    gauss = pb.operator(
        "pbonnx::gauss(x[n, d], y[m, d], v[m]) -> u[n]"
        " = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])"
    )
    x, y, v = torch.randn(5, 3), torch.randn(4, 3), torch.randn(4)
    assert called(export(gauss, x, y, v, path=file)) == ["pbonnx::gauss"]
    wanted = torch.exp(-((x[:, None] - y) ** 2).sum(-1)) @ v
    torch.testing.assert_close(run(file, inputs(x, y, v)), (wanted,))


@pytest.mark.thorough
def test_a_maximum_in_index_notation_has_one_too(file: Path, seed: int) -> None:
    softmax = pb.operator(
        "pbonnx::softmax(x[..., n]) -> y[..., n]"
        " = exp(x - max[k](x[k]))/sum[m](exp(x[m] - max[k](x[k])))"
    )
    x = torch.randn(5, 3)
    assert called(export(softmax, x, path=file)) == ["pbonnx::softmax"]
    torch.testing.assert_close(run(file, inputs(x)), (x.softmax(-1),))


# A formula, and the shapes of what it is of; the first dimension of x varies.
INDEXED: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "linear": ("(x[n, i], w[o, i]) -> y[n, o] = sum[i](x*w)", (3, 4), (6, 4)),
    "batches": ("(x[..., i], w[o, i]) -> y[..., o] = sum[i](x*w)", (3, 2, 4), (3, 4)),
    "two": (
        "(x[n, d], w[m, d]) -> y[n, d] = t = sum[k](x[n, k]*w[m, k]); y = sum[m](t*w[m, d])",
        (3, 4),
        (5, 4),
    ),
    "correlation": (
        "(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])",
        (8, 9),
        (3, 2),
    ),
    "strided": ("(x[h], k[p]) -> y[i] = sum[p](x[2*i + p]*k[p])", (9,), (3,)),
    "channels": (
        "(x[n, c, h], k[o, c, p]) -> y[n, o, i] = sum[c, p](x[n, c, i + p]*k[o, c, p])",
        (3, 2, 9),
        (3, 2, 3),
    ),
}


@pytest.mark.ci(2)
@pytest.mark.parametrize("name", telling({n: n for n in INDEXED}, ["batches", "strided"]))
def test_index_notation_has_a_body_for_a_first_dimension_that_varies(
    name: str, file: Path, seed: int
) -> None:
    text, shape, other = INDEXED[name]
    operator = pb.operator(f"pbonnx::indexed_{name}{text}")
    x, w = torch.randn(shape), torch.randn(other)
    export(operator, x, w, path=file, dynamic_shapes=(({0: "rows"}, None),))
    for rows in (shape[0], 5, 7):
        again = torch.randn(rows, *shape[1:])
        [found] = run(file, inputs(again, w))
        torch.testing.assert_close(found, operator(again, w))
