"""An autograd graph -> plain data -> text, pictures, pages."""

from pullback.graphs.data import Edge, Graph, Leaf, Module, Node, Place, Saved
from pullback.graphs.trace import graph

__all__ = ["Edge", "Graph", "Leaf", "Module", "Node", "Place", "Saved", "graph"]
