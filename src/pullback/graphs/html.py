"""A graph -> a page in which modules fold; and a picture for a notebook."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from pullback import page
from pullback.graphs import layout, svg, text
from pullback.graphs.layout import Box, Passing

if TYPE_CHECKING:
    from pullback.graphs.data import Graph

# At most so many boxes are seen before anybody unfolds a module.
MOST_SEEN = 60
KINDS = {
    "pullback": "pullback",
    "built-in": "PyTorch",
    "function": "autograd.Function",
    "extension": "C++ Function",
    "leaf parameter": "parameter",
    "leaf input": "input",
}


def draw_page(graph: Graph) -> str:
    """Return a page of a graph: it needs no network, and no other file."""
    root, links = layout.lay_out(graph)
    body = load_template().render(
        graph=graph,
        root=root,
        open=layout.choose_open(root, MOST_SEEN),
        number_of={link: number for number, link in enumerate(links)},
        ends=[[f"{end.to}{end.index}" for end in (link.start, link.end)] for link in links],
        heading=text.heading(graph),
        kinds=KINDS,
        colours=Markup(svg.page_colours()),
        label_of=svg.label_of,
    )
    return page.whole(f"graph of {graph.of}", body)


def draw_picture(graph: Graph) -> str:
    """Return a picture for a notebook."""
    root, _ = layout.lay_out(graph)
    drawn = svg.draw_svg(graph, layout.choose_open(root, MOST_SEEN))
    heading = f"<p>{Markup.escape(text.heading(graph))}</p>"
    return page.fragment(f'{heading}<div style="overflow: auto; max-height: 40rem">{drawn}</div>')


@functools.cache
def load_template() -> Template:
    """Return the page, in which all texts are escaped."""
    made = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    made.tests["passing"] = lambda value: isinstance(value, Passing)
    made.tests["box"] = lambda value: isinstance(value, Box)
    return made.from_string(Path(__file__).with_name("graph.html").read_text(encoding="utf-8"))
