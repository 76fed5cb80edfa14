"""The targets of `pullback check`: the Functions and operators of files, and their inputs."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn
from torch._library.custom_ops import CustomOpDef
from torch.autograd import Function

from pullback.bind.operator import Operator
from pullback.deploy.definitions import FileMissing, FileStopped, line_of, load
from pullback.diagnostic import PullbackError, Rule, did_you_mean

NothingToCheck = Rule("PB804", "nothing-to-check")
NameMissing = Rule("PB805", "name-missing")

INPUTS = "example_inputs"

# A file that defines a derivative has one of these; another is not imported for its folder.
NAMED = re.compile(
    r"\bdef (?:backward|vjp)\b|\bFunction\b|\bpullback\b|\btorch\.library\b|\bcustom_op\b"
)
# What is run, not imported; and tests, which define faulty derivatives on purpose.
NOT_IMPORTED = re.compile(r"setup\.py|conftest\.py|test_.*\.py|.*_test\.py|__main__\.py")
ELSEWHERE = ("build", "dist", "node_modules", "site-packages", "__pycache__")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One target: where it is, "ops.py:Square", and its inputs, or none if they are to be found."""

    place: str
    given: Any
    inputs: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict[str, Any])
    file: Path | None = None


def find_subjects(texts: Iterable[str]) -> tuple[list[Subject], list[PullbackError]]:
    """Return the targets of some files, folders, modules and packages, each target once.

    Also the errors of files in folders that cannot be imported: the others are still checked.

    Raises:
        PullbackError: as `subjects_of`, of what is named itself; PB804, there is none in a folder.
    """
    found: list[Subject] = []
    errors: list[PullbackError] = []
    for text in texts:
        units = units_of(text)
        if units is None:
            found += subjects_of(text)
            continue
        before = len(found) + len(errors)
        for unit in units:
            try:
                found += subjects_of(unit)
            except PullbackError as error:
                if error.finding.code != NothingToCheck.code:
                    errors.append(error)
        if len(found) + len(errors) == before:
            raise NothingToCheck.error(
                f"no file in {text} defines an autograd.Function or an operator",
                looked_at=f"{len(units)} files that may: they name Function, pullback, "
                "torch.library or custom_op, and are no tests",
            )
    return each_once(found), errors


def each_once(found: list[Subject]) -> list[Subject]:
    """Return subjects without those that are imported from another file that is checked too."""
    files = {subject.file for subject in found}
    own: dict[tuple[str, int], Subject] = {}
    for subject in found:
        given = subject.given
        file = given.file if isinstance(given, Operator) else None
        if file is None or file == subject.file or file not in files:
            own.setdefault((subject.place.partition(":")[2], id(given)), subject)
    return list(own.values())


def units_of(text: str) -> list[str] | None:
    """Return the files of a folder, or the modules of a package; None for a single one."""
    if Path(text).is_dir():
        return [str(path) for path in python_files(Path(text))]
    if Path(text).exists() or ":" in text or not all(map(str.isidentifier, text.split("."))):
        return None
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(text)
    except ImportError:
        return None
    if spec is None or spec.submodule_search_locations is None:
        return None
    roots = [Path(root) for root in spec.submodule_search_locations]
    return [module_name(text, root, path) for root in roots for path in python_files(root)]


def module_name(package: str, root: Path, path: Path) -> str:
    """Return the name of a file of a package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def python_files(root: Path) -> Iterator[Path]:
    """Yield the files of a folder that may define a derivative; not those of environments."""
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in ELSEWHERE:
            continue
        if path.is_dir() and not (path / "pyvenv.cfg").exists():
            yield from python_files(path)
        elif path.suffix == ".py" and may_define(path):
            yield path


def may_define(path: Path) -> bool:
    """Tell whether a file of a folder is to be imported."""
    if NOT_IMPORTED.fullmatch(path.name):
        return False
    return bool(NAMED.search(path.read_text(encoding="utf-8", errors="replace")))


def subjects_of(text: str) -> Iterator[Subject]:
    """Yield the targets of "FILE", "FILE:NAME", "module" or "module:NAME".

    Raises:
        PullbackError: PB801, PB802, it cannot be imported; PB804, it defines nothing that can be
            checked; PB805, there is no such name in it.
    """
    file, _, name = text.partition(":")
    module = import_target(file)
    if name:
        given = resolve_name(module, name)
        found = {name: instance_of(given) if is_module(given) else given}
    else:
        found = dict(own_targets(module))
    if not found:
        raise NothingToCheck.error(
            f"{file} defines no autograd.Function and no operator",
            help=f"name a function or a module of it: pullback check {file}:NAME",
        )
    for own, given in found.items():
        inputs, keywords = inputs_of(module, own, given, alone=len(found) == 1)
        defined = getattr(module, "__file__", None)
        yield Subject(
            place=f"{file}:{own}",
            given=given,
            inputs=inputs,
            keywords=keywords,
            file=Path(defined).resolve() if defined else None,
        )


def import_target(text: str) -> ModuleType:
    """Import a file by its path, or a module by its name."""
    path = Path(text)
    if path.suffix == ".py" or path.exists():
        if not path.is_file():
            raise FileMissing.error(f"there is no file {path}", looked=path.absolute())
        if (path.resolve().parent / "__init__.py").is_file():
            return import_in_package(path.resolve())
        module = load(path, "pullback_check")
        # Modules that it imports when it is called are beside it as well.
        sys.path.insert(0, str(path.resolve().parent))
        return module
    sys.path.insert(0, str(Path.cwd()))
    return import_module(text)


def import_module(text: str) -> ModuleType:
    """Import a module by its name."""
    try:
        return importlib.import_module(text)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{text}.".startswith(f"{error.name}."):
            raise import_failure(text, error) from error
        raise FileMissing.error(
            f"there is no file and no module {text}", help="a file's name ends in .py"
        ) from None
    except PullbackError:
        raise
    except (Exception, SystemExit) as error:
        raise import_failure(text, error) from error


def import_in_package(path: Path) -> ModuleType:
    """Import a file of a package under its own name, so that it can import from there."""
    root = path.parent
    while (root.parent / "__init__.py").is_file():
        root = root.parent
    load(root)
    sys.path.insert(0, str(root.parent))
    return import_module(module_name(root.name, root, path))


def import_failure(text: str, error: BaseException) -> PullbackError:
    """Return the error of a module that cannot be imported."""
    frame, file = error.__traceback__, Path(__file__)
    while frame:
        file, frame = Path(frame.tb_frame.f_code.co_filename), frame.tb_next
    return FileStopped.error(
        f"{text} stopped with {type(error).__name__}: {error}", at=line_of(error, file)
    )


def own_targets(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the Functions and operators that a module defines, each by its first name."""
    seen: set[int] = set()
    for name, value in vars(module).items():
        if id(value) not in seen and is_own(value, module):
            seen.add(id(value))
            yield name, value


def is_own(value: object, module: ModuleType) -> bool:
    """Tell whether a module defines it, and it can be checked."""
    if isinstance(value, type) and issubclass(value, Function):
        # A base without a forward is for others to complete.
        return value.__module__ == module.__name__ and value.forward is not Function.forward
    if isinstance(value, CustomOpDef):
        return value._init_fn.__module__ == module.__name__
    return isinstance(value, Operator)


def resolve_name(module: ModuleType, name: str) -> Any:  # noqa: ANN401
    """Return the object of a name, which may have dots."""
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise NameMissing.error(
                f"{module.__name__.removeprefix('pullback_check_')} has no '{name}'",
                help=did_you_mean(part, vars(value)) if hasattr(value, "__dict__") else None,
            )
        value = getattr(value, part)
    return value


def is_module(given: object) -> bool:
    """Tell whether it is a class of modules."""
    return isinstance(given, type) and issubclass(given, nn.Module)


def instance_of(given: Callable[[], nn.Module]) -> nn.Module:
    """Return a module of a class that can be made without arguments."""
    try:
        return given()
    except TypeError as error:
        raise NothingToCheck.error(
            f"{getattr(given, '__name__', given)} cannot be made without arguments: {error}",
            help="make one in the file, and give its name",
        ) from None


def inputs_of(
    module: ModuleType, name: str, given: object, *, alone: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the inputs that a file has for a target: arguments and keywords; none if it has none.

    They are its own attribute `example_inputs`, or the module's: a dictionary by name, or, where
    there is one target, the inputs themselves. Each may be a function that makes them.
    """
    own = getattr(given, INPUTS, None)
    if own is None:
        own = make_inputs(getattr(module, INPUTS, None))
        if isinstance(own, Mapping):
            own = own.get(name)
        elif not alone:
            own = None
    own = make_inputs(own)
    if own is None:
        return (), {}
    if isinstance(own, Mapping):
        return (), dict(own)
    return (tuple(own) if isinstance(own, tuple | list) else (own,)), {}


def make_inputs(inputs: Any) -> Any:  # noqa: ANN401
    """Return inputs; call the function that makes them."""
    return inputs() if callable(inputs) and not isinstance(inputs, Mapping) else inputs
