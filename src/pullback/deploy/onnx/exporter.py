"""A model -> ONNX, by PyTorch's exporter; then operators' nodes get their names and bodies."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes import common as passes
from torch import Tensor

from pullback.bind.notice import notice
from pullback.bind.registry import operators
from pullback.deploy.onnx import naming, scan, sources, symbolic, translation
from pullback.deploy.onnx.body import Body, FunctionLibrary, Underivable
from pullback.deploy.onnx.call import KEY, OnnxCall, attributes_of, recipe_of
from pullback.deploy.onnx.scan import Scan
from pullback.deploy.onnx.symbolic import Said
from pullback.deploy.onnx.translation import MARK, ModelCalls
from pullback.diagnostic import PullbackError, Rule

OnnxMutation = Rule("PB754", "onnx-mutation")
OnnxComplex = Rule("PB758", "onnx-complex")

# Says for every model that torchvision's operators are missing.
CHATTY = "torch.onnx._internal.exporter._registration"


class OnnxNotice(UserWarning):
    """A node is written without a body: only a runtime that has a kernel for it can run it."""


@dataclass
class Exporter:
    """One export, and those of references within it.

    Attributes:
        opset: the version of the standard operators.
        bodies: those that are given, by the operator's name or the node's.
        names: of nodes that do not have their operators' names.
        library: the functions so far.
        sizes: the values of varying sizes in the model's example.
        used: the name of each operator's node.
        without: nodes that have no body.
        known: the type of the node of each kind of call.
        scans: the steps of recurrences in what was traced.
    """

    opset: int
    bodies: Mapping[str, Any] = field(default_factory=dict[str, Any])
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    library: FunctionLibrary = field(default_factory=FunctionLibrary)
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    used: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    without: set[str] = field(default_factory=set[str])
    known: dict[str, str] = field(default_factory=dict[str, str])
    scans: list[Scan] = field(default_factory=list[Scan])

    def program_of(
        self,
        model: Any,  # noqa: ANN401
        args: tuple[Any, ...],
        **options: Any,  # noqa: ANN401
    ) -> torch.onnx.ONNXProgram:
        """Return PyTorch's program of a model, in which each operator's node has its name.

        Args:
            model: a module or an exported program.
            args: its example.
            options: those of `torch.onnx.export`.
        """
        calls = ModelCalls(self.opset)
        own = options.pop("custom_translation_table", None) or {}
        table = {**calls.table(operators.values()), **own}
        with silence(), translation.record_calls(calls):
            try:
                program = torch.onnx.export(
                    model,
                    args,
                    dynamo=True,
                    verbose=False,
                    opset_version=self.opset,
                    custom_translation_table=table,
                    **options,
                )
            except Exception as error:
                if found := own_error_in(error) or translation_missing(error):
                    raise found from None
                raise
        if calls.failure:
            raise calls.failure
        assert program is not None
        self.sizes |= sizes_in(program.exported_program)
        for node in nodes_in(program.model):
            mark = node.attributes.pop(MARK, None)
            if mark is not None:
                self.finish(node, calls[mark.as_int()])
        self.finish_scans(program.model)
        return program

    def finish_scans(self, model: ir.Model) -> None:
        """Give the steps of recurrences in a body that was traced their functions."""
        marks = [(node, node.attributes.pop(scan.MARK, None)) for node in nodes_in(model)]
        for node, mark in marks:
            if mark is not None:
                rewire(node, self.scans[mark.as_int()].finish(node, self))
        if any(mark is not None for _, mark in marks):
            # Sizes that no step needs.
            passes.RemoveUnusedNodesPass()(model)

    def finish(self, node: ir.Node, call: OnnxCall) -> None:
        """Give the node of a call its name, its inputs, its attributes and its body."""
        if not call.outputs:
            call.outputs.extend(node.outputs)
        said = said_of(call)
        named = said.node if said else None
        qualname = call.line.qualname
        name = naming.split(self.names.get(qualname) or (named.name if named else qualname))
        self.used[qualname] = name
        attributes = attributes_of(call)
        node.domain, node.op_type = name[0], self.type_of(call, name, said)
        inputs = [*node.inputs, *[None] * (len(call.inputs) - len(node.inputs))]
        order = list(range(len(inputs)) if named is None else named.order)
        rewire(node, [None if place is None else inputs[place] for place in order])
        node.metadata_props[KEY] = recipe_of(call, order, node).text()
        node.attributes.update(attributes if named is None else named.attributes)

    def type_of(self, call: OnnxCall, name: tuple[str, str], said: Said | None) -> str:
        """Return the type of a call's node, which is the name of its body.

        Calls that are alike share one body, which takes a while to find.
        """
        order = said.node.order if said and said.node else None
        key = f"{name} {order} {call.kind}"
        if key not in self.known:
            body = self.body_of(call, name, said)
            self.known[key] = name[1] if body is None else self.library.add(name, body)
        return self.known[key]

    def body_of(self, call: OnnxCall, name: tuple[str, str], said: Said | None) -> Body | None:
        """Return the body of a call's node; None, with a notice, if there is none."""
        written = "::".join(name)
        own = self.bodies.get(call.line.qualname, self.bodies.get(written))
        named = said.node if said else None
        if own is not None:
            return sources.given_to(call, own, self, named)
        if said is not None and named is None:
            return said.body
        reasons: list[str] = []
        for what, derive in sources.sources_of(call, self):
            try:
                body = derive()
                return body if named is None else sources.reorder(body, named.order)
            except Underivable as reason:
                reasons.append(f"{what}: {reason}")
        why = "; ".join(reasons) or "a kernel alone does not say what it computes"
        name_of = call.line.qualname
        cure = (
            f'give the operator reference=, a function of PyTorch, or bodies={{"{name_of}": ...}}'
        )
        self.announce(f"{name_of} is written as a node {written}", written, why, cure)
        return None

    def announce(self, what: str, node: str, why: str, cure: str) -> None:
        """Say once for each kind of node that it has no body."""
        if node not in self.without:
            self.without.add(node)
            text = f"{what} without a body, so a runtime needs a kernel for it"
            notice(f"{text}\n    why:  {why}\n    help: {cure}", OnnxNotice)

    def attach(self, model: ir.Model) -> None:
        """Put the bodies into a model, and say which nodes in them have none."""
        self.library.attach(model)
        for domain, _ in self.used.values():
            model.opset_imports.setdefault(domain, 1)
        for function in model.functions.values():
            for node in ir.traversal.RecursiveGraphIterator(function):
                self.require_known(node, model)

    def require_known(self, node: ir.Node, model: ir.Model) -> None:
        """Say so if a node inside a body is not an operator of ONNX and has no body itself."""
        if node.domain in naming.OF_RUNTIMES or node.op_identifier() in model.functions:
            return
        own = f"{node.domain}::{node.op_type}"
        if own not in self.without:
            self.announce(
                f"the body of a node has a node {own}",
                own,
                "a body that was given, or a symbolic, adds it",
                "write the body in operators of ONNX",
            )


def said_of(call: OnnxCall) -> Said | None:
    """Return what the `symbolic` of a call's Function gives, if it has one."""
    function = call.definition.function
    if function is None or not hasattr(function, "symbolic"):
        return None
    return symbolic.run_symbolic(call, function)


def rewire(node: ir.Node, inputs: list[ir.Value | None]) -> None:
    """Give a node other inputs, without None at the end."""
    while inputs and inputs[-1] is None:
        inputs.pop()
    for place in range(len(node.inputs)):
        node.replace_input_with(place, None)
    node.resize_inputs(len(inputs))
    for place, value in enumerate(inputs):
        node.replace_input_with(place, value)


def nodes_in(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node of a model, those of its functions and of branches too."""
    for graph in (model.graph, *model.functions.values()):
        yield from ir.traversal.RecursiveGraphIterator(graph)


def sizes_in(program: torch.export.ExportedProgram | None) -> dict[str, int]:
    """Return the values of the symbols in a program's shapes in its example."""
    sizes: dict[str, int] = {}
    modules: list[Any] = list(program.graph_module.modules()) if program else []
    for module in modules:
        for node in module.graph.nodes if hasattr(module, "graph") else ():
            value = node.meta.get("val")
            for tensor in value if isinstance(value, tuple | list) else (value,):
                for size in tensor.shape if isinstance(tensor, Tensor) else ():
                    if isinstance(size, torch.SymInt) and size.node.hint is not None:
                        sizes[str(size.node)] = int(size.node.hint)
    return sizes


@contextmanager
def silence() -> Generator[None]:
    """Keep back what PyTorch's exporter says about itself and its own dependencies."""
    logger = logging.getLogger(CHATTY)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(level)


def iter_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def own_error_in(error: Exception) -> PullbackError | None:
    """Return the error of ours that PyTorch's exporter wrapped, if it did."""
    return next((found for found in iter_chain(error) if isinstance(found, PullbackError)), None)


def translation_missing(error: Exception) -> PullbackError | None:
    """Return the error for an operator that PyTorch's exporter has no translation for.

    One that changes an input is decomposed before its translation is looked up; for one of complex
    numbers none is looked up.
    """
    text = "\n".join(str(found) for found in iter_chain(error))
    for operator in operators.values():
        line = operator.line
        names = (f"{line.namespace}.{line.name}.", f"{line.namespace}._{line.name}_")
        if not any(name in text for name in names):
            continue
        if line.changed:
            return OnnxMutation.error(
                f"{line.qualname} changes '{line.changed[0]}' in place, and a node of ONNX changes "
                "nothing",
                line=line,
                help="return a new tensor under another name",
            )
        if "complex-valued" in text:
            return OnnxComplex.error(
                f"{line.qualname} is called with complex tensors, which PyTorch's exporter "
                "decomposes",
                line=line,
                help="take real tensors: torch.view_as_real",
            )
    return None
