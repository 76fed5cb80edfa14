"""Kernels in ONNX Runtime: the operators themselves run, and what they raise is raised."""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime
import pytest
import torch
from exporting import export, picked, split, swish
from torch import Tensor

import pullback as pb
from pullback.deploy.onnx.call import KEY
from pullback.deploy.onnx.exporter import OnnxNotice
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def written(function: Any, *args: Tensor, file: Path, **options: Any) -> ir.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxNotice)
        return export(function, *args, path=file, **options)


def ran(session: onnxruntime.InferenceSession, *args: Tensor) -> list[Tensor]:
    feeds = {f"in{k}": value.numpy() for k, value in enumerate(args)}
    return [torch.from_numpy(array) for array in session.run(None, feeds)]


def test_the_operators_themselves_run(file: Path, seed: int) -> None:
    calls: list[str] = []

    def doubled(x: Tensor) -> Tensor:
        calls.append("doubled")
        return x.clone().mul_(2)

    double = pb.operator("pbsession::double(x[...]) -> y[...]", python=doubled)

    def model(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        y = swish(double(x), None, 0.1)
        half = double(y.half())
        return (half, *split(y, 3, False), *picked(y, index, index > 0))

    def arguments(rows: int) -> tuple[Tensor, ...]:
        return torch.randn(rows, 2), torch.tensor([0, 1])

    written(model, *arguments(3), file=file, dynamic=True)
    calls.clear()
    session = pb.onnx_session(file)
    assert isinstance(session, onnxruntime.InferenceSession)
    for rows in (2, 5):
        args = arguments(rows)
        for found, wanted in zip(ran(session, *args), model(*args), strict=True):
            assert torch.equal(found, wanted)
    # Twice in each run of the session, twice in PyTorch.
    assert len(calls) == 8


def test_what_a_kernel_raises_is_raised_and_the_session_goes_on(file: Path) -> None:
    def strict(x: Tensor) -> Tensor:
        if (x < 0).any():
            raise ValueError("below zero")
        return x.sqrt()

    root = pb.operator("pbsession::root(x[n]) -> y[n]", python=strict)
    written(lambda x: root(x) @ torch.ones(3), torch.ones(3), file=file)
    session = pb.onnx_session(file)
    for _ in range(2):
        with pytest.raises(ValueError, match="below zero") as error:
            ran(session, torch.tensor([1.0, -1.0, 4.0]))
        assert error.value.__notes__ == ["in a node of pbsession::root, run by ONNX Runtime"]
        assert torch.equal(ran(session, torch.tensor([1.0, 1.0, 4.0]))[0], torch.tensor(4.0))


def test_operators_in_the_branches_of_a_condition(file: Path) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: swish(x, None), lambda x: swish(x, x[0]), (x,))

    x = torch.randn(2, 3, dtype=torch.float64)
    written(model, x, file=file)
    session = pb.onnx_session(file)
    for each in (x.abs(), -x.abs()):
        assert torch.equal(ran(session, each)[0], model(each))


def test_an_error_of_onnx_runtimes_own_is_its_own(file: Path) -> None:
    written(lambda x: swish(x, None), torch.ones(3), file=file)
    with pytest.raises(Exception, match="expected: \\(tensor\\(float\\)\\)"):
        ran(pb.onnx_session(file), torch.ones(3, dtype=torch.float64))


def test_a_kernel_that_breaks_its_promise_is_an_error_of_ours(file: Path) -> None:
    def cut(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy()[:1].copy())

    wrong = pb.operator("pbsession::wrong(x[n]) -> y[n]", python=cut)
    written(wrong, torch.ones(3), file=file)
    with pytest.raises(PullbackError, match="PB331"):
        ran(pb.onnx_session(file), torch.ones(3))


def test_sessions_in_several_threads(file: Path, seed: int) -> None:
    written(lambda x: swish(x, None), torch.ones(3), file=file)
    session = pb.onnx_session(file)
    inputs = [torch.randn(3) for _ in range(8)]
    found: dict[int, Tensor] = {}

    def one(k: int) -> None:
        found[k] = ran(session, inputs[k])[0]

    threads = [threading.Thread(target=one, args=(k,)) for k in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, x in enumerate(inputs):
        torch.testing.assert_close(found[k], swish(x, None))


def test_a_model_without_operators_runs_as_ever(file: Path) -> None:
    written(lambda x: x + 1, torch.ones(3), file=file)
    assert torch.equal(ran(pb.onnx_session(file), torch.ones(3))[0], torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"operator": "pbsession::gone"}, "pbsession::gone is not defined in this process"),
        ({"line": "pbonnx::swish(x[n]) -> y[n]"}, "has another line than when"),
    ],
)
def test_an_operator_that_is_not_what_it_was(change: dict[str, str], said: str, file: Path) -> None:
    written(lambda x: swish(x, None), torch.ones(3), file=file)
    model = ir.load(file)
    (node,) = model.graph
    node.metadata_props[KEY] = json.dumps({**json.loads(node.metadata_props[KEY]), **change})
    ir.save(model, file)
    with pytest.raises(PullbackError, match="PB760") as error:
        pb.onnx_session(file)
    assert said in str(error.value)
