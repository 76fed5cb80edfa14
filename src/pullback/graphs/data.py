"""A graph as plain data: it holds no tensor, so it outlives the tensors it describes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pullback.graphs import html, svg
from pullback.graphs.text import draw
from pullback.page import save

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
        shapes: of what the forward call computed, which are those of the gradients that arrive.
        module: the innermost call of a module that made it, in `graph.modules`.
    """

    operator: str
    name: str
    kind: Kind
    source: Place | None
    saved: tuple[Saved, ...]
    edges: tuple[Edge, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    module: int | None = None

    @property
    def held(self) -> int:
        """Bytes that it keeps and that no leaf or input has anyway; others may keep them too."""
        return sum(saved.bytes for saved in self.saved if saved.same_as is None)


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A tensor in which a gradient ends up, in its `.grad`."""

    name: str | None
    kind: Literal["parameter", "input", "tensor"]
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Module:
    """One call of a module while the forward call was recorded.

    Attributes:
        name: the module's, as `named_modules` has it: "layers.0.attention"; its class if it has
            none there.
        type: its class.
        parent: the call inside which it was made, in `graph.modules`.
    """

    name: str
    type: str
    parent: int | None


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
        modules: the calls of modules that made nodes, in their order.
    """

    of: str
    outputs: tuple[Edge, ...]
    nodes: tuple[Node, ...]
    leaves: tuple[Leaf, ...]
    held: int
    modules: tuple[Module, ...] = ()

    def __str__(self) -> str:
        return draw(self)

    def __repr__(self) -> str:
        return str(self)

    def to_svg(self) -> str:
        """Return it as a picture with every node, in light or dark as its reader prefers."""
        return svg.draw_svg(self)

    def to_html(self) -> str:
        """Return a page that needs no network: zoom, fold modules, see what a node keeps."""
        return html.draw_page(self)

    def _repr_html_(self) -> str:
        """Show it in a notebook: a picture, in which modules are folded if there are many nodes."""
        return html.draw_picture(self)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write it to a file, all or nothing, in the format of its ending: .svg, .html or .txt.

        Raises:
            PullbackError: PB406, another ending.
        """
        return save(file, {".svg": self.to_svg, ".html": self.to_html, ".txt": self.__str__})
