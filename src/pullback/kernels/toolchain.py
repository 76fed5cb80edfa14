"""The compilers of this machine: which can be used, why others cannot, what they say."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pullback.diagnostic import PullbackError, Rule

Language = Literal["c++", "cuda"]

CompilerMissing = Rule("PB201", "compiler-missing")

# C++20's `requires` expressions, on which the generated entry points rest.
OLDEST = {"g++": (11,), "clang": (13,), "nvcc": (12, 0)}

HELP: dict[Language, str] = {
    "c++": "install g++ 11 or newer (apt install g++), or set CXX",
    "cuda": "install the CUDA toolkit 12.0 or newer, or set CUDA_HOME",
}

# Which compiler is found, and what else but its command line changes what it does. A change of any
# of these makes `find` look again; one of the second kind changes the identity as well.
CHOOSING = ("PATH", "CXX", "CUDACXX", "CUDA_HOME", "CUDA_PATH")
NVCC_STEERING = ("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
STEERING = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", *NVCC_STEERING)


MOST_LINES, MOST_COLUMNS = 12, 300

ERROR = re.compile(
    # g++, clang: file:line:column: error: text
    # The parts of generated code are called "call of demo::add2".
    r"^(?P<file>(?:(?:call|source|glue) of \w+::\w+)|[^\s:][^:]*):"
    r"(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?:fatal |internal compiler )?error: (?P<text>.*)"
    # nvcc: file(line): error: text
    r"|^(?P<nvfile>\S.*?)\((?P<nvline>\d+)\): (?:\w+ )?error(?: #[\w-]+)?: (?P<nvtext>.*)"
)
NOT_THE_AUTHORS = re.compile(
    r"glue of |/usr/|.*/csrc/glue\.h$"
    # In the package, or in an entry of the cache.
    r"|.*/(?:csrc|[0-9a-f]{32})/cuda_on_cpu/"
)
INCLUDED = re.compile(r"^(?:In file included|\s+) from (\S.*?):(\d+)(?::\d+)?[,:]$")
REQUIRED = re.compile(r"^(\S.*?):(\d+):(?:(\d+):)?\s+required from|at line (\d+) of (.+)$")
HINT = re.compile(r"note: (.*(?:did you (?:mean|forget)|suggested alternative).*)")


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A compiler that can be used; `identity` is all of it that can change what it produces."""

    language: Language
    path: Path
    version: str
    identity: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """The words that start it: CXX="ccache g++" has two."""
        return (str(self.path), *self.arguments)

    def __str__(self) -> str:
        return f"{self.path.name} {self.version}"


@dataclass(frozen=True, kw_only=True)
class FirstError:
    """The first thing a compiler said was wrong: what, where, and who asked for the template."""

    text: str
    at: str | None = None
    required_from: str | None = None


@dataclass(frozen=True)
class RefusedCompiler:
    """A compiler that was looked at and cannot be used."""

    name: str
    reason: str


def find(language: Language) -> Compiler:
    """Return the compiler to use; it is looked for again when the environment changes.

    Raises:
        PullbackError: PB201, none can be used; the evidence names each with its reason.
    """
    found = _examine_all(language, _environment())
    for compiler in found:
        if isinstance(compiler, Compiler):
            return compiler
    raise _missing(language, [seen for seen in found if isinstance(seen, RefusedCompiler)])


def has(language: Language) -> bool:
    """Tell whether a compiler can be used."""
    return any(isinstance(seen, Compiler) for seen in _examine_all(language, _environment()))


def survey() -> list[Compiler | RefusedCompiler]:
    """Return every compiler looked at, in the order in which they are preferred."""
    environment = _environment()
    return [*_examine_all("c++", environment), *_examine_all("cuda", environment)]


def _missing(language: Language, refusals: list[RefusedCompiler]) -> PullbackError:
    what = "C++" if language == "c++" else "CUDA"
    looked = "; ".join(f"{seen.name}: {seen.reason}" for seen in refusals)
    return CompilerMissing.error(
        f"no {what} compiler can be used", looked_at=looked, help=HELP[language]
    )


def _environment() -> tuple[tuple[str, str], ...]:
    return tuple((name, os.environ.get(name, "")) for name in (*CHOOSING, *STEERING))


@lru_cache(maxsize=8)
def _examine_all(
    language: Language, environment: tuple[tuple[str, str], ...]
) -> tuple[Compiler | RefusedCompiler, ...]:
    """Examine each candidate once: `g++` and `c++` are usually one program."""
    found: dict[object, Compiler | RefusedCompiler] = {}
    candidates = _cxx_candidates if language == "c++" else _cuda_candidates
    for name, command in candidates(dict(environment)):
        path = shutil.which(command[0]) if command else None
        if path is None:
            found[name] = RefusedCompiler(name, "not found")
            continue
        # Never run by the resolved path: clang++ and ccache look at the name they are called by.
        resolved = (Path(path).resolve(), command[1:])
        if resolved not in found:
            found[resolved] = _examine(language, name, (path, *command[1:]))
    return tuple(found.values())


def _cxx_candidates(environment: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name to show and the command of each candidate, the preferred first."""
    if chosen := environment["CXX"].strip():
        yield f"CXX={chosen}", _words(chosen)
    for name in ("g++", "c++", "clang++"):
        yield name, (name,)


def _cuda_candidates(environment: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if chosen := environment["CUDACXX"].strip():
        yield f"CUDACXX={chosen}", _words(chosen)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := environment[variable].strip():
            yield f"{variable}={home}", (str(Path(home) / "bin" / "nvcc"),)
    yield "nvcc", ("nvcc",)
    yield "/usr/local/cuda", ("/usr/local/cuda/bin/nvcc",)


def _words(command: str) -> tuple[str, ...]:
    """Split "ccache g++", but not a path that has a space."""
    return (command,) if Path(command).is_file() else tuple(shlex.split(command))


def _examine(language: Language, name: str, command: tuple[str, ...]) -> Compiler | RefusedCompiler:
    """Ask a compiler for its version, the one process that finding it costs."""
    try:
        answer = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            check=True,
            encoding="utf-8",
            env={**os.environ, "LC_ALL": "C"},
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=30,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return RefusedCompiler(name, f"does not answer --version ({error})")
    return _judge(language, name, command, answer)


def _judge(
    language: Language, name: str, command: tuple[str, ...], answer: str
) -> Compiler | RefusedCompiler:
    """Read the answer to --version: refuse another language's compiler and an old one."""
    kind, version = _kind_and_version(answer)
    if kind is None or version is None:
        return RefusedCompiler(name, "its --version names neither g++, clang nor nvcc")
    if (kind == "nvcc") != (language == "cuda"):
        return RefusedCompiler(name, f"is {kind}, which does not compile {language}")
    oldest = OLDEST[kind]
    if tuple(int(part) for part in version.split("."))[: len(oldest)] < oldest:
        wanted = ".".join(str(part) for part in oldest)
        return RefusedCompiler(name, f"is {kind} {version}; C++20 needs {wanted} or newer")
    return Compiler(
        language=language,
        path=Path(command[0]),
        version=version,
        identity=_identity(language, command, answer),
        arguments=command[1:],
    )


def _kind_and_version(answer: str) -> tuple[str | None, str | None]:
    patterns = {
        "nvcc": r"Cuda compilation tools, release [\d.]+, V([\d.]+\d)",
        "clang": r"clang version (\d+(?:\.\d+)*)",
        # The last number of the first line: "g++ (Debian 12.2.0-14+deb12u1) 12.2.0".
        "g++": r"\A[^\n]*\) (\d+\.\d+(?:\.\d+)*)[^\n]*\n(?s:.*)Free Software Foundation",
    }
    for kind, pattern in patterns.items():
        if match := re.search(pattern, answer):
            return kind, match[1]
    return None, None


def _identity(language: Language, command: tuple[str, ...], answer: str) -> str:
    """Return all that can change what this compiler produces from the same command line."""
    parts = [_fingerprint(command[0]), *command[1:], answer]
    parts += [f"{name}={value}" for name in STEERING if (value := os.environ.get(name))]
    if language == "c++":
        parts.append(_instruction_set())
    else:
        # nvcc hands the host code to the g++ on PATH.
        parts.append(_fingerprint(shutil.which(os.environ.get("NVCC_CCBIN", "g++")) or ""))
    return "\n".join(part.strip() for part in parts)


def _fingerprint(program: str) -> str:
    try:
        path = Path(program).resolve(strict=True)
        status = path.stat()
    except OSError:
        return program
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _instruction_set() -> str:
    """Return what -march=native means here: a home folder may be shared by unlike machines."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            # "flags" on x86, "Features" on ARM; the first core's line stands for all.
            flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = ""
    digest = hashlib.sha256(flags.encode()).hexdigest()[:16]
    return f"{platform.machine()} {digest}"


def first_error(log: str) -> FirstError:
    """Return the first error that a compiler or linker printed; what follows stays in the log."""
    lines = [line[:MOST_COLUMNS] for line in log.splitlines()]
    index = _index_of_error(lines)
    match = ERROR.match(lines[index]) if index < len(lines) else None
    if match is None:
        # Messages of the linker or the assembler have no common form.
        said = [line for line in lines if re.search(r"\berror\b|undefined|\bld\b", line, re.I)]
        return FirstError(text="\n".join((said or lines)[:MOST_LINES]))
    file, row = match["file"] or match["nvfile"], match["line"] or match["nvline"]
    column = f":{match['column']}" if match["column"] else ""
    rest = lines[index + 1 :]
    rest = rest[: _index_of_error(rest)]
    shown = [match["text"] or match["nvtext"], *_indented_lines(rest)]
    if hint := next((found[1] for other in rest if (found := HINT.search(other))), None):
        shown[0] += f" ({hint})"
    at, required_from = f"{file}:{row}{column}", _required_from([*_context(lines[:index]), *rest])
    if NOT_THE_AUTHORS.match(file):
        at, required_from = required_from or _included_from(lines[:index]) or at, None
    return FirstError(text="\n".join(shown[:MOST_LINES]), at=at, required_from=required_from)


def _index_of_error(lines: list[str]) -> int:
    found = [index for index, line in enumerate(lines) if ERROR.match(line)]
    # g++ reports a function before it reports which type in its parentheses is unknown.
    if len(found) > 1 and "declared void" in lines[found[0]]:
        return found[1]
    return found[0] if found else len(lines)


def _indented_lines(lines: list[str]) -> Iterator[str]:
    """Yield the source line and the caret that follow a message, not the notes."""
    for line in lines:
        if not line.startswith((" ", "\t")) or "detected during" in line:
            return
        yield line


def _context(lines: list[str]) -> list[str]:
    """Return the lines of g++ that lead from the author's code to an error in a template."""
    start = len(lines)
    while start and re.search(r"required from|In instantiation of", lines[start - 1]):
        start -= 1
    return lines[start:]


def _included_from(lines: list[str]) -> str | None:
    """Return the author's line that includes the header in which an error is."""
    begins = [i for i, line in enumerate(lines) if line.startswith("In file included")]
    last = lines[begins[-1] :] if begins else []
    found = [match for line in last if (match := INCLUDED.match(line))]
    own = (match for match in found if not NOT_THE_AUTHORS.match(match[1]))
    return next((f"{match[1]}:{match[2]}" for match in own), None)


def _required_from(lines: list[str]) -> str | None:
    """Return the innermost place in the author's code: where it asked for the template."""
    found = [match for line in lines if (match := REQUIRED.search(line))]
    own = [match for match in found if not NOT_THE_AUTHORS.match(match[1] or match[5])]
    if not found:
        return None
    file, row, column, nvrow, nvfile = (own or found[-1:])[0].groups()
    return f"{nvfile}:{nvrow}" if nvfile else f"{file}:{row}" + (f":{column}" if column else "")
