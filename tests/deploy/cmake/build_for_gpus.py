"""Build operators in index notation for GPUs: a process of its own.

python build_for_gpus.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from indexed_ops import CASES, FOR_GPUS

import pullback as pb
from pullback.deploy import shipped
from pullback.deploy.cmake import build, index_loops

folder = Path(sys.argv[1])
index_loops.dtypes_of = lambda each: ("float32", "bfloat16")[: 2 - each.order]
operators = [pb.operator(f"forgpus::{name}{CASES[name].text}") for name in FOR_GPUS]
every = shipped.collect(operators, orders=1)
folder.mkdir()
some = [each for each in every if "_tangent" not in each.line.name]
build.build_cmake(some, folder, ["sm_80", "sm_90"])
