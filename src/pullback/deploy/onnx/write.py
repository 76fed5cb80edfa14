"""A program -> its file: checked first, and written as a whole or not at all."""

from __future__ import annotations

import tempfile
from os import PathLike
from pathlib import Path

import onnx
import torch

from pullback.diagnostic import Rule

OnnxTarget = Rule("PB752", "onnx-target")
OnnxInvalid = Rule("PB759", "onnx-invalid")


def require_target(path: str | PathLike[str]) -> Path:
    """Return where a file can be written, before anything is exported."""
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

    The file of the weights, if there is one, is named in the other; so both get the names that they
    keep, in a folder of their own.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise OnnxTarget.error(f"{target.parent} cannot be written to", os=error) from None
    with folder as name:
        made = Path(name) / target.name
        program.save(made, external_data=bool(external_data))
        require_valid(made)
        # The model last: it is what makes the weights be read.
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
