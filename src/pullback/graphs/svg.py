"""A graph -> a picture: boxes for calls of modules, colours for who wrote a derivative."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from pullback.graphs import layout, text
from pullback.graphs.layout import Box, Item, Link, Passing

if TYPE_CHECKING:
    from pullback.graphs.data import Edge, Graph

# Pixels. A letter is as wide as in the widest of the usual monospaced fonts.
LETTER, LINE, PAD, GAP, ROW, PASS, HEAD = 7.3, 16.0, 8.0, 14.0, 26.0, 10.0, 20.0
LONGEST = 34
MARGIN = 12.0

# The colours of an area and of its edge, in light and in dark, by who wrote the derivative.
COLOURS = {
    "built-in": ("#f1f1f4", "#8a8a96", "#2a2a30", "#8a8a96"),
    "pullback": ("#dff3e4", "#1b7f3b", "#173622", "#58c27a"),
    "function": ("#fdeccf", "#b26a00", "#3d2c10", "#e0a448"),
    "extension": ("#dfeafc", "#2a62c4", "#182a4a", "#7aa7f5"),
    "leaf": ("#ffffff", "#8a8a96", "#17171a", "#8a8a96"),
    "leaf.parameter": ("#ffffff", "#7a4bc2", "#17171a", "#b794f0"),
    "leaf.input": ("#ffffff", "#c2287a", "#17171a", "#f08abf"),
    "module": ("#f7f7f9", "#c4c4cc", "#1e1e22", "#4a4a54"),
    "module.folded": ("#e8e8ed", "#8a8a96", "#2e2e36", "#8a8a96"),
}
STYLE = """
.pb-graph { font: 12px ui-monospace, monospace; color: #1b1b1f; background: #fff; }
.pb-graph text { fill: currentColor; } .pb-graph .soft { opacity: .75; font-size: 11px; }
.pb-graph rect { stroke-width: 1.5; } .pb-graph .leaf rect { stroke-dasharray: 4 3; }
.pb-graph path { fill: none; stroke: #70707c; }
"""
DARK = ".pb-graph { color: #e7e7ea; background: #17171a; } .pb-graph path { stroke: #9a9aa6; }"
WHERE_DARK = "@media (prefers-color-scheme: dark)"


def picture_style() -> str:
    """Return the style of a picture, which is a file of its own; not every reader has variables."""
    rule = ".pb-graph .{} rect {{ fill: {}; stroke: {}; }}"
    light = (rule.format(name, *colours[:2]) for name, colours in COLOURS.items())
    dark = (rule.format(name, *colours[2:]) for name, colours in COLOURS.items())
    return f"{STYLE}{' '.join(light)} {WHERE_DARK} {{ {DARK} {' '.join(dark)} }}"


def page_colours() -> str:
    """Return the same colours as variables of a page."""
    rule = ".{} {{ --fill: {}; --edge: {}; }}"
    light = (rule.format(name, *colours[:2]) for name, colours in COLOURS.items())
    dark = (rule.format(name, *colours[2:]) for name, colours in COLOURS.items())
    return f"{' '.join(light)} {WHERE_DARK} {{ {' '.join(dark)} }}"


@dataclass(frozen=True)
class Label:
    """What is written into a box: a title, a smaller line, what is shown to who points at it."""

    title: str
    soft: str
    hint: str
    style: str


def draw_svg(graph: Graph, open: Collection[int] | None = None) -> str:
    """Return a picture.

    Args:
        graph: to draw.
        open: the calls of modules that are not folded; all, if none are given.
    """
    root, links = layout.lay_out(graph)
    picture = Drawing(graph, range(len(graph.modules)) if open is None else open)
    width, height = picture.measure(root)
    picture.place(root, MARGIN, MARGIN)
    # Areas lie below links, and links below what they lead to.
    body = [*picture.areas(root), *picture.paths(links), *picture.nodes(root)]
    width, height = width + 2 * MARGIN, height + 2 * MARGIN
    return (
        f'<svg class="pb-graph" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
        f"<title>{escape(text.heading(graph))}</title><style>{picture_style()}</style>"
        f"{''.join(body)}</svg>"
    )


class Drawing:
    """One picture in the making: sizes from the inside out, then places from the outside in."""

    def __init__(self, graph: Graph, open: Collection[int]) -> None:
        self.graph = graph
        self.open = frozenset(open)
        self.sizes: dict[Box, tuple[float, float]] = {}
        self.places: dict[Edge | Box, tuple[float, float, float, float]] = {}
        # The folded box, or the node itself, that links lead to.
        self.seen: dict[Edge, Edge | Box] = {}
        self.passed: dict[Link, list[tuple[float, float]]] = {}

    def is_open(self, box: Box) -> bool:
        """Tell whether what is in a box is shown."""
        return box.module is None or box.module in self.open

    def measure(self, item: Item) -> tuple[float, float]:
        """Return the width and the height of something."""
        if isinstance(item, Passing):
            return PASS, 0.0
        if not isinstance(item, Box) or not self.is_open(item):
            label = label_of(self.graph, item)
            longest = max(len(label.title), len(label.soft) * 11 / 12)
            return longest * LETTER + 2 * PAD, LINE * (1 + bool(label.soft)) + PAD
        if item not in self.sizes:
            rows = [[self.measure(one) for one in row] for row in item.rows]
            width = max(sum(w for w, _ in row) + GAP * (len(row) - 1) for row in rows)
            height = sum(max(h for _, h in row) for row in rows) + ROW * (len(rows) - 1)
            if item.module is not None:
                head = len(label_of(self.graph, item).title) * LETTER
                width, height = max(width, head) + 2 * PAD, height + HEAD + 2 * PAD
            self.sizes[item] = width, height
        return self.sizes[item]

    def place(self, box: Box, left: float, top: float) -> None:
        """Place what is in an open box."""
        width, _ = self.measure(box)
        y = top if box.module is None else top + HEAD + PAD
        for row in box.rows:
            sizes = [self.measure(item) for item in row]
            x = left + (width - sum(w for w, _ in sizes) - GAP * (len(row) - 1)) / 2
            high = max(h for _, h in sizes)
            for item, (w, h) in zip(row, sizes, strict=True):
                above = y + (high - h) / 2
                if isinstance(item, Passing):
                    self.passed.setdefault(item.link, []).append((x + w / 2, y + high / 2))
                else:
                    self.put(item, (x, above, w, h))
                x += w + GAP
            y += high + ROW

    def put(self, item: Edge | Box, place: tuple[float, float, float, float]) -> None:
        """Place a node, a leaf or a box with what is in it."""
        self.places[item] = place
        if not isinstance(item, Box):
            self.seen[item] = item
        elif self.is_open(item):
            self.place(item, *place[:2])
        else:
            self.seen.update(dict.fromkeys(inside(item), item))

    def paths(self, links: list[Link]) -> Iterator[str]:
        """Yield the links, each between the boxes that are seen."""
        drawn: set[tuple[object, object]] = set()
        for link in links:
            start, end = self.seen[link.start], self.seen[link.end]
            if start is end or (start, end) in drawn:
                continue
            drawn.add((start, end))
            x, y, w, h = self.places[start]
            points = [(x + w / 2, y + h), *self.passed.get(link, ())]
            x, y, w, _ = self.places[end]
            yield f'<path d="{curve([*points, (x + w / 2, y)])}"/>'

    def areas(self, box: Box) -> Iterator[str]:
        """Yield the open boxes in an open box, and it."""
        if box.module is not None:
            yield self.drawn(box)
        for inner in box.boxes:
            if self.is_open(inner):
                yield from self.areas(inner)

    def nodes(self, box: Box) -> Iterator[str]:
        """Yield what is seen in an open box: nodes, leaves, folded boxes."""
        for row in box.rows:
            for item in row:
                if isinstance(item, Box) and self.is_open(item):
                    yield from self.nodes(item)
                elif not isinstance(item, Passing):
                    yield self.drawn(item)

    def drawn(self, item: Edge | Box) -> str:
        """Return a rectangle with its label."""
        x, y, w, h = self.places[item]
        label = label_of(self.graph, item)
        style = label.style
        if isinstance(item, Box) and not self.is_open(item):
            style += " folded"
        soft = ""
        if label.soft and style != "module":
            place = f'x="{x + PAD:.1f}" y="{y + 29:.1f}"'
            soft = f'<text class="soft" {place}>{escape(label.soft)}</text>'
        return (
            f'<g class="{style}"><title>{escape(label.hint)}</title>'
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="5"/>'
            f'<text x="{x + PAD:.1f}" y="{y + 14:.1f}">{escape(label.title)}</text>{soft}</g>'
        )


def inside(box: Box) -> Iterator[Edge]:
    """Yield all nodes and leaves in a box."""
    for row in box.rows:
        for item in row:
            if isinstance(item, Box):
                yield from inside(item)
            elif not isinstance(item, Passing):
                yield item


def curve(points: list[tuple[float, float]]) -> str:
    """Return a path that leaves and enters vertically."""
    (x, y), *rest = points
    words = [f"M{x:.1f} {y:.1f}"]
    for u, v in rest:
        middle = (y + v) / 2
        words.append(f"C{x:.1f} {middle:.1f} {u:.1f} {middle:.1f} {u:.1f} {v:.1f}")
        x, y = u, v
    return "".join(words)


def label_of(graph: Graph, item: Edge | Box) -> Label:
    """Return what is written about a node, a leaf or a box."""
    if isinstance(item, Box):
        assert item.module is not None
        return label_of_module(graph, item)
    if item.to == "leaf":
        leaf = graph.leaves[item.index]
        title = leaf.name or leaf.kind
        soft = f"{format_shape(leaf.shape)} {leaf.dtype}"
        return Label(shorten(title), soft, text.leaf_title(leaf), f"leaf {leaf.kind}")
    node = graph.nodes[item.index]
    shapes = ", ".join(map(format_shape, node.shapes))
    saves = f"saves {text.format_bytes(node.held)}" if node.held else ""
    rows = [text.title(node), *text.details(node)]
    rows += [f"gives {shapes}"] if shapes else []
    soft = " · ".join(word for word in (shapes, saves) if word)
    return Label(shorten(node.operator), shorten(soft), "\n".join(rows), node.kind)


def label_of_module(graph: Graph, box: Box) -> Label:
    """Return what is written about a call of a module."""
    assert box.module is not None
    module = graph.modules[box.module]
    every = [graph.nodes[item.index] for item in inside(box) if item.to == "node"]
    count = text.format_count(len(every), "node")
    saves = sum(node.held for node in every)
    soft = f"{count} · saves {text.format_bytes(saves)}" if saves else count
    same = module.name == module.type
    title = module.name if same else f"{module.name}: {module.type}"
    return Label(shorten(title), soft, f"{title}\n{soft}", "module")


def format_shape(shape: tuple[int, ...]) -> str:
    """Return a shape: "3×4"; "scalar" without dimensions."""
    return "×".join(map(str, shape)) if shape else "scalar"


def shorten(words: str) -> str:
    """Return a text that fits into a box."""
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
