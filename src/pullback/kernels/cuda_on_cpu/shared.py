"""`__shared__` variables -> references into a block's arena.

A declaration is taken apart in place. Its type becomes a typedef of the same form, so that arrays,
pointers and structs need no understanding here:

    __shared__ T x[4], *y;
    typedef T cuda_on_cpu_b_x; typedef cuda_on_cpu_b_x cuda_on_cpu_t_x[4]; auto& x = ...;
    typedef cuda_on_cpu_b_x *cuda_on_cpu_t_y; auto& y = ...;

A declaration that is not recognised keeps the word, which is then a macro for `static
thread_local`: right while a block runs on one OS thread, only without checks.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.kernels.cuda_on_cpu.facts import Facts
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import (
    CLASS_KEYS,
    angle_close,
    in_function,
    line_of,
    outside_templates,
    statement_start,
    top_level,
)

STORAGE = frozenset({"extern", "static"})
ALIGNMENT = frozenset({"__align__", "__builtin_align__", "alignas", "__attribute__"})


@dataclass(frozen=True)
class DeclaredName:
    """The name that a declarator declares: `x`, or in a macro `prefix##x`."""

    first: int
    last: int
    text: str
    quoted: str

    def prefixed(self, prefix: str, macro: tuple[str, ...] | None) -> str:
        """Return another name derived from this one."""
        pasted = macro and self.text.partition("##")[0] in macro
        return f"{prefix}##{self.text}" if pasted else prefix + self.text


@dataclass(frozen=True)
class Declaration:
    """A declaration of shared variables.

    Attributes:
        start: its first token.
        behind: the token after its last.
        commas: between declarators.
        names: one for each declarator.
        dropped: storage classes and alignments.
        alignment: the alignments, which are written elsewhere.
        dynamic: whether it is `extern`.
    """

    start: int
    behind: int
    commas: list[int]
    names: list[DeclaredName]
    dropped: list[int]
    alignment: str
    dynamic: bool


def rewrite_shared(stream: TokenStream, facts: Facts, out: Rewriting) -> None:
    """Rewrite all declarations of shared variables."""
    words = {"__shared__": False, **facts.shared_words}
    done = -1
    for index in stream.find(*words):
        if index < done:
            continue
        behind = _behind(stream, index)
        if behind < 0:
            # A parameter, as in old code: the pointer is like any other.
            out.erase(stream, [index])
            continue
        declaration = _read(stream, index, behind, words)
        if declaration is None:
            continue
        done = behind
        if _is_initialised(stream, declaration):
            out.problem(stream, index, "a __shared__ variable cannot have an initial value")
        elif in_function(stream, index):
            _write_local(stream, declaration, out)
        elif declaration.dynamic:
            _write_global(stream, declaration, out)


def _behind(stream: TokenStream, index: int) -> int:
    """Return the place after a declaration: its `;`, or a macro's end; -1 for a parameter."""
    for at in top_level(stream, index, len(stream)):
        if stream.words[at] == ";":
            return at
        if stream.words[at] in (")", "}", "]", ">"):
            break
        if stream.words[at] == "<" and (close := angle_close(stream, at)) > 0:
            return _behind(stream, close + 1)
    else:
        return len(stream) if stream.macro else -1
    return -1


def _read(
    stream: TokenStream, index: int, behind: int, words: dict[str, bool]
) -> Declaration | None:
    """Return the parts of a declaration; None if its form is not known."""
    start = statement_start(stream, index)
    dropped = [at for at in range(start, behind) if stream.words[at] in (*STORAGE, *words)]
    dynamic = any(stream.words[at] == "extern" or words.get(stream.words[at]) for at in dropped)
    tokens = list(outside_templates(stream, start, behind))
    alignment: list[str] = []
    for place, at in enumerate(tokens):
        # `struct __align__(16) S {...}`: that one belongs to the struct.
        if stream.words[at] not in ALIGNMENT or stream.word(at - 1) in CLASS_KEYS:
            continue
        if place + 1 < len(tokens) and stream.words[tokens[place + 1]] == "(":
            close = stream.partner[at + 1]
            dropped += range(at, close + 1)
            alignment.append(line_of(stream, at, close + 1))
    gone = set(dropped)
    tokens = [at for at in tokens if at not in gone]
    commas = [at for at in tokens if stream.words[at] == ","]
    names: list[DeclaredName] = []
    for left, right in zip([start - 1, *commas], [*commas, behind], strict=True):
        name = _name_of(stream, [at for at in tokens if left < at < right], first=left < start)
        if name is None:
            return None
        names.append(name)
    return Declaration(start, behind, commas, names, dropped, " ".join(alignment), dynamic)


def _name_of(stream: TokenStream, tokens: list[int], *, first: bool) -> DeclaredName | None:
    """Return the name in a declarator; the first one has the type before it."""
    last: int | None = None
    for place, at in enumerate(tokens):
        word = stream.words[at]
        if word == "(" and stream.word(at + 1) in ("*", "&"):  # float (*rows)[4]
            return _name_of(stream, list(range(at + 2, stream.partner[at])), first=False)
        if word in ("[", "=", "(") or (word == "{" and not _is_body(stream, tokens[:place])):
            if word == "(" and stream.word(at - 1) in ALIGNMENT:
                continue
            break
        if word == "__VA_ARGS__" and last is not None:
            break  # name __VA_ARGS__: the dimensions
        # `union {...};`, or a type alone, declares nothing.
        last = at if stream.kinds[at] == "word" else None
        if first and place == 0:
            last = None
    if last is None:
        return None
    start = last
    while stream.word(start - 1) == "##":
        start -= 2
    text = "".join(stream.words[start : last + 1])
    parameters = stream.macro.parameters if stream.macro else None
    quoted = f"#{text}" if parameters and text in parameters else f'"{text.replace("##", "")}"'
    return DeclaredName(start, last, text, quoted)


def _is_body(stream: TokenStream, before: list[int]) -> bool:
    """Tell whether a brace after these tokens opens a struct's body."""
    return any(stream.words[at] in (*CLASS_KEYS, "enum") for at in before)


def _is_initialised(stream: TokenStream, declaration: Declaration) -> bool:
    behind_name = (stream.word(name.last + 1) for name in declaration.names)
    tops = outside_templates(stream, declaration.start, declaration.behind)
    return any(word in ("{", "=") for word in behind_name) or any(
        stream.words[at] == "=" for at in tops
    )


def _write_local(stream: TokenStream, declaration: Declaration, out: Rewriting) -> None:
    """Write a declaration in a function: references, or pointers to dynamic memory."""
    parameters = stream.macro.parameters if stream.macro else None
    if not declaration.dynamic:
        made = [_static(name, declaration.alignment, parameters) for name in declaration.names]
        _write_typedefs(stream, declaration, out, made)
        return
    made: list[str] = []
    for name in declaration.names:
        kind = name.prefixed("cuda_on_cpu_t_", parameters)
        array = stream.word(name.last + 1) == "["
        left, right = (f"{kind}* {name.text}", "") if array else (f"auto& {name.text}", "*")
        made.append(f"{left} = {right}({kind}*)::cuda_on_cpu::cuda_on_cpu_dynamic()")
    _write_typedefs(stream, declaration, out, made)
    _drop_first_dimensions(stream, declaration, out)


def _static(name: DeclaredName, alignment: str, parameters: tuple[str, ...] | None) -> str:
    kind = name.prefixed("cuda_on_cpu_t_", parameters)
    if not alignment:
        made = f"::cuda_on_cpu::cuda_on_cpu_shared<{kind}>([] {{}}, {name.quoted})"
        return f"auto& {name.text} = {made}"
    aligned = name.prefixed("cuda_on_cpu_l_", parameters)
    made = f"::cuda_on_cpu::cuda_on_cpu_shared<{kind}, alignof({aligned})>([] {{}}, {name.quoted})"
    return f"struct {alignment} {aligned} {{}}; auto& {name.text} = {made}"


def _write_global(stream: TokenStream, declaration: Declaration, out: Rewriting) -> None:
    """Write dynamic memory at namespace scope: a pointer that each block sets."""
    made: list[str] = []
    for name in declaration.names:
        kind, text = f"cuda_on_cpu_t_{name.text}", name.text
        made.append(
            f"static thread_local {kind}* {text}; "
            f"static const bool cuda_on_cpu_d_{text} = ::cuda_on_cpu::cuda_on_cpu_dynamic_at("
            f"[](void* cuda_on_cpu_p) {{ {text} = ({kind}*)cuda_on_cpu_p; }})"
        )
    _write_typedefs(stream, declaration, out, made)
    _drop_first_dimensions(stream, declaration, out)


def _write_typedefs(
    stream: TokenStream, declaration: Declaration, out: Rewriting, made: list[str]
) -> None:
    """Write a typedef for each declarator, followed by the variable made with it."""
    out.erase(stream, declaration.dropped)
    parameters = stream.macro.parameters if stream.macro else None
    names = declaration.names
    out.before(stream, declaration.start, "typedef ")
    if declaration.commas:
        # The type is written once: a struct's body could not be repeated.
        base = names[0].prefixed("cuda_on_cpu_b_", parameters)
        first = _declarator_start(stream, declaration)
        out.before(stream, first, f"{base}; typedef {base} ")
        for comma, text in zip(declaration.commas, made, strict=False):
            out.replace(stream, comma, f"; {text}; typedef {base} ")
    for name in names:
        out.replace(stream, name.first, name.prefixed("cuda_on_cpu_t_", parameters))
        for at in range(name.first + 1, name.last + 1):
            out.replace(stream, at, "")
    out.after(stream, declaration.behind - 1, f"; {made[-1]}")


def _declarator_start(stream: TokenStream, declaration: Declaration) -> int:
    """Return where the first declarator starts: at its name, or a `*` before it."""
    at = declaration.names[0].first
    while stream.word(at - 1) in ("*", "&", "(", "const", "volatile", "__restrict__"):
        if stream.words[at - 1] in ("const", "volatile") and stream.word(at - 2) not in ("*", "&"):
            break
        at -= 1
    return at


def _drop_first_dimensions(stream: TokenStream, declaration: Declaration, out: Rewriting) -> None:
    """Remove `[]`: dynamic memory is given as a pointer to the first element."""
    for name in declaration.names:
        if stream.word(name.last + 1) == "[":
            out.erase(stream, range(name.last + 1, stream.partner[name.last + 1] + 1))
