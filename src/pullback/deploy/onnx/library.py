"""The functions of one exported model: each is in it once, under a name of its own."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from pullback.deploy.onnx.body import Body, text_of


class Library:
    """Functions by their identifiers."""

    def __init__(self) -> None:
        self.functions: dict[ir.OperatorIdentifier, ir.Function] = {}
        self._texts: dict[tuple[str, str], dict[bytes, str]] = {}

    def add(self, name: tuple[str, str], body: Body) -> str:
        """Add a node's body and return the overload that the node calls.

        The first body of a name has no overload; another one, such as that of float16 where the
        first is of float32, has a number.

        Args:
            name: the node's domain and type.
            body: what it computes.
        """
        for called in body.calls:
            self.functions.setdefault(called.identifier(), called)
        texts = self._texts.setdefault(name, {})
        text = text_of(body.function)
        if text not in texts:
            texts[text] = str(len(texts) + 1) if texts else ""
            function = body.function
            function.domain, function.name, function.overload = *name, texts[text]
            self.functions[function.identifier()] = function
        return texts[text]

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
