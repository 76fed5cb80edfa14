"""A Python file, a package or operators -> what is to be shipped, and the text that defines it."""

from __future__ import annotations

import importlib
import importlib.util
import keyword
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from pullback.bind.operator import Operator
from pullback.bind.registry import operators
from pullback.deploy import shipped
from pullback.diagnostic import PullbackError, Rule

FileMissing = Rule("PB801", "file-missing")
FileStopped = Rule("PB802", "file-stopped")
NothingToShip = Rule("PB708", "nothing-to-ship")
NoFile = Rule("PB709", "no-file")
NameTaken = Rule("PB710", "name-taken")

# Packages that an author's package needs, so it cannot have their names.
NEEDED = ("torch", "pullback", "numpy", "setuptools", "pip")


@dataclass(frozen=True, kw_only=True)
class Definitions:
    """What is to be shipped.

    Attributes:
        path: a Python file, or the folder of a package; a name alone where no text travels.
        operators: those that it defines, without those that their derivatives call.
        module: what was imported; None if the operators were defined before.
    """

    path: Path
    operators: tuple[Operator, ...]
    module: ModuleType | None = None

    @property
    def is_package(self) -> bool:
        """Whether it is a folder with an `__init__.py`."""
        return self.path.is_dir()

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.path if self.is_package else self.path.parent

    @property
    def version(self) -> str:
        """The `__version__` that it states."""
        return str(getattr(self.module, "__version__", "0.1.0"))


def of_file(path: Path) -> Definitions:
    """Import a Python file or a package, and return what it defines.

    Raises:
        PullbackError: PB708, it defines no operator; PB801, PB802.
    """
    path = path.resolve()
    if not defined_in(path):
        load(path)
    own = defined_in(path)
    if not own:
        raise nothing_in(path)
    module = next((m for m in list(sys.modules.values()) if is_of(m, path)), None)
    return Definitions(path=path, operators=tuple(shipped.find_roots(own)), module=module)


def nothing_in(path: Path) -> PullbackError:
    """Return the error for a file without operators: what was looked for."""
    others = sorted({str(op.file) for op in operators.values() if op.file})
    return NothingToShip.error(
        f"{path.name} defines no operator: importing it called neither pb.operator nor @pb.formula",
        defined_elsewhere=", ".join(others[:4]) or None,
        help="give the file that calls them, not under `if __name__ == '__main__'`",
    )


def require_existing(path: Path) -> Path:
    """Return a path that exists.

    Raises:
        PullbackError: PB801, it does not.
    """
    if not path.exists():
        raise FileMissing.error(f"there is no file {path}", looked=path.absolute())
    return path


def of_operators(operators: Iterable[Operator], *, with_text: bool) -> Definitions:
    """Return what defines some operators.

    Args:
        operators: one or more.
        with_text: whether the Python text travels too, which is then that of one file.

    Raises:
        PullbackError: PB708, there is none; PB709, no file defines them, or several do.
    """
    given = list(operators)
    if not given:
        raise NothingToShip.error(
            "no operator is given", help="pb.build([op], as_=...), or the file that defines some"
        )
    if not with_text:
        return Definitions(path=Path(given[0].line.namespace), operators=tuple(given))
    files = {operator.file for operator in given}
    file = files.pop()
    if files or file is None or not file.is_file():
        have = sorted(str(each) for each in {file, *files} if each)
        raise NoFile.error(
            f"{', '.join(op.line.qualname for op in given)}: a package needs the one file that "
            "defines them" + (", and there are several" if len(have) > 1 else ""),
            have=", ".join(have) or None,
            help="write the definitions into a file of their own, or into a package folder, and "
            "give its path",
        )
    return Definitions(path=file, operators=tuple(given))


def defined_in(path: Path) -> list[Operator]:
    """Return the operators that a file, or the files of a package, have defined."""
    return [
        operator
        for operator in operators.values()
        if operator.file and (operator.file == path or operator.file.is_relative_to(path))
    ]


def is_of(module: ModuleType, path: Path) -> bool:
    """Tell whether a module was imported from a file or a package's folder."""
    file = getattr(module, "__file__", None)
    return file is not None and Path(file) in (path, path / "__init__.py")


def load(file: Path, prefix: str = "pullback_build") -> ModuleType:
    """Import a file by its path, with its folder first on the path as Python itself does.

    Args:
        file: ends in .py; or the folder of a package, which is imported by its own name.
        prefix: of the module's name.

    Raises:
        PullbackError: PB801, it is not a Python file; PB802, it raised; pullback's own errors come
            as they are.
    """
    path = file.resolve()
    sys.path.insert(0, str(path.parent))
    try:
        if path.is_dir():
            return importlib.import_module(package_name(path))
        # Its own name might be that of a module that is in use: json.py.
        return import_file(path, f"{prefix}_{path.stem}")
    except PullbackError:
        raise
    except (Exception, SystemExit) as error:
        raise FileStopped.error(
            f"{file} stopped with {type(error).__name__}: {error}",
            at=line_of(error, path),
            help="operators that it defines later were not seen",
        ) from error
    finally:
        sys.path.remove(str(path.parent))


def import_file(path: Path, name: str) -> ModuleType:
    """Import a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileMissing.error(f"{path} is not a Python file", help="its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def package_name(folder: Path) -> str:
    """Return the name that a package's folder is imported by.

    Raises:
        PullbackError: PB801, it is not a package; PB710, another module has the name.
    """
    if not (folder / "__init__.py").is_file():
        raise FileMissing.error(
            f"{folder} is not a package", looked=folder / "__init__.py", help="give a file, ops.py"
        )
    require_name(folder.name)
    have = sys.modules.get(folder.name)
    if have is not None and not is_of(have, folder):
        raise name_taken(folder.name, f"{have} has it in this process")
    return folder.name


def require_name(name: str) -> None:
    """Stop at a name that no package of an author's can have.

    Raises:
        PullbackError: PB710.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise name_taken(name, "Python cannot import a module of that name")
    if name in sys.stdlib_module_names or name in NEEDED:
        raise name_taken(name, "a module that every program may need has it")


def name_taken(name: str, reason: str) -> PullbackError:
    """Return the error for a package's name."""
    return NameTaken.error(
        f"the package cannot be called '{name}'",
        reason=reason,
        help="choose another",
    )


def line_of(error: BaseException, path: Path) -> str | None:
    """Return the last line of the file that the error came through."""
    place, frame = None, error.__traceback__
    while frame:
        file = Path(frame.tb_frame.f_code.co_filename)
        if file == path or file.is_relative_to(path):
            place = f"{file.name}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place
