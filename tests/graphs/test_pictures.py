"""`pb.graph` as a picture and as a page: what is in them, and that nothing covers anything."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

import pullback as pb
from pullback.diagnostic import PullbackError
from pullback.graphs import Graph, layout
from pullback.graphs.layout import Box
from pullback.graphs.svg import Drawing, inside

SVG = "{http://www.w3.org/2000/svg}"


class Block(nn.Module):
    """With a residual edge that goes past two modules, and a module that is called twice."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.linear = nn.Linear(size, size)
        self.shared = nn.Sequential(nn.Tanh(), nn.Linear(size, size))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shared(self.shared(self.linear(self.norm(x))))


class Model(nn.Module):
    def __init__(self, depth: int, size: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(size) for _ in range(depth))
        self.register_parameter("scale", nn.Parameter(torch.ones(size)))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) * self.scale
        return x.sum()


def graph_of(depth: int) -> Graph:
    return pb.graph(Model(depth), torch.randn(3, 4, requires_grad=True))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(2)


@pytest.fixture(scope="module")
def large() -> Graph:
    """Of more than 500 nodes."""
    found = graph_of(60)
    assert len(found.nodes) > 500
    return found


# --- which module made a node


def test_each_node_knows_the_call_that_made_it(graph: Graph) -> None:
    names = [None if n.module is None else graph.modules[n.module].name for n in graph.nodes]
    of_model = {n.operator for n, name in zip(graph.nodes, names, strict=True) if name == "Model"}
    assert of_model == {"sum", "mul"}
    assert {name for name in names if name and name.startswith("blocks.1")} == {
        *("blocks.1", "blocks.1.norm", "blocks.1.linear", "blocks.1.shared.0", "blocks.1.shared.1")
    }


def test_a_module_that_is_called_twice_is_two_calls(graph: Graph) -> None:
    calls = [n.module for n in graph.nodes if n.operator == "tanh"]
    assert len(set(calls)) == len(calls) == 4
    assert {graph.modules[call or 0].type for call in calls} == {"Tanh"}


def test_modules_that_a_function_finds_around_it_have_its_names_for_them() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    found = pb.graph(lambda x: net(x).sum(), torch.ones(1, 2))
    relu = next(node for node in found.nodes if node.operator == "relu")
    assert relu.module is not None
    assert found.modules[relu.module].name == "net.1"
    assert next(node for node in found.nodes if node.operator == "sum").module is None


def test_no_hook_is_left_behind_where_a_forward_raises() -> None:
    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ZeroDivisionError

    before = len(torch.nn.modules.module._global_forward_pre_hooks)
    with pytest.raises(ZeroDivisionError):
        pb.graph(nn.Sequential(Raises()), torch.ones(1))
    assert len(torch.nn.modules.module._global_forward_pre_hooks) == before
    assert len(torch.nn.modules.module._global_forward_hooks) == before


def test_a_node_has_the_shapes_of_what_was_computed(graph: Graph) -> None:
    assert {n.shapes for n in graph.nodes if n.operator == "sum"} == {((),)}
    assert {n.shapes for n in graph.nodes if n.operator == "tanh"} == {((3, 4),)}


# --- where everything is


@pytest.mark.parametrize("fixture", ["graph", "large"])
def test_everything_is_in_one_box_once(fixture: str, request: pytest.FixtureRequest) -> None:
    graph: Graph = request.getfixturevalue(fixture)
    root, links = layout.lay_out(graph)
    found = list(inside(root))
    assert len(found) == len(set(found)) == len(graph.nodes) + len(graph.leaves)
    assert len(links) == sum(len(set(node.edges)) for node in graph.nodes)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("fixture", ["graph", "large"])
def test_nothing_covers_anything_and_links_lead_down(
    fixture: str, folded: bool, request: pytest.FixtureRequest
) -> None:
    graph: Graph = request.getfixturevalue(fixture)
    root, links = layout.lay_out(graph)
    drawing = Drawing(graph, [] if folded else range(len(graph.modules)))
    width, height = drawing.measure(root)
    drawing.place(root, 0.0, 0.0)
    solid = [
        place
        for item, place in drawing.places.items()
        if not isinstance(item, Box) or not drawing.is_open(item)
    ]
    rows = sorted(solid, key=lambda place: place[1])
    for one, other in itertools.combinations(rows[:400], 2):
        beside = one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
        assert beside or one[1] + one[3] <= other[1] or other[1] + other[3] <= one[1]
    for x, y, w, h in drawing.places.values():
        assert 0 <= x <= x + w <= width + 1e-6
        assert 0 <= y <= y + h <= height + 1e-6
    for link in links:
        start, end = drawing.seen[link.start], drawing.seen[link.end]
        if start is not end:
            points = [y for _, y in drawing.passed.get(link, ())]
            last = drawing.places[start][1] + drawing.places[start][3]
            for y in [*points, drawing.places[end][1]]:
                assert y > last
                last = y


def test_a_link_passes_beside_what_it_goes_past(graph: Graph) -> None:
    root, _ = layout.lay_out(graph)
    drawing = Drawing(graph, range(len(graph.modules)))
    drawing.measure(root)
    drawing.place(root, 0.0, 0.0)
    assert drawing.passed
    nodes = [place for item, place in drawing.places.items() if not isinstance(item, Box)]
    for points in drawing.passed.values():
        for u, v in points:
            assert not [p for p in nodes if p[0] < u < p[0] + p[2] and p[1] < v < p[1] + p[3]]


def test_few_boxes_are_seen_at_first_and_all_of_a_small_graph(graph: Graph, large: Graph) -> None:
    root, _ = layout.lay_out(large)
    seen = layout.choose_open(root, 200)
    assert seen
    assert len(seen) < len(large.modules) / 2
    assert layout.choose_open(root, 2) == {0}
    root, _ = layout.lay_out(graph)
    assert layout.choose_open(root, 1000) >= {n.module for n in graph.nodes if n.module is not None}


def test_a_graph_deeper_than_python_recurses_is_drawn() -> None:
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(3_000):
        y = y * 2
    assert pb.graph(y + x).to_svg().count('<g class="built-in">') == 3_001


# --- what is drawn


def test_a_picture_has_each_node_once_with_its_line_and_what_it_keeps(graph: Graph) -> None:
    root = ElementTree.fromstring(graph.to_svg())
    hints = [own.text or "" for own in root.iter(f"{SVG}title")]
    assert len(root.findall(f'.//{SVG}g[@class="built-in"]')) == len(graph.nodes)
    assert any(
        re.search(r"at +test_pictures.py:\d+ in forward: return x \+ self", h) for h in hints
    )
    assert any("saved result (3, 4) float32, 48 B" in hint for hint in hints)
    assert any("gives 3×4" in hint for hint in hints)
    words = [own.text for own in root.iter(f"{SVG}text")]
    assert "blocks.1.linear: Linear" in words
    assert "blocks.1.linear.weight" in words


def test_a_picture_and_a_page_need_no_network(graph: Graph) -> None:
    for text in (graph.to_svg(), graph.to_html(), graph._repr_html_()):
        links = set(re.findall(r"https?://[^\"'\s<]+", text))
        assert links <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"@import|src=|href=", text)


def test_colours_tell_who_wrote_a_derivative() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return grads[0] * 2

    swish = pb.operator("picturetest::swish(x[...]) -> y[...] = x*sigmoid(x)")
    x = torch.ones(2, requires_grad=True)
    text = pb.graph(lambda x: swish(Twice.apply(x)).sum(), x).to_svg()
    for kind in ("pullback", "function", "built-in", "leaf input"):
        assert text.count(f'<g class="{kind}">') == 1


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_page_has_a_button_for_each_node_and_module_and_folds_what_is_too_much(
    large: Graph,
) -> None:
    reader = Elements()
    reader.feed(large.to_html())
    nodes = [own for tag, own in reader.found if tag == "button" and "id" in own]
    assert len(nodes) == len(large.nodes) + len(large.leaves)
    modules = [own["class"] or "" for tag, own in reader.found if tag == "section"]
    assert sum("folded" in each for each in modules) > len(modules) / 2
    ids = {own["id"] for own in nodes}
    (links,) = re.findall(r"const links = (\[\[.*?\]\]);", large.to_html())
    assert set(re.findall(r'"(\w+)"', links)) == ids


def test_what_others_wrote_is_escaped() -> None:
    class Sly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("<script>alert(1)</script>", nn.Linear(1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return next(self.children())(x)

    graph = pb.graph(Sly(), torch.ones(1))
    for text in (graph.to_svg(), graph.to_html(), graph._repr_html_()):
        assert "<script>alert" not in text


@pytest.mark.parametrize("ending", [".svg", ".html", ".txt"])
def test_a_graph_is_saved_by_its_ending(ending: str, graph: Graph, tmp_path: Path) -> None:
    path = graph.save(tmp_path / f"graph{ending}")
    text = {".svg": graph.to_svg, ".html": graph.to_html, ".txt": graph.__str__}[ending]()
    assert path.read_text(encoding="utf-8") == text + "\n"


def test_another_ending_is_refused(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(PullbackError, match=r"unknown-format \[PB406\]"):
        graph.save(tmp_path / "graph.png")
