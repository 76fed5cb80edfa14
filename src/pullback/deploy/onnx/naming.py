"""What a node is called: its domain and its type, which no other operator may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import onnx

from pullback.diagnostic import Rule, did_you_mean

OnnxName = Rule("PB753", "onnx-name")

# ONNX's own, and that of `torch.ops.onnx`, whose operators the exporter takes for ONNX's.
STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "onnx")
# Domains whose operators need no body.
OF_RUNTIMES = (*STANDARD_DOMAINS, "com.microsoft")


def split(name: str) -> tuple[str, str]:
    """Return the domain and the type in "com.acme::Linear"."""
    domain, _, op_type = name.rpartition("::")
    return domain, op_type


def standard_names() -> set[str]:
    """Return the names of ONNX's own operators, of every opset."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return {schema.name for schema in schemas if schema.domain == ""}


def require_names(names: Mapping[str, str], known: Iterable[str]) -> None:
    """Stop at `names=` for an unknown operator, or with a malformed name."""
    known = list(known)
    for qualname, name in names.items():
        if qualname not in known:
            raise OnnxName.error(
                f"names= has '{qualname}', but no operator has that name",
                help=did_you_mean(qualname, known),
            )
        if not re.fullmatch(r"[A-Za-z_][\w.\-]*::[A-Za-z_]\w*", name):
            raise OnnxName.error(
                f"names= calls {qualname} '{name}', which is not a domain and a name",
                help='such as "com.acme::Linear"',
            )


def require_free(used: Mapping[str, tuple[str, str]]) -> None:
    """Stop at nodes that could be taken for ONNX's own, or for one another.

    Args:
        used: the domain and the type of each operator in the model, by its qualname.
    """
    own = standard_names()
    bases: dict[str, str] = {}
    for qualname, (domain, op_type) in used.items():
        cure = f'rename it, or export it as another: names={{"{qualname}": "my.domain::MyName"}}'
        if domain in STANDARD_DOMAINS:
            raise OnnxName.error(
                f"{qualname} would be in the domain '{domain}', which is ONNX's own", help=cure
            )
        if op_type in own:
            raise OnnxName.error(
                f"{qualname} would be a node '{op_type}', as a standard operator of ONNX is",
                help=cure,
            )
        if op_type in bases:
            raise OnnxName.error(
                f"{qualname} and {bases[op_type]} would both be nodes '{op_type}'",
                why="runtimes and tools show and look up nodes by that name",
                help=cure,
            )
        bases[op_type] = qualname
