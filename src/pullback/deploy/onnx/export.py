"""`pb.export_onnx`: a model with its operators, in a file that a stock ONNX Runtime runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch

from pullback.bind.operator import Operator
from pullback.diagnostic import Rule

if TYPE_CHECKING:
    from pullback.deploy.onnx.session import Session

OnnxMissing = Rule("PB750", "onnx-missing")

USUAL = 18


def export_onnx(  # noqa: PLR0913  (PyTorch's own parameters, by their names)
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] = (),
    path: str | PathLike[str] = "model.onnx",
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,  # noqa: ANN401
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int = USUAL,
    bodies: Mapping[str | Operator, Any] | None = None,
    names: Mapping[str | Operator, str] | None = None,
    external_data: bool | None = None,
    optimize: bool = True,
    custom_translation_table: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
) -> torch.onnx.ONNXProgram:
    """Export a model to ONNX; each of its operators is one node, with what it computes beside it.

    It is `torch.onnx.export(model, args, path, dynamo=True)`. Beyond that, an operator is a node of
    its own name in the domain of its namespace, the scalars of its line are the node's attributes,
    and its body is a function in the file, so that a stock ONNX Runtime runs it. The body comes
    from `bodies`; from the `symbolic` of its Function; from its formula; from its reference; or
    from its Python function or its Function's forward, where PyTorch's exporter can see through
    that. Where none of them can give it, the node is written alone, with an `OnnxNotice`.

    Args:
        model: a module, best in `eval()`; or what `torch.export.export` returned.
        args: an example of its arguments.
        path: of the file, which is written as a whole or not at all.
        kwargs: more of the example, by name.
        dynamic_shapes: which sizes vary, `{"x": {0: "batch"}}`; as for `torch.export.export`.
        input_names: of the model in the file.
        output_names: of the model in the file.
        opset: the version of the standard operators, 18 or later.
        bodies: for some operators, by name or by the node's name: an ONNX Script function, a
            FunctionProto, ONNX's text, or a function of PyTorch with the line's parameters.
        names: other names for nodes, {"demo::linear": "com.acme::Linear"}.
        external_data: whether the weights are in a file of their own, `<path>.data`; by default
            where they are more than a file of ONNX holds.
        optimize: let PyTorch's exporter fold constants and drop what is not used.
        custom_translation_table: of other operators, as for `torch.onnx.export`.

    Returns:
        The program, its functions included.

    Raises:
        PullbackError: PB750, a package is missing; PB751, no such opset; PB752, the file cannot be
            written; PB753, two operators could be taken for one another; PB754, an operator changes
            its input; PB755, a scalar is not a number; PB756, a body does not fit; PB757, a
            `symbolic` goes wrong; PB759, the result is not a valid model.
    """
    require_packages("onnx", "onnxscript")
    # They need ONNX.
    from pullback.deploy.onnx.exporter import Exporter  # noqa: PLC0415
    from pullback.deploy.onnx.model import export_model  # noqa: PLC0415

    return export_model(
        Exporter(opset=opset, bodies=by_name(bodies), names=by_name(names)),
        path,
        model,
        args,
        external_data=external_data,
        kwargs=dict(kwargs) if kwargs else None,
        dynamic_shapes=dynamic_shapes,
        input_names=input_names,
        output_names=output_names,
        optimize=optimize,
        custom_translation_table=dict(custom_translation_table or {}),
    )


def require_packages(*packages: str) -> None:
    """Stop where a package for ONNX is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise OnnxMissing.error(
                f"the package {package} is not installed",
                help="install what ONNX needs: pip install 'pullback[onnx]'",
            )


def by_name(given: Mapping[str | Operator, Any] | None) -> dict[str, Any]:
    """Return what is given for operators by their names."""
    return {
        key.line.qualname if isinstance(key, Operator) else key: value
        for key, value in (given or {}).items()
    }


def onnx_session(path: str | PathLike[str], sess_options: Any = None, **options: Any) -> Session:  # noqa: ANN401
    """Return a session of ONNX Runtime in which operators run their own kernels, in this process.

    A file of `pb.export_onnx` runs in any session, by the bodies that are in it. In this one each
    operator's node calls the operator itself: for one that has no body, and to compare the two. The
    tensors cross onnxruntime-extensions as Python lists, so this is slow. An exception in a kernel
    is raised by `run`; onnxruntime-extensions alone would end the process.

    Args:
        path: of a model that `pb.export_onnx` wrote.
        sess_options: as for `onnxruntime.InferenceSession`.
        options: as for `onnxruntime.InferenceSession`.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        PullbackError: PB750, a package is missing; PB760, an operator is not defined here, or has
            another line.
    """
    require_packages("onnx_ir", "onnxruntime", "onnxruntime_extensions")
    from pullback.deploy.onnx.session import session  # noqa: PLC0415  (it needs ONNX Runtime)

    return session(path, sess_options, **options)
