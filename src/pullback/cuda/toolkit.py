"""Makes `torch.utils.cpp_extension` build GPU code for the CPU.

We replace two of its functions, which all callers reach however they imported it: the one that
`load` and `load_inline` call last, and the one with which setuptools builds an extension.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import sysconfig
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pullback.bind import extension_cuda, runtime
from pullback.bind.build import Build
from pullback.cuda.patches import Patches
from pullback.kernels.cuda_on_cpu import headers, library

if TYPE_CHECKING:
    from setuptools import Extension

# A setup.py looks for include/ and bin/nvcc in it.
HOME = library.CSRC
OF_GPUS = frozenset({"cudart", "c10_cuda", "torch_cuda", "cuda", "nvrtc"})
# PyTorch's own are linked in any case.
LINKED = OF_GPUS | {"c10", "torch", "torch_cpu", "torch_python"}


@contextmanager
def build_for_cpu() -> Generator[None]:
    """Let PyTorch's tools build for the CPU within the block."""
    patches = Patches()
    try:
        patch(patches)
        yield
    finally:
        patches.undo()


def patch(patches: Patches) -> None:
    """Replace the functions that build for a GPU."""
    from torch.utils import cpp_extension  # noqa: PLC0415  (most programs do without)

    module: Any = cpp_extension
    patches.set(module, "CUDA_HOME", str(HOME))
    patches.set(module, "_find_cuda_home", lambda: str(HOME))
    patches.set(module, "_check_cuda_version", lambda *_args: None)  # pyright: ignore
    patches.set(module, "_jit_compile", _wrap_jit(module._jit_compile))
    patches.set(module.BuildExtension, "build_extension", _build(module.BuildExtension))


def _wrap_jit(genuine: Callable[..., object]) -> Callable[..., object]:
    """Return the function that `load` and `load_inline` call with the written files."""
    signature = inspect.signature(genuine)

    def compile_and_load(*args: object, **kwargs: object) -> object:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        files = tuple(Path(file).absolute() for file in given["sources"])
        if given["is_standalone"] or not (given["with_cuda"] or extension_cuda.is_cuda(files)):
            folders = [*(given["extra_include_paths"] or [])]
            given["extra_include_paths"] = [*folders, *_beside_home(folders)]
            return genuine(*bound.args, **bound.kwargs)
        folders = [f"-I{Path(each).absolute()}" for each in given["extra_include_paths"] or []]
        flags = [*(given["extra_cflags"] or []), *(given["extra_cuda_cflags"] or []), *folders]
        build = Build(
            name=given["name"],
            files=files,
            folder=str(Path.cwd()),
            compiling=_deduplicate(flags),
            linking=tuple(given["extra_ldflags"] or ()),
        )
        module = extension_cuda.load(build)
        return module if given["is_python_module"] else module.__file__

    return compile_and_load


def _build(kind: Any) -> Callable[..., None]:  # noqa: ANN401  (setuptools' commands are untyped)
    """Return the function that a setup.py's `build_ext` calls for each extension."""
    genuine: Callable[[Any, Extension], None] = kind.build_extension

    def build_extension(self: Any, ext: Extension) -> None:  # noqa: ANN401
        files = tuple(Path(source).absolute() for source in ext.sources)
        if not OF_GPUS.intersection(ext.libraries) and not extension_cuda.is_cuda(files):
            ext.include_dirs += _beside_home([*ext.include_dirs, *self.include_dirs])
            genuine(self, ext)
            return
        made = extension_cuda.compile(build_of(self, ext, files))
        where = Path(self.get_ext_fullpath(ext.name))
        where.parent.mkdir(parents=True, exist_ok=True)
        # A file in use is replaced, not written to.
        where.unlink(missing_ok=True)
        shutil.copy2(made, where)

    return build_extension


def build_of(command: Any, ext: Extension, files: tuple[Path, ...]) -> Build:  # noqa: ANN401
    """Return the build that setuptools' description of an extension asks for, for either compiler.

    Args:
        command: `build_ext`, which has the options for all extensions: from `setup(include_dirs=)`,
            the command line and setup.cfg.
        ext: the extension.
        files: its sources.
    """
    said = cast("dict[str, list[str]] | list[str]", ext.extra_compile_args)
    given = [*said.get("cxx", []), *said.get("nvcc", [])] if isinstance(said, dict) else said
    pairs = cast("Iterable[tuple[str, str | None]]", [*(command.define or ()), *ext.define_macros])
    macros = [f"-D{key}" if value is None else f"-D{key}={value}" for key, value in pairs]
    undefined = [f"-U{name}" for name in (*(command.undef or ()), *ext.undef_macros)]
    # In setuptools' order: the extension's own folders are searched first.
    includes = [f"-I{path}" for path in _own_folders([*ext.include_dirs, *command.include_dirs])]
    folders = _own_folders([*ext.library_dirs, *command.library_dirs])
    libraries = [name for name in (*ext.libraries, *command.libraries) if name not in LINKED]
    return Build(
        name=ext.name,
        files=files,
        folder=str(Path.cwd()),
        compiling=_deduplicate([*macros, *undefined, *given, *includes]),
        linking=(
            *(str(Path(i).absolute()) for i in (*(command.link_objects or ()), *ext.extra_objects)),
            *(f"-L{path}" for path in folders),
            *(f"-l{name}" for name in libraries),
            *(f"-Wl,-rpath,{path}" for path in (*command.rpath, *ext.runtime_library_dirs)),
            *ext.extra_link_args,
        ),
    )


def _beside_home(folders: Iterable[str]) -> list[str]:
    """Return where plain C++ that uses CUDA's folder of headers finds the other headers."""
    in_home = any(Path(folder).resolve() == library.INCLUDE.resolve() for folder in folders)
    return [str(headers.folder())] if in_home else []


def _own_folders(folders: Iterable[str]) -> list[Path]:
    """Return an author's folders, without PyTorch's, CUDA's and Python's, which are added later."""
    absolute = [Path(folder).absolute() for folder in folders]
    python = (sysconfig.get_path("include"), Path(sys.exec_prefix, "include"))
    others = (runtime.ROOT, HOME, *python)
    return [path for path in absolute if not any(path.is_relative_to(one) for one in others)]


def _deduplicate(flags: Sequence[str]) -> tuple[str, ...]:
    """Leave out flags repeated for the second compiler, but nothing from two-word options."""
    found: list[str] = []
    words = iter(str(flag).strip() for flag in flags)
    for word in words:
        if word in ("-I", "-isystem", "-D", "-U", "-Xcompiler", "-gencode", "-include", "-ccbin"):
            found.extend((word, next(words, "")))
        elif word not in found:
            found.append(word)
    return tuple(found)
