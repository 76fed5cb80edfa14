"""`pb.onnx_session`: ONNX Runtime, with the operators' own kernels in place of their bodies.

onnxruntime-extensions calls a Python function for a node. An exception in that would end the
process; here it is kept, the node gives empty tensors, and `run` raises the exception afterwards.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import onnxruntime_extensions
import torch
from onnx_ir.tensor_adapters import to_torch_dtype
from torch import Tensor

from pullback.bind.registry import operators
from pullback.deploy.onnx.call import Recipe, recipe_in
from pullback.diagnostic import Rule, did_you_mean

OnnxKernel = Rule("PB760", "onnx-kernel")

DOMAIN = onnxruntime_extensions.default_opset_domain()
# What onnxruntime-extensions hands to Python; what is narrower crosses as float32.
DTYPES: Mapping[str, int] = {
    name: getattr(onnxruntime_extensions.PyCustomOpDef, f"dt_{name.lower()}")
    for name in ("FLOAT", "DOUBLE", "INT64", "INT32", "INT16", "INT8", "UINT8", "BOOL")
}
NARROW: Mapping[str, torch.dtype] = {"FLOAT16": torch.float16, "BFLOAT16": torch.bfloat16}

# One run at a time: kernels in Python take turns anyway. A kernel may run another session.
_running = threading.RLock()
_raised: list[list[BaseException]] = []
_known: dict[str, object] = {}


class Session(onnxruntime.InferenceSession):
    """A session in which the nodes of pullback's operators run their kernels."""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,  # noqa: ANN401
    ) -> Sequence[Any]:
        """Run the model; an exception in a kernel is raised here."""
        with _running:
            raised: list[BaseException] = []
            _raised.append(raised)
            try:
                return super().run(output_names, input_feed, run_options)
            except Exception:
                if not raised:
                    raise
                return []
            finally:
                _raised.remove(raised)
                if raised:
                    raise raised[0]


def session(path: str | PathLike[str], sess_options: Any = None, **options: Any) -> Session:  # noqa: ANN401
    """Return a session of ONNX Runtime that runs the kernels of this process's operators.

    Args:
        path: of a model that `pb.export_onnx` wrote.
        sess_options: as for `onnxruntime.InferenceSession`.
        options: as for `onnxruntime.InferenceSession`.

    Raises:
        PullbackError: PB760, an operator of the model is not defined in this process, or has
            another line here.
    """
    model = ir.load(path)
    for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
        recipe = recipe_in(node)
        if recipe is not None:
            require_defined(recipe)
            replace(node, recipe)
    model.opset_imports[DOMAIN] = 1
    chosen = sess_options or onnxruntime.SessionOptions()
    chosen.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    folder = str(Path(path).absolute().parent)
    chosen.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return Session(ir.to_proto(model).SerializeToString(), chosen, **options)


def require_defined(recipe: Recipe) -> None:
    """Stop unless the operator is what it was when the model was exported."""
    operator = operators.get(recipe.operator)
    if operator is None:
        raise OnnxKernel.error(
            f"{recipe.operator} is not defined in this process",
            line=recipe.line,
            help=did_you_mean(recipe.operator, operators)
            or "import the module that defines it; a stock session runs its body",
        )
    if str(operator.line) != recipe.line:
        raise OnnxKernel.error(
            f"{recipe.operator} has another line than when the model was exported",
            then=recipe.line,
            now=operator.line,
            help="export the model again",
        )


def replace(node: ir.Node, recipe: Recipe) -> None:
    """Put a node that calls the kernel in place of one that has a body."""
    graph = node.graph
    assert graph is not None
    given = [value for value in node.inputs if value is not None]
    dtypes = [dtype for dtype in recipe.inputs if dtype is not None]
    name = node_type(recipe)
    before: list[ir.Node] = []
    inputs: list[ir.Value] = []
    for value, dtype in zip(given, dtypes, strict=True):
        cast = ir.node("Cast", [value], {"to": ir.DataType.FLOAT}) if dtype in NARROW else None
        before += [cast] if cast else []
        inputs.append(cast.outputs[0] if cast else value)
    call = ir.Node(DOMAIN, name, inputs, num_outputs=len(node.outputs), version=1)
    after = [
        ir.node("Cast" if dtype in NARROW else "Identity", [made], to_of(dtype))
        for made, dtype in zip(call.outputs, recipe.outputs, strict=True)
    ]
    graph.insert_before(node, [*before, call, *after])
    for made, old in zip(after, list(node.outputs), strict=True):
        own = made.outputs[0]
        own.name, own.type, own.shape = old.name, old.type, old.shape
        ir.convenience.replace_all_uses_with(old, own, replace_graph_outputs=True)
        old.name = None
    graph.remove(node, safe=True)


def to_of(dtype: str) -> dict[str, ir.DataType]:
    """Return the attribute of the cast to a dtype that does not cross into Python."""
    return {"to": ir.DataType[dtype]} if dtype in NARROW else {}


def node_type(recipe: Recipe) -> str:
    """Return the type of a node that calls a kernel; calls that are alike are registered once."""
    name = f"pullback_{hashlib.sha256(recipe.text().encode()).hexdigest()[:16]}"
    if name not in _known:
        _known[name] = onnxruntime_extensions.onnx_op(
            op_type=name,
            inputs=[crossing_dtype(dtype) for dtype in recipe.inputs if dtype is not None],
            outputs=[crossing_dtype(dtype) for dtype in recipe.outputs],
        )(contain_errors(recipe))
    return name


def crossing_dtype(dtype: str) -> int:
    """Return the type as which a dtype crosses into Python."""
    return DTYPES["FLOAT" if dtype in NARROW else dtype]


def contain_errors(recipe: Recipe) -> Callable[..., Any]:
    """Return the function that calls an operator on arrays; it never raises."""

    def run(*arrays: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401
        try:
            outputs = [array_of(output) for output in run_recipe(recipe, arrays)]
        except BaseException as error:  # whatever leaves here ends the process
            if not _raised:
                raise
            error.add_note(f"in a node of {recipe.operator}, run by ONNX Runtime")
            _raised[-1].append(error)
            outputs = [
                array_of(torch.empty(0, dtype=to_torch_dtype(ir.DataType[d])))
                for d in recipe.outputs
            ]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def run_recipe(recipe: Recipe, arrays: Sequence[np.ndarray[Any, Any]]) -> Sequence[Tensor]:
    """Return what the operator returns for a node's inputs."""
    given = iter(arrays)
    inputs = [
        None if dtype is None else torch.from_numpy(next(given).copy()).to(NARROW.get(dtype))
        for dtype in recipe.inputs
    ]

    def at(place: int | None) -> Tensor | None:
        return None if place is None else inputs[place]

    arguments: list[Any] = []
    for value, tensor in zip(recipe.arguments, recipe.tensors, strict=True):
        if not tensor:
            arguments.append(value)
        else:
            arguments.append([at(k) for k in value] if isinstance(value, list) else at(value))
    with torch.no_grad():
        returned: Any = operators[recipe.operator].overload(*arguments)
    return returned if isinstance(returned, tuple | list) else [returned]


def array_of(output: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array that crosses to ONNX Runtime."""
    narrow = output.dtype in NARROW.values()
    return (output.float() if narrow else output).cpu().contiguous().numpy()
