"""An autograd graph -> plain data -> text."""

from pullback.graphs.data import Edge, Graph, Leaf, Node, Place, Saved
from pullback.graphs.trace import graph

__all__ = ["Edge", "Graph", "Leaf", "Node", "Place", "Saved", "graph"]
