"""Build the author's operators with CMake, and save what Python gives: a process of its own.

python build_library.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from cases import cases, outcome

import pullback as pb

sys.path.insert(0, str(Path(__file__).parent / "author"))
import shiplib  # pyright: ignore[reportMissingImports]

folder = Path(sys.argv[1])
library = pb.build(shiplib.operators, as_="cmake", into=folder)
assert library == folder / "lib" / "libshiplib.so"
expected = {what: outcome(torch.ops.shiplib, *call) for what, call in cases().items()}
torch.save(expected, folder / "expected.pt")
