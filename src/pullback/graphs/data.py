"""A graph as plain data: it holds no tensor, so it outlives the tensors it describes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pullback.graphs.text import draw

# Who wrote the derivative: pullback, PyTorch, an autograd.Function, a C++ extension.
Kind = Literal["pullback", "built-in", "function", "extension"]
State = Literal["kept", "freed", "packed"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The line of the forward call that made a node."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        place = f"{Path(self.file).name}:{self.line} in {self.function}"
        return f"{place}: {self.text}" if self.text else place


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One tensor that a node keeps for its backward.

    Attributes:
        name: the parameter or output of the operator; `saved_tensors[0]` of an autograd.Function.
        dtype: such as "float32"; None where the state is not "kept".
        shape: None where the state is not "kept".
        bytes: of its elements, 0 where the state is not "kept".
        same_as: the leaf or input whose memory it shares, so that saving it costs nothing.
        state: "freed" by a backward, or "packed" by a saved-tensor hook, which is not called.
    """

    name: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    bytes: int = 0
    same_as: str | None = None
    state: State = "kept"


@dataclass(frozen=True, kw_only=True)
class Edge:
    """Where a gradient goes: to `graph.nodes[index]` or to `graph.leaves[index]`."""

    to: Literal["node", "leaf"]
    index: int


@dataclass(frozen=True, kw_only=True)
class Node:
    """One step of backward.

    Attributes:
        operator: the operator of the forward call: "demo::add2", "relu".
        name: what autograd calls the node: "demo::add2Backward", "ReluBackward0".
        kind: who wrote its derivative.
        source: the line that made it; None where the forward call was not recorded.
        saved: what it keeps.
        edges: where its gradients go, in the order of the operator's inputs.
    """

    operator: str
    name: str
    kind: Kind
    source: Place | None
    saved: tuple[Saved, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A tensor in which a gradient ends up, in its `.grad`."""

    name: str | None
    kind: Literal["parameter", "input", "tensor"]
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Graph:
    """What `backward()` will walk; printing it draws the tree.

    Attributes:
        of: what it is the graph of.
        outputs: where `backward()` starts.
        nodes: in the order in which a walk from the outputs meets them.
        leaves: where it ends.
        held: bytes of memory that only the graph keeps alive; memory shared with leaves and inputs
            is not counted, and memory shared by two nodes is counted once.
    """

    of: str
    outputs: tuple[Edge, ...]
    nodes: tuple[Node, ...]
    leaves: tuple[Leaf, ...]
    held: int

    def __str__(self) -> str:
        return draw(self)

    def __repr__(self) -> str:
        return str(self)
