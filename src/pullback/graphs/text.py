"""A graph -> a text tree, read from the outputs down as backward walks it."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullback.graphs.data import Edge, Graph, Leaf, Node, Saved

# A branch deeper than this is drawn below, from the margin.
MOST_COLUMNS = 48
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

UNRECORDED = """\
No lines are known: the forward call was not recorded. To see which line made each node, hand over
the function and its inputs in place of the tensor: pb.graph(model, x)"""


def draw(graph: Graph) -> str:
    """Return the whole tree; a node with several parents is drawn once and then referred to."""
    lines = [heading(graph), "", *Drawing(graph).lines()]
    if graph.nodes and all(node.source is None for node in graph.nodes):
        lines += ["", *UNRECORDED.splitlines()]
    return "\n".join(lines)


def heading(graph: Graph) -> str:
    """Return what the tree shows, in one line."""
    count = (
        f"{format_count(len(graph.nodes), 'node')}, "
        f"{format_count(len(graph.leaves), 'leaf', 'leaves')}"
    )
    held = f"; it alone keeps {format_bytes(graph.held)} alive" if graph.held else ""
    return f"graph of {graph.of}: {count}{held}"


def format_count(number: int, one: str, many: str | None = None) -> str:
    """Return "1 node", "2 nodes"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_bytes(count: float) -> str:
    """Return bytes as people read them."""
    for unit in UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {UNITS[-1]}"


class Drawing:
    """One pass over a graph. `lead` stands before a node's title, `rest` before what follows."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        parents = Counter(edge for node in graph.nodes for edge in node.edges)
        parents.update(graph.outputs)
        self.shared = {edge for edge, count in parents.items() if count > 1 and edge.to == "node"}
        self.numbers: dict[Edge, int] = {}
        self.drawn: set[Edge] = set()

    def lines(self) -> list[str]:
        """Return the lines of the tree."""
        lines: list[str] = []
        margin = deque(self.graph.outputs)
        while margin:
            start = margin.popleft()
            if start in self.drawn:
                continue
            if lines:
                lines.append("")
            stack = [(start, "", "")]
            while stack:
                edge, lead, rest = stack.pop()
                if len(rest) > MOST_COLUMNS and self.is_new(edge) and self.children(edge):
                    margin.append(edge)
                    lines.append(f"{lead}{self.reference(edge)}")
                    continue
                lines += self.own_lines(edge, lead, rest)
                if self.is_new(edge):
                    self.drawn.add(edge)
                    stack += reversed(self.below(edge, rest))
        return lines

    def is_new(self, edge: Edge) -> bool:
        """Tell whether an edge leads to a node that is still to be drawn."""
        return edge.to == "node" and edge not in self.drawn

    def children(self, edge: Edge) -> tuple[Edge, ...]:
        """Return a node's edges."""
        return self.graph.nodes[edge.index].edges

    def below(self, edge: Edge, rest: str) -> list[tuple[Edge, str, str]]:
        """Return a node's edges with their prefixes; a chain stays in one column."""
        edges = self.children(edge)
        if len(edges) == 1 and self.is_new(edges[0]):
            return [(edges[0], rest, rest)]
        leads = [("├─ ", "│  ")] * (len(edges) - 1) + [("└─ ", "   ")]
        return [
            (other, rest + lead, rest + under)
            for other, (lead, under) in zip(edges, leads, strict=False)
        ]

    def own_lines(self, edge: Edge, lead: str, rest: str) -> list[str]:
        """Return the lines of a node, of a leaf, or of a reference to one drawn elsewhere."""
        if edge.to == "leaf":
            return [f"{lead}{leaf_title(self.graph.leaves[edge.index])}"]
        if edge in self.drawn:
            return [f"{lead}{self.reference(edge)}"]
        node = self.graph.nodes[edge.index]
        number = f"[{self.number(edge)}] " if edge in self.shared or edge in self.numbers else ""
        bar = "│  " if node.edges else "   "
        return [
            f"{lead}{number}{title(node)}",
            *(f"{rest}{bar}{line}" for line in details(node)),
        ]

    def number(self, edge: Edge) -> int:
        """Return the number by which a node is referred to."""
        return self.numbers.setdefault(edge, len(self.numbers) + 1)

    def reference(self, edge: Edge) -> str:
        """Return the text in place of a node that is drawn elsewhere."""
        return f"[{self.number(edge)}] {self.graph.nodes[edge.index].operator}, drawn " + (
            "above" if edge in self.drawn else "below"
        )


def title(node: Node) -> str:
    """Return a node's operator, and who wrote its derivative."""
    by = {"function": "autograd.Function", "pullback": "pullback", "extension": "C++ Function"}
    return f"{node.operator} ({by.get(node.kind, node.name)})"


def details(node: Node) -> list[str]:
    """Return the line that made a node and what it saved."""
    rows = [f"at    {node.source}"] if node.source else []
    return [*rows, *(f"saved {saved_line(saved)}" for saved in node.saved)]


def saved_line(saved: Saved) -> str:
    """Return a saved tensor in one line."""
    if saved.state == "freed":
        return f"{saved.name}: freed"
    if saved.state == "packed":
        return f"{saved.name}: packed by a saved-tensor hook"
    same = f", the memory of {saved.same_as}" if saved.same_as else ""
    return f"{saved.name} {saved.shape} {saved.dtype}, {format_bytes(saved.bytes)}{same}"


def leaf_title(leaf: Leaf) -> str:
    """Return a leaf's name, kind and shape."""
    name = f"{leaf.name}: " if leaf.name else ""
    kind = "leaf" if leaf.kind == "tensor" else leaf.kind
    return f"{name}{kind} {leaf.shape} {leaf.dtype}"
