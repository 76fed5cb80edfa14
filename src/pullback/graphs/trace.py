"""Walk autograd's graph and record it as data."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node as GradFn
from torch.utils import _pytree

from pullback.diagnostic import Rule, an
from pullback.graphs.data import Edge, Graph, Leaf, Node, Place
from pullback.graphs.modules import ModuleCalls
from pullback.graphs.saved import KnownMemory, saved_by
from pullback.graphs.title import kind_of, operator_of

NoGraph = Rule("PB601", "no-graph")
NotTraceable = Rule("PB602", "not-traceable")

FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)\n(?P<text>.*)')
# We do not look for a user's line in frames below this folder.
TORCH = str(Path(torch.__file__).parent)
OURS = tuple(str(Path(__file__).parents[1] / stage) for stage in ("bind", "graphs"))

LeafKind = Literal["parameter", "input", "tensor"]


def graph(target: Tensor | Callable[..., Any], *inputs: Any, **keywords: Any) -> Graph:  # noqa: ANN401
    """Return the graph that `backward()` walks, as data; print it to see it as a tree.

    Args:
        target: a tensor that was computed from others; or a module or function, which is called
            with the inputs and recorded, so that each node knows the line that made it.
        inputs: of any type; tensors are named after the parameters of the function.
        keywords: likewise.

    Returns:
        Nodes with their operator, the line of the forward call, what each saved and where its
        gradients go. It holds no tensor.

    Raises:
        PullbackError: PB601, nothing in it requires a gradient; PB602, `target` is neither a
            tensor nor callable, or inputs are given with a tensor.

    Examples:
        >>> import pullback, torch
        >>> model = torch.nn.Linear(3, 1)
        >>> print(pullback.graph(model, torch.ones(2, 3)))  # doctest: +SKIP
    """
    if isinstance(target, Tensor):
        if inputs or keywords:
            raise NotTraceable.error(
                "a tensor was given together with inputs",
                help="give the function that computes it, with its inputs",
            )
        return walk(f"a tensor {format_tensor(target)}", [target], TensorNames())
    if not callable(target):
        raise NotTraceable.error(
            f"{an(type(target).__name__)} has no graph",
            help="give a tensor, or a function or module and its inputs",
        )
    names = names_of(target, inputs, keywords)
    calls = ModuleCalls(names.modules)
    with calls.recorded():
        returned = record(target, inputs, keywords)
    tensors = [leaf for leaf in _pytree.tree_leaves(returned) if isinstance(leaf, Tensor)]
    # Parameters that a lazy module has only now are named as well.
    return walk(title_of(target), tensors, names_of(target, inputs, keywords), calls)


def record(
    target: Callable[..., Any], inputs: tuple[Any, ...], keywords: Mapping[str, Any]
) -> object:
    """Call the target so that each node records the stack in which it was made."""
    # Anomaly mode makes autograd record it; its warning is about the cost in training.
    with torch.enable_grad(), torch.autograd.set_detect_anomaly(mode=True, check_nan=False):
        return target(*inputs, **keywords)


def title_of(target: Callable[..., Any]) -> str:
    """Return what to call the target."""
    return type(target).__name__ if isinstance(target, nn.Module) else name_of(target)


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name."""
    return getattr(function, "__name__", type(function).__name__)


def format_tensor(tensor: Tensor) -> str:
    """Print a tensor's shape and dtype."""
    return f"{tuple(tensor.shape)} {dtype_of(tensor)}"


def dtype_of(tensor: Tensor) -> str:
    """Return a dtype without its "torch."."""
    return str(tensor.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class TensorNames:
    """The names of the tensors and modules that are known from outside, by identity."""

    of: dict[int, tuple[str, LeafKind]] = field(default_factory=dict[int, tuple[str, LeafKind]])
    tensors: list[Tensor] = field(default_factory=list[Tensor])
    modules: dict[int, str] = field(default_factory=dict[int, str])

    def add(self, tensor: Tensor, name: str, kind: LeafKind) -> None:
        """Name a tensor, unless it has a name."""
        if id(tensor) not in self.of:
            self.of[id(tensor)] = (name, kind)
            self.tensors.append(tensor)

    def add_module(self, module: nn.Module, prefix: str = "") -> None:
        """Name a module's parameters and buffers, and the modules in it."""
        for name, own in module.named_modules(prefix=prefix.removesuffix(".")):
            self.modules.setdefault(id(own), name)
        for name, parameter in module.named_parameters():
            self.add(parameter, f"{prefix}{name}", "parameter")
        for name, buffer in module.named_buffers():
            self.add(buffer, f"{prefix}{name}", "tensor")


def names_of(
    target: Callable[..., Any], inputs: tuple[Any, ...], keywords: Mapping[str, Any]
) -> TensorNames:
    """Name the parameters of a module, the inputs, and what a function finds around it."""
    names = TensorNames()
    module = target if isinstance(target, nn.Module) else getattr(target, "__self__", None)
    if isinstance(module, nn.Module):
        names.add_module(module)
    for name, value in arguments_of(target, inputs, keywords):
        for path, leaf in _pytree.tree_leaves_with_path(value):
            if isinstance(leaf, Tensor):
                names.add(leaf, name + _pytree.keystr(path), "input")
    for name, value in names_around(target):
        if isinstance(value, nn.Module):
            names.add_module(value, f"{name}.")
        elif isinstance(value, Tensor):
            names.add(value, name, "tensor")
    return names


def arguments_of(
    target: Callable[..., Any], inputs: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield each argument under the name of its parameter."""
    called = target.forward if isinstance(target, nn.Module) else target
    try:
        bound = inspect.signature(called).bind(*inputs, **keywords)
    except (TypeError, ValueError):  # a callable written in C may have no signature
        yield from ((f"input {index}", value) for index, value in enumerate(inputs))
        yield from keywords.items()
        return
    yield from bound.arguments.items()


def names_around(target: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function uses from its closure and its module."""
    if inspect.isfunction(target):
        variables = inspect.getclosurevars(target)
        yield from variables.nonlocals.items()
        yield from variables.globals.items()


def walk(
    of: str, outputs: list[Tensor], names: TensorNames, calls: ModuleCalls | None = None
) -> Graph:
    """Visit every node reachable from the outputs once, without recursion."""
    roots = [torch.autograd.graph.get_gradient_edge(t).node for t in outputs if t.requires_grad]
    if not roots:
        raise NoGraph.error(
            f"nothing in the graph of {of} requires a gradient",
            help="compute it from a parameter, or from an input with requires_grad_(), "
            "and outside torch.no_grad()",
        )
    walker = Walker(names, calls or ModuleCalls({}))
    edges = tuple(dict.fromkeys(walker.edge_to(root) for root in roots))
    nodes: list[Node] = []
    while len(nodes) < len(walker.found):
        nodes.append(walker.node(walker.found[len(nodes)]))
    leaves = tuple(walker.leaves)
    return Graph(
        of=of,
        outputs=edges,
        nodes=tuple(nodes),
        leaves=leaves,
        held=walker.memory.held,
        modules=tuple(walker.calls.modules),
    )


class Walker:
    """The nodes and leaves met so far; a node's index is its place in `found`."""

    def __init__(self, names: TensorNames, calls: ModuleCalls) -> None:
        self.names = names
        self.calls = calls
        # Keeps autograd's Python wrappers alive: otherwise identities would be reused.
        self.found: list[GradFn] = []
        self.leaves: list[Leaf] = []
        self.edges: dict[GradFn, Edge] = {}
        self.memory = KnownMemory()
        for tensor in names.tensors:
            self.memory.know(tensor, names.of[id(tensor)][0])

    def edge_to(self, node: GradFn) -> Edge:
        """Return the edge to a node, which is added if it is new."""
        if node in self.edges:
            return self.edges[node]
        variable: Tensor | None = getattr(node, "variable", None)
        if variable is None:
            self.edges[node] = Edge(to="node", index=len(self.found))
            self.found.append(node)
        else:
            self.edges[node] = Edge(to="leaf", index=len(self.leaves))
            self.leaves.append(self.leaf(variable))
        return self.edges[node]

    def leaf(self, variable: Tensor) -> Leaf:
        """Return a leaf as data."""
        unnamed = (None, "parameter" if isinstance(variable, nn.Parameter) else "tensor")
        name, kind = self.names.of.get(id(variable), unnamed)
        self.memory.know(variable, name or f"the leaf {tuple(variable.shape)}")
        return Leaf(name=name, kind=kind, dtype=dtype_of(variable), shape=tuple(variable.shape))

    def node(self, node: GradFn) -> Node:
        """Return a node as data."""
        # The leaves first, so that saved tensors are recognised as theirs.
        following = [other for other, _ in node.next_functions if other is not None]
        edges = tuple(self.edge_to(other) for other in following)
        return Node(
            operator=operator_of(node),
            name=node.name(),
            kind=kind_of(node),
            source=place_of(node),
            saved=tuple(saved_by(node, self.memory)),
            edges=edges,
            shapes=tuple(shapes_of(node)),
            module=self.calls.module_of(node),
        )


def shapes_of(node: Any) -> Iterator[tuple[int, ...]]:  # noqa: ANN401  (not in PyTorch's types)
    """Yield the shapes of what a node's forward call computed; none of a nested tensor."""
    for metadata in node._input_metadata:
        try:
            yield tuple(metadata.shape)
        except RuntimeError:
            return


def place_of(node: GradFn) -> Place | None:
    """Return the user's innermost line that made a node, None if none was recorded."""
    stack = cast("dict[str, list[str]]", node.metadata).get("traceback_", [])
    frames = [found for row in stack if (found := FRAME.match(row))]
    ours = [i for i, frame in enumerate(frames) if is_record(frame)]
    inside, outside = (frames[ours[-1] + 1 :], frames[: ours[-1]]) if ours else (frames, [])
    # PyTorch's own lines only if the user has none inside: Sequential(Linear(...)).
    groups = [
        [frame for frame in inside if not frame["file"].startswith((TORCH, *OURS))],
        [frame for frame in inside if not frame["file"].startswith(OURS)],
        [frame for frame in outside if not frame["file"].startswith((TORCH, *OURS))],
    ]
    frame = next((group[-1] for group in groups if group), None)
    if frame is None:
        return None
    return Place(
        file=frame["file"],
        line=int(frame["line"]),
        function=frame["function"],
        text=frame["text"].strip(),
    )


def is_record(frame: re.Match[str]) -> bool:
    """Tell whether a frame is that of `record`, below which the target runs."""
    return frame["file"] == __file__ and frame["function"] == record.__name__
