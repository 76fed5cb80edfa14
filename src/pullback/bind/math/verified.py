"""Remembers in the cache of libraries what has been compared before, in any process.

A mark is a folder like a library's, with one empty file: `cache.clean` removes it with the others.
Its name is a digest of all that the comparison depends on: the formula, the code that generates
loops and that evaluates without them, what compiled them, PyTorch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pullback.bind.loops.compiled import FLAGS
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine
from pullback.define.math.node import Node, in_order
from pullback.kernels import cache as libraries
from pullback.kernels import prebuilt, toolchain
from pullback.kernels.plan import kernel_flags

if TYPE_CHECKING:
    from pullback.bind.loops.nests import Own

MARK = "agreed"
# The sources that decide the loops, and what these are compared with.
SOURCES = (
    *("bind/math/*.py", "bind/loops/*.py", "bind/dense/*.py", "kernels/*.py", "kernels/loops/*.py"),
    *("define/*.py", "define/math/*.py", "csrc/*.h", "csrc/index/*.h", "csrc/formula/*.h"),
    *("csrc/index/cuda/*", "csrc/formula/cuda/*"),
)


def digest(*parts: object) -> str:
    """Return the name of a mark for some content."""
    made_by = [name_compiler(), prebuilt.hash_index_loops(), version()]
    content = json.dumps([made_by, *parts], default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def name_compiler() -> list[object]:
    """Return the compiler and its flags; nothing without one."""
    if not toolchain.has("c++"):
        return []
    compiler = toolchain.find("c++")
    return [compiler.identity, kernel_flags(compiler), FLAGS]


def is_marked(name: str) -> bool:
    """Return whether two executions have been seen to agree."""
    return any(libraries.is_ours(entry, MARK) for entry in libraries.entries(name))


def mark(name: str) -> None:
    """Remember that two executions agree; if that cannot be written, they are compared again."""
    entry = libraries.folder() / name
    with suppress(OSError):
        entry.mkdir(mode=0o700, exist_ok=True)
        (entry / MARK).touch(mode=0o600)


def serialize_formula(indexed: Formula) -> list[object]:
    """Return a whole formula as plain data."""
    numbers: dict[Node, int] = {}
    rows: list[object] = []
    states = indexed.states.values()
    for node in in_order([*(state.node for state in states), *indexed.nodes]):
        rows.append(
            [node.op, node.type, [numbers[arg] for arg in node.args], serialize_node(node, numbers)]
        )
        numbers[node] = len(numbers)
    sizes = [[name, serialize_affine(size, numbers)] for name, size in indexed.sizes.items()]
    outputs: list[object] = [numbers[node] for node in indexed.nodes]
    outputs += [[s.name, s.indices, numbers[s.node]] for s in states]
    return [str(indexed.line), indexed.accuracy, sorted(indexed.full), sizes, outputs, rows]


def serialize_loops(own: Own) -> list[object]:
    """Return the text of some loops, and what runs them: that they agree there says so of it."""
    return [own.backend.name, own.target.name, *(step.kernel.text for step in own.steps)]


def serialize_node(node: Node, numbers: Mapping[Node, int]) -> object:
    """Return what a node carries."""
    if not isinstance(node.data, tuple):
        return repr(node.data)
    return [serialize_affine(p, numbers) if isinstance(p, Affine) else repr(p) for p in node.data]


def serialize_affine(place: Affine, numbers: Mapping[Node, int]) -> object:
    """Return an index; the nodes in it by their numbers, or as they are printed."""
    terms: Iterable[tuple[str | Node, int]] = place.terms
    return [
        place.constant,
        [[t if isinstance(t, str) else numbers.get(t, repr(t)), factor] for t, factor in terms],
    ]


@cache
def version() -> str:
    """Return a digest of the sources that the comparison depends on, and of PyTorch's version."""
    root = Path(__file__).parents[2]
    found = hashlib.sha256(torch.__version__.encode())
    for pattern in SOURCES:
        for path in sorted(root.glob(pattern)):
            found.update(f"{path.name} {path.stat().st_size}\n".encode())
            found.update(path.read_bytes())
    return found.hexdigest()
