"""T8: "how does a module find its backward?" Nothing is registered: each call records a node.

The graph shows the nodes, the line of forward that made each, what it saved, and the parameters at
the end of its edges.
"""

import sys
from pathlib import Path

import torch

import pullback as pb

sys.path.insert(0, str(Path(__file__).parents[1]))
from linear.linear import Linear


class Model(torch.nn.Module):
    """Two layers with the operator of `linear/`."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = Linear(3, 4)
        self.out = Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.hidden(x))
        return self.out(hidden).mean()


def main() -> str:
    """Print and return the graph."""
    graph = str(pb.graph(Model(), torch.randn(2, 3)))
    print(graph)
    return graph


if __name__ == "__main__":
    main()
