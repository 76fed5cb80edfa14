"""The title of a node: autograd's names -> the operator's."""

from __future__ import annotations

import re

from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node as GradFn

from pullback.graphs.data import Kind

OWN = re.compile(r"(?!torch::)(?P<operator>\w+::\w+)Backward")
# torch.library.register_autograd's name for its Function.
GENERATED = re.compile(r"GeneratedBackwardFor_(?P<namespace>[^_]+)_(?P<name>\w+)_\w+?Backward")
EXTENSION = re.compile(r"torch::autograd::CppNode<(?P<name>.+)>")
BUILT_IN = re.compile(r"(?P<name>\w+?)Backwards?\d*")
WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def kind_of(node: GradFn) -> Kind:
    """Return who wrote a node's derivative."""
    if isinstance(node, BackwardCFunction):
        return "pullback" if hasattr(node, "pullback_operator") else "function"
    if OWN.fullmatch(node.name()):
        return "pullback"
    return "extension" if EXTENSION.fullmatch(node.name()) else "built-in"


def operator_of(node: GradFn) -> str:
    """Return the operator that made a node: "demo::mul", "relu", "MyReLU"."""
    name = node.name()
    if isinstance(node, BackwardCFunction):
        return operator_of_function(node, name)
    for pattern in (OWN, EXTENSION):
        if found := pattern.fullmatch(name):
            return found[1]
    if found := BUILT_IN.fullmatch(name):
        return WORDS.sub("_", found["name"]).lower()
    return name


def operator_of_function(node: BackwardCFunction, name: str) -> str:
    """Return the operator of a Function's node, or the Function itself if there is none."""
    if operator := getattr(node, "pullback_operator", None):
        return operator
    if found := GENERATED.fullmatch(name):
        return f"{found['namespace']}::{found['name']}"
    return name.removesuffix("Backward")
