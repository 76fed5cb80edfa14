"""Check a model before and after its export, and write its file whole or not at all."""

from __future__ import annotations

import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

import onnx
import torch

from pullback.deploy.onnx import naming
from pullback.deploy.onnx.exporter import Exporter
from pullback.deploy.onnx.sources import OnnxBody
from pullback.diagnostic import Rule, did_you_mean

OnnxOpset = Rule("PB751", "onnx-opset")
OnnxTarget = Rule("PB752", "onnx-target")
OnnxInvalid = Rule("PB759", "onnx-invalid")

OLDEST = 18


def export_model(
    exporter: Exporter,
    path: str | PathLike[str],
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...],
    *,
    external_data: bool | None,
    **options: Any,  # noqa: ANN401
) -> torch.onnx.ONNXProgram:
    """Export, check and write; see `pb.export_onnx`. Options are those of PyTorch's exporter."""
    require_opset(exporter.opset)
    target = require_target(path)
    program = exporter.program_of(model, args, **options)
    require_opset_reached(program, exporter.opset)
    require_used(exporter)
    naming.require_free(exporter.used)
    exporter.attach(program.model)
    write(program, target, external_data=external_data)
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
    reached = program.model.opset_imports.get("")
    if reached not in (None, opset):
        raise OnnxOpset.error(
            f"PyTorch's exporter could not bring the model to opset {opset}",
            opset=reached,
            help=f"opset={reached}",
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


def require_target(path: str | PathLike[str]) -> Path:
    """Return the path to write to, or stop before anything is exported."""
    target = Path(path).absolute()
    if target.is_dir():
        raise OnnxTarget.error(
            f"{target} is a folder", help=f"name a file: {target / 'model.onnx'}"
        )
    if not target.parent.is_dir():
        raise OnnxTarget.error(
            f"there is no folder {target.parent}", help=f"make it: mkdir -p {target.parent}"
        )
    return target


def write(program: torch.onnx.ONNXProgram, target: Path, *, external_data: bool | None) -> None:
    """Write a program beside its target, check it there, and give it its name.

    The model names the file of its weights, if there is one; so both are written under their final
    names, in a folder of their own.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise OnnxTarget.error(f"{target.parent} cannot be written to", os=error) from None
    with folder as name:
        made = Path(name) / target.name
        program.save(made, external_data=bool(external_data))
        require_valid(made)
        # The model last, since it refers to the weights.
        for part in sorted(Path(name).iterdir(), key=lambda part: part.name == target.name):
            part.replace(target.parent / part.name)


def require_valid(path: Path) -> None:
    """Stop at a file that ONNX's checker refuses."""
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise OnnxInvalid.error(
            "ONNX's checker refuses the model",
            onnx=str(error).strip(),
            help="a body that was given may not fit; without one, report it with the model",
        ) from None
