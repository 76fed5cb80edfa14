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
from torch import Tensor

from pullback.bind.register import operators
from pullback.deploy.onnx.recipe import Recipe, recipe_in
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
    dtypes = [value.dtype.name if value.dtype else "FLOAT" for value in given]
    name = called_by(recipe, dtypes, [value is not None for value in node.inputs])
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


def called_by(recipe: Recipe, dtypes: Sequence[str], present: Sequence[bool]) -> str:
    """Return the type of a node that calls a kernel; the same call is registered once."""
    content = f"{recipe.text()} {dtypes} {present}"
    name = f"pullback_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if name not in _known:
        crossing = ["FLOAT" if dtype in NARROW else dtype for dtype in dtypes]
        returned = ["FLOAT" if dtype in NARROW else dtype for dtype in recipe.outputs]
        _known[name] = onnxruntime_extensions.onnx_op(
            op_type=name,
            inputs=[DTYPES[dtype] for dtype in crossing],
            outputs=[DTYPES[dtype] for dtype in returned],
        )(contained(recipe, dtypes, present))
    return name


def contained(recipe: Recipe, dtypes: Sequence[str], present: Sequence[bool]) -> Callable[..., Any]:
    """Return the function that calls an operator on arrays; it never raises."""

    def run(*arrays: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401
        try:
            given = [
                torch.from_numpy(array.copy()).to(NARROW.get(dtype))
                for array, dtype in zip(arrays, dtypes, strict=True)
            ]
            outputs = [array_of(output) for output in result(recipe, given, present)]
        except BaseException as error:  # whatever leaves here ends the process
            if not _raised:
                raise
            error.add_note(f"in a node of {recipe.operator}, run by ONNX Runtime")
            _raised[-1].append(error)
            kinds = [torch.float32 if d in NARROW else torch_dtype(d) for d in recipe.outputs]
            outputs = [torch.empty(0, dtype=kind).numpy() for kind in kinds]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def result(recipe: Recipe, given: Sequence[Tensor], present: Sequence[bool]) -> Sequence[Tensor]:
    """Return what the operator returns for a node's inputs."""
    tensors = iter(given)
    inputs = [next(tensors) if there else None for there in present]

    def at(place: int | None) -> Tensor | None:
        return None if place is None else inputs[place]

    arguments = [
        value
        if not tensor
        else [at(place) for place in value]
        if isinstance(value, list)
        else at(value)
        for value, tensor in zip(recipe.arguments, recipe.tensors, strict=True)
    ]
    with torch.no_grad():
        returned: Any = operators[recipe.operator].overload(*arguments)
    return returned if isinstance(returned, tuple | list) else [returned]


def array_of(output: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array that crosses to ONNX Runtime."""
    narrow = output.dtype in NARROW.values()
    return (output.float() if narrow else output).cpu().contiguous().numpy()


def torch_dtype(name: str) -> torch.dtype:
    """Return PyTorch's dtype of a name of ONNX's."""
    return getattr(torch, {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower()))
