"""`pb.compile_and_package`: AOTInductor, with operators called directly."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pullback.bind import program as programs
from pullback.bind.operator import Operator
from pullback.deploy import shims
from pullback.diagnostic import Rule, an, did_you_mean

NotExported = Rule("PB738", "not-exported")
NoShim = Rule("PB739", "no-shim")
NotInProgram = Rule("PB740", "not-in-program")
NoPackageName = Rule("PB741", "no-package-name")


def compile_and_package(
    program: ExportedProgram,
    path: str | Path,
    *,
    operators: Sequence[Operator | OpOverload | str] | None = None,
    options: Mapping[str, object] | None = None,
) -> Path:
    """Compile an exported program by AOTInductor, so that it calls operators directly.

    Without this AOTInductor calls an operator that is not PyTorch's through its proxy executor,
    which looks the operator up and unpacks its arguments from a table in each call. A library of
    `pullback build --as cmake` has C functions, which the compiled program calls instead.

    The process that runs the package loads that library first, by `torch.ops.load_library`.

    Args:
        program: from `torch.export.export`.
        path: of the package to write, such as "model.pt2".
        operators: those that are called directly, as `pb.operator` returned them or by name; the
            process that runs the package has them from a library that CMake built. By default
            those of the program whose library this process has loaded.
        options: further ones of AOTInductor's, by the names of `torch._inductor.config`.

    Returns:
        The path. The file appears only when it is whole.

    Raises:
        PullbackError: PB736, the program has two operators of one base name; PB738, `program` is
            not an exported program; PB739, an operator cannot have a C function; PB740, an operator
            is not in the program; PB741, the name does not end in .pt2.
    """
    if not isinstance(program, ExportedProgram):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NotExported.error(
            f"AOTInductor compiles an exported program, and this is {an(type(program).__name__)}",
            help="torch.export.export(model, (example,)) makes one",
        )
    path = Path(path)
    if path.suffix != ".pt2":
        raise NoPackageName.error(
            f"a package's name ends in .pt2, and '{path.name}' does not",
            help=f"write to {path.with_suffix('.pt2')}",
        )
    direct = choose_declarations(list(called_operators(program)), operators)
    shims.require_base_names(overload.name() for overload in direct)
    configuration = {**(options or {}), "aot_inductor.custom_ops_to_c_shims": direct}
    with tempfile.TemporaryDirectory(prefix=".pullback-", dir=path.absolute().parent) as work:
        made = torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(Path(work, path.name)),
            inductor_configs=configuration,
        )
        os.replace(made, path)  # noqa: PTH105  (of two paths that are texts and paths)
    return path


def called_operators(program: ExportedProgram) -> Iterable[OpOverload]:
    """Yield the operators that a program calls, without PyTorch's own."""
    seen: set[OpOverload] = set()
    for module in program.graph_module.modules():
        graph = getattr(module, "graph", None)
        for node in graph.nodes if isinstance(graph, torch.fx.Graph) else ():
            target = node.target
            if isinstance(target, OpOverload) and target.namespace not in ("aten", "prims"):
                if target not in seen:
                    yield target
                seen.add(target)


def choose_declarations(
    there: Sequence[OpOverload], asked: Sequence[Operator | OpOverload | str] | None
) -> dict[OpOverload, list[str]]:
    """Return the declarations of the operators that are called directly.

    Raises:
        PullbackError: PB739, PB740.
    """
    if asked is None:
        known = {op: declarations(op, loaded=True) for op in there}
        return {op: found for op, found in known.items() if found}
    by_name = {name_of(op): op for op in there}
    found: dict[OpOverload, list[str]] = {}
    for each in asked:
        name = name_of(each)
        if name not in by_name:
            raise NotInProgram.error(
                f"{name} is to be called directly, and the program does not call it",
                calls=", ".join(by_name) or None,
                help=did_you_mean(name, list(by_name)) or "leave it out",
            )
        found[by_name[name]] = declarations(by_name[name], loaded=False)
        if not found[by_name[name]]:
            raise no_shim(name)
    return found


def declarations(op: OpOverload, *, loaded: bool) -> list[str]:
    """Return the declarations of an operator's C functions, one for each device."""
    name = name_of(op)
    schema = programs.find_schema(name, "")
    if schema is None or op._overloadname != "default" or not shims.can_have(schema):
        return []
    if shims.is_of_pytorch(name):
        return []
    return [
        shims.bind_declaration(schema, device)
        for device in shims.devices()
        if not loaded or shims.is_loaded(name, device)
    ]


def no_shim(name: str) -> Exception:
    """Return the error for an operator that AOTInductor cannot call directly."""
    if shims.is_of_pytorch(name):
        return NoShim.error(
            f"{name} cannot be called directly: PyTorch has a C function "
            f"{shims.symbol(name, 'cpu')} of its own",
            help="give the operator another name, or leave it out: it is called by the proxy "
            "executor then",
        )
    return NoShim.error(
        f"{name} cannot be called directly: AOTInductor does not pass all of its arguments to C",
        takes="tensors, optional tensors, int, float, bool, str",
        help="leave it out: it is called by the proxy executor then",
    )


def name_of(operator: Operator | OpOverload | str) -> str:
    """Return an operator's name with its namespace."""
    if isinstance(operator, Operator):
        return operator.line.qualname
    return operator if isinstance(operator, str) else operator._schema.name
