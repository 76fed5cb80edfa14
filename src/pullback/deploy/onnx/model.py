"""A request for an export -> its file: exported, checked, attached, written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import onnx
import torch

from pullback.deploy.onnx import naming
from pullback.deploy.onnx.exporter import Exporter
from pullback.deploy.onnx.given import OnnxBody
from pullback.deploy.onnx.write import require_target, write
from pullback.diagnostic import Rule, did_you_mean

OnnxOpset = Rule("PB751", "onnx-opset")

OLDEST = 18


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `pb.export_onnx` was called with; `options` go to PyTorch's exporter as they are."""

    model: torch.nn.Module | torch.export.ExportedProgram
    args: tuple[Any, ...]
    path: str | PathLike[str]
    opset: int
    bodies: Mapping[str, Any]
    names: Mapping[str, str]
    external_data: bool | None
    options: Mapping[str, Any]


def exported(request: Request) -> torch.onnx.ONNXProgram:
    """Export, check and write; see `pb.export_onnx`."""
    opset = request.opset
    require_opset(opset)
    target = require_target(request.path)
    exporter = Exporter(opset=opset, bodies=request.bodies, names=request.names)
    program = exporter.program_of(request.model, request.args, **request.options)
    require_opset_reached(program, opset)
    require_used(exporter)
    naming.require_free(exporter.used)
    exporter.attach(program.model)
    write(program, target, external_data=request.external_data)
    return program


def require_opset(opset: int) -> None:
    """Stop at an opset that the exporter does not write."""
    latest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= latest:
        raise OnnxOpset.error(
            f"opset {opset} cannot be exported",
            have=f"{OLDEST} to {latest}, which the installed onnx {onnx.__version__} knows",
            help=f"opset={OLDEST} runs everywhere; ONNX Runtime refuses one that is too new for it",
        )


def require_opset_reached(program: torch.onnx.ONNXProgram, opset: int) -> None:
    """Stop where PyTorch's exporter has left the model at another opset."""
    found = program.model.opset_imports.get("")
    if found not in (None, opset):
        raise OnnxOpset.error(
            f"PyTorch's exporter could not bring the model to opset {opset}",
            opset=found,
            help=f"opset={found}",
        )


def require_used(exporter: Exporter) -> None:
    """Stop at a body or a name for an operator that is not in the model."""
    nodes = ["::".join(name) for name in exporter.used.values()]
    naming.require_names(exporter.names, exporter.used)
    known = [*exporter.used, *nodes, *exporter.without]
    for name in exporter.bodies:
        if name not in known:
            raise OnnxBody.error(
                f"bodies= has '{name}', and the model has no such operator",
                have=", ".join(dict.fromkeys(known)) or "none of pullback's",
                help=did_you_mean(name, known),
            )
