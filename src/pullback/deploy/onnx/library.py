"""The functions of one exported model: each is in it once, under a name of its own."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from pullback.bind.registry import operators
from pullback.deploy.onnx.body import Body, text_of


class Library:
    """Functions by their identifiers."""

    def __init__(self) -> None:
        self.functions: dict[ir.OperatorIdentifier, ir.Function] = {}
        self._types: dict[tuple[str, str], dict[bytes, str]] = {}

    def add(self, name: tuple[str, str], body: Body) -> str:
        """Add a node's body and return the type that the node then has.

        The first body of a name has that name; another one, such as that of float16 where the
        first is of float32, has a number behind it. ONNX's overloads would say the same, but many
        a version of ONNX Runtime takes one for the other.

        Args:
            name: the node's domain and type.
            body: what it computes.
        """
        for called in body.calls:
            self.functions.setdefault(called.identifier(), called)
        types = self._types.setdefault(name, {})
        text = text_of(body.function)
        if text not in types:
            types[text] = self.free(*name)
            function = body.function
            function.domain, function.name = name[0], types[text]
            self.functions[function.identifier()] = function
        return types[text]

    def free(self, domain: str, op_type: str) -> str:
        """Return a name that no function has, nor, beyond the first, an operator."""
        found, number = op_type, 1
        while (domain, found, "") in self.functions or (
            number > 1 and f"{domain}::{found}" in operators
        ):
            number += 1
            found = f"{op_type}_{number}"
        return found

    def attach(self, model: ir.Model) -> None:
        """Put the functions that a model calls, directly or not, into it."""
        called: list[ir.Function | ir.Graph] = [model.graph, *model.functions.values()]
        while called:
            for function in self.called_by(called.pop()):
                if function.identifier() not in model.functions:
                    model.functions[function.identifier()] = function
                    model.opset_imports.setdefault(function.domain, 1)
                    called.append(function)

    def called_by(self, caller: ir.Graph | ir.Function) -> Iterator[ir.Function]:
        """Yield the functions whose nodes are in a graph or another function."""
        for node in ir.traversal.RecursiveGraphIterator(caller):
            function = self.functions.get(node.op_identifier())
            if function is not None:
                yield function
