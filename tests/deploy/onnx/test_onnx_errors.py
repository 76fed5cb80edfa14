"""What cannot be exported, said clearly, and with nothing half-written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from building import command
from exporting import export, swish
from running import call_of
from torch import Tensor

import pullback as pb
from pullback.deploy.onnx import model, naming, sources
from pullback.deploy.onnx.exporter import Exporter
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler
X = torch.ones(2, 3)


def gated(x: Tensor) -> Tensor:
    return swish(x, None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def error_of(function: Callable[..., Any], *args: Tensor, file: Path, **options: Any) -> str:
    """Return the error of an export, after which the folder is as it was."""
    before = sorted(file.parent.parent.rglob("*"))
    with pytest.raises(PullbackError) as error:
        export(function, *args, path=file, **options)
    assert sorted(file.parent.parent.rglob("*")) == before
    return str(error.value)


@pytest.mark.parametrize("opset", [9, 17, onnx.defs.onnx_opset_version() + 1])
def test_an_opset_that_is_not_written(opset: int, file: Path) -> None:
    said = error_of(gated, X, file=file, opset=opset)
    assert said.startswith(f"onnx-opset [PB751]: opset {opset} cannot be exported")
    assert "have: 18 to" in said


def test_a_target_that_cannot_be(tmp_path: Path) -> None:
    said = error_of(gated, X, file=tmp_path / "no" / "model.onnx")
    assert "onnx-target [PB752]: there is no folder" in said
    (tmp_path / "folder").mkdir()
    assert "is a folder" in error_of(gated, X, file=tmp_path / "folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written to" in error_of(gated, X, file=tmp_path / "model.onnx")


def test_a_name_that_is_a_standard_operators_or_anothers(file: Path) -> None:
    relu = pb.operator("pbbad::Relu(x[...]) -> y[...] = relu(x)")
    said = error_of(relu, X, file=file)
    assert said.startswith("onnx-name [PB753]: pbbad::Relu would be a node 'Relu'")
    assert 'names={"pbbad::Relu": ' in said
    same = pb.operator("pbbad::swish(x[...]) -> y[...] = relu(x)")
    said = error_of(lambda x: same(gated(x)), X, file=file)
    assert "pbbad::swish and pbonnx::swish would both be nodes 'swish'" in said


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({swish: "Mine"}, "calls pbonnx::swish 'Mine', which is not a domain and a name"),
        ({"pbonnx::swisch": "a::b"}, "help: did you mean 'pbonnx::swish'?"),
    ],
)
def test_another_name_that_is_none(names: dict[Any, str], said: str, file: Path) -> None:
    assert said in error_of(gated, X, file=file, names=names)


@pytest.mark.parametrize("domain", ["", "ai.onnx", "ai.onnx.ml", "onnx"])
def test_a_domain_that_is_onnxs_own(domain: str) -> None:
    with pytest.raises(PullbackError, match="which is ONNX's own"):
        naming.require_free({"pbbad::mine": (domain, "Mine")})


def test_an_operator_that_changes_its_input(file: Path) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return 2 * grads[0]

    twice = pb.operator("pbbad::twice(x[...]) -> x[...]", function=Twice)
    said = error_of(lambda x: twice(x.clone()), X, file=file)
    assert said.startswith("onnx-mutation [PB754]: pbbad::twice changes 'x' in place")


def test_a_scalar_that_is_computed_in_the_model(file: Path) -> None:
    library = torch.library.Library("pbbad", "FRAGMENT")
    library.define("times(Tensor x, SymInt n) -> Tensor")
    library.impl("times", lambda x, n: x * n, "CompositeExplicitAutograd")
    torch.library.register_fake("pbbad::times", lambda x, n: torch.empty_like(x), lib=library)
    times = pb.operator("pbbad::times")
    said = error_of(lambda x: times(x, x.shape[0]), X, file=file, dynamic=True)
    assert said.startswith("onnx-scalar [PB755]: pbbad::times: 'n' is computed in the model")


def test_complex_tensors(file: Path) -> None:
    turned = pb.operator("pbbad::turned(x[...]) -> y[...]", python=lambda x: 1j * x)
    said = error_of(lambda x: turned(x).real, X.to(torch.complex64), file=file)
    assert said.startswith("onnx-complex [PB758]: pbbad::turned is called with complex tensors")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (3, "an int is not a body"),
        ("f (x) =>", "is not a function in ONNX's text"),
        ('<domain: "a", opset_import: ["": 18]> f (x) => (y) { y = Neg(x) }', "has 1 inputs"),
        (
            '<domain: "a", opset_import: ["": 18]> f <k> (x, b) => (y) { y = Neg(x) }',
            "has the attribute 'k'",
        ),
        ('<domain: "a", opset_import: ["": 21]> f (x, b) => (y) { y = Neg(x) }', "is of opset 21"),
        (lambda x, b, beta: x.numpy().sort(), "cannot be exported: "),
    ],
)
def test_a_body_that_does_not_fit(body: Any, said: str) -> None:
    formula = swish.definition.formula
    assert formula
    with pytest.raises(PullbackError, match="PB756") as error:
        sources.given_to(call_of(formula, [X, None]), body, Exporter(opset=18))
    assert said in str(error.value)


def test_a_body_for_an_operator_that_is_not_in_the_model(file: Path) -> None:
    said = error_of(gated, X, file=file, bodies={"pbonnx::swisch": "f () => () {}"})
    assert "the model has no such operator" in said


def test_a_body_that_onnxs_checker_refuses(file: Path) -> None:
    text = '<domain: "a", opset_import: ["": 18]> f (x, b) => (y) { y = NoSuchOperator(x) }'
    said = error_of(gated, X, file=file, bodies={swish: text})
    assert said.startswith("onnx-invalid [PB759]: ONNX's checker refuses the model")
    assert "NoSuchOperator" in said


def test_an_export_that_fails_or_is_interrupted_leaves_the_file_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(gated, X, path=file)
    kept = file.read_bytes()

    def interrupted(path: Path) -> None:
        assert path.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "require_valid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(lambda x: gated(x) + 1, X, path=file)
    assert file.read_bytes() == kept
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("call", "package"),
    [
        ("pb.export_onnx(None, (), 'model.onnx')", "onnxscript"),
        ("pb.onnx_session('model.onnx')", "onnxruntime_extensions"),
    ],
)
def test_without_the_packages_it_says_what_to_install(
    call: str, package: str, tmp_path: Path
) -> None:
    program = (
        "import importlib.util as u; own = u.find_spec\n"
        f"u.find_spec = lambda name, *a: None if name == {package!r} else own(name, *a)\n"
        f"import pullback as pb\n{call}"
    )
    answer = command("-c", program, folder=tmp_path)
    assert f"onnx-missing [PB750]: the package {package} is not installed" in answer.stderr
    assert "pip install 'pullback[onnx]'" in answer.stderr
