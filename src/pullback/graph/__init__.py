"""An autograd graph -> plain data -> text."""

from pullback.graph.data import Edge, Graph, Leaf, Node, Place, Saved
from pullback.graph.trace import graph

__all__ = ["Edge", "Graph", "Leaf", "Node", "Place", "Saved", "graph"]
