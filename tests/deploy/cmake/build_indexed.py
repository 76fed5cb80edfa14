"""Build operators in index notation with CMake: a process of its own.

python build_indexed.py FOLDER few|whole
"""

from __future__ import annotations

import sys
from pathlib import Path

from indexed_ops import CASES, FEW

import pullback as pb
from pullback.deploy import shipped
from pullback.deploy.cmake import build, index_loops
from pullback.deploy.shipped import FLOATING, PRECISE

folder, which = Path(sys.argv[1]), sys.argv[2]
names = FEW if which == "few" else list(CASES)
operators = [pb.operator(f"index{which}::{name}{CASES[name].text}") for name in names]
folder.mkdir()
if which == "few":
    # One dtype and gradients alone: most of the rest is forward mode and second derivatives.
    index_loops.dtypes_of = lambda _: ("float64",)
    every = shipped.collect(operators, orders=1)
    build.build_cmake([each for each in every if "_tangent" not in each.line.name], folder)
else:
    # All dtypes forward, then fewer and fewer; of second derivatives those of double backward.
    dtypes = {0: FLOATING, 1: PRECISE, 2: ("float64",)}
    index_loops.dtypes_of = lambda each: dtypes[each.order]
    every = shipped.collect(operators)
    some = [each for each in every if each.order < 2 or each.line.name.endswith("_grad_grad")]
    build.build_cmake(some, folder, sizes=[{"d": 3}])
