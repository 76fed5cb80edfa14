"""Navigates a stream of tokens: past template arguments, to an expression's start, up scopes."""

from __future__ import annotations

from collections.abc import Iterator

from pullback.kernels.cuda_on_cpu.tokens import TokenStream

# Words that cannot be a name before an expression.
NO_NAMES = frozenset(
    {"return", "else", "do", "case", "goto", "throw", "new", "delete", "and", "or", "not"}
    | {"co_return", "co_await", "co_yield"}
)
CLASS_KEYS = frozenset({"struct", "class", "union"})
# Words whose parentheses say nothing about what is declared.
ATTRIBUTES = frozenset(
    {"__align__", "__builtin_align__", "alignas", "__attribute__", "__launch_bounds__"}
    | {"decltype", "__declspec", "__cluster_dims__", "__maxnreg__", "noexcept"}
)


def angle_open(stream: TokenStream, close: int) -> int:
    """Return the `<` of template arguments from their `>`; -1 where there is none."""
    depth, index = 0, close
    while index >= 0:
        word = stream.words[index]
        if word == ">":
            depth += 1
        elif word == "<" and stream.word(index - 1) == "<" and stream.adjacent(index - 1):
            index -= 1  # a shift
        elif word == "<":
            depth -= 1
            if not depth:
                return index
        elif word in ")]}":
            index = stream.partner[index]
        elif word in ";{":
            return -1
        index -= 1
    return -1


def angle_close(stream: TokenStream, open_: int) -> int:
    """Return the `>` of template arguments from their `<`; -1 where there is none."""
    depth, index = 0, open_
    while 0 <= index < len(stream):
        word = stream.words[index]
        if word == "<":
            depth += 1
        elif word == ">":
            depth -= 1
            if not depth:
                return index
        elif word in "([{":
            index = stream.partner[index]
            if index < 0:
                return -1
        elif word in ";)]}":
            return -1
        index += 1
    return -1


def expression_start(stream: TokenStream, last: int) -> int:
    """Return where the postfix expression that ends with a token starts; -1 if there is none.

    Such as `ns::k<A, B>`, `(*k)`, `KERNEL(x)`, `this->k`, `table[i].k`, `name##_kernel<T>`.
    """
    index = last
    while True:
        start = _component_start(stream, index)
        if start < 0:
            return -1
        while stream.word(start - 1) == "template":
            start -= 1
        joint = stream.word(start - 1)
        if joint == "::" and not ends_name(stream, start - 2):
            return start - 1
        if joint not in ("::", ".", "->", "##"):
            return start
        index = start - 2


def _component_start(stream: TokenStream, index: int) -> int:
    """Return where a name with the brackets after it starts, or a parenthesis alone."""
    lowest = -1
    while index >= 0:
        word = stream.words[index]
        if word in (")", "]"):
            index = lowest = stream.partner[index]
        elif word == ">":
            index = angle_open(stream, index)
            lowest = -1
        elif stream.kinds[index] == "word" and word not in NO_NAMES:
            return index
        else:
            return lowest
        if index < 0:
            return -1
        # `if (x) (k)<<<`: brackets continue to the left only where they follow a name.
        if not ends_name(stream, index - 1):
            return lowest
        index -= 1
    return lowest


def ends_name(stream: TokenStream, index: int) -> bool:
    """Tell whether a token can end a name or a call that `[`, `.` and the like can follow."""
    word = stream.word(index)
    if word in ("if", "while", "for", "switch"):
        return False
    if word == ")":
        before = stream.word(stream.partner[index] - 1)
        return before not in ("if", "while", "for", "switch")
    named = index >= 0 and stream.kinds[index] == "word" and word not in NO_NAMES
    return named or word in ("]", ">")


def arguments(stream: TokenStream, open_: int) -> list[tuple[int, int]]:
    """Return the first index and the one after the last of each argument in parentheses."""
    close = stream.partner[open_]
    found: list[tuple[int, int]] = []
    first = open_ + 1
    for index in top_level(stream, open_ + 1, close):
        if stream.words[index] == ",":
            found.append((first, index))
            first = index + 1
    return [*found, (first, close)] if close > open_ + 1 else []


def top_level(stream: TokenStream, first: int, behind: int) -> Iterator[int]:
    """Yield the indices of tokens outside nested brackets, with the opening brackets."""
    index = first
    while index < behind:
        yield index
        if stream.words[index] in ("(", "[", "{") and stream.partner[index] > index:
            index = stream.partner[index]
        index += 1


def outside_templates(stream: TokenStream, first: int, behind: int) -> Iterator[int]:
    """Yield as `top_level` does, but without template arguments except their `<`."""
    skip = first
    for index in top_level(stream, first, behind):
        if index < skip:
            continue
        yield index
        if stream.words[index] == "<" and (close := angle_close(stream, index)) > 0:
            skip = close + 1


def line_of(stream: TokenStream, first: int, behind: int) -> str:
    """Return tokens as text on one line, without comments."""
    parts: list[str] = []
    for index in range(first, behind):
        parts.append(stream.words[index])
        if index + 1 < behind and not stream.adjacent(index):
            parts.append(" ")
    return "".join(parts)


def statement_start(stream: TokenStream, index: int) -> int:
    """Return where the declaration that holds a token starts."""
    while index > 0:
        before = stream.words[index - 1]
        if before == ")":
            opening = stream.partner[index - 1]
            if opening < 1 or stream.words[opening - 1] not in ATTRIBUTES:
                return index
            index = opening
        elif before == "]" and stream.partner[index - 1] >= 0:
            index = stream.partner[index - 1]
        elif before in (";", "{", "}", "(", ":"):
            return index
        else:
            index -= 1
    return index


def in_function(stream: TokenStream, index: int) -> bool:
    """Tell whether a token is in a function's body; a macro's body counts as one."""
    return stream.macro is not None or scope(stream, index) == "function"


def scope(stream: TokenStream, index: int) -> str:
    """Return the kind of scope that a token is in: "function", "class" or "namespace"."""
    around: list[int] = []
    while (index := stream.inside[index]) >= 0:
        around.append(index)
    kind = "namespace"
    for bracket in reversed(around):
        kind = _kind_of(stream, bracket)
        if kind == "function":
            break
    return kind


def _kind_of(stream: TokenStream, bracket: int) -> str:
    """Return the kind of scope that a bracket outside of functions opens."""
    if stream.words[bracket] != "{":
        return "function"
    head = _head(stream, bracket)
    words = [stream.words[index] for index in head]
    if "namespace" in words or (words[:1] == ["extern"] and len(words) == 2):
        return "namespace"
    if "enum" in words and "(" not in words:
        return "class"
    key = next((place for place, word in enumerate(words) if word in CLASS_KEYS), None)
    if key is None or words[-1] == "=":
        return "function"
    for place in range(key, len(words)):
        if words[place] == ":":
            break
        if words[place] == "(" and words[place - 1] not in ATTRIBUTES:
            return "function"  # one that returns a struct
    return "class"


def _head(stream: TokenStream, brace: int) -> list[int]:
    """Return the tokens between the last statement and a brace, without `template <...>`."""
    first = brace
    while first > 0:
        before = stream.words[first - 1]
        if before in (")", "]") and stream.partner[first - 1] >= 0:
            first = stream.partner[first - 1]
        elif before in (";", "{", "}", "(", "["):
            break
        else:
            first -= 1
    while stream.words[first] == "template" and stream.word(first + 1) == "<":
        close = angle_close(stream, first + 1)
        if close < 0 or close >= brace:
            break
        first = close + 1
    return list(top_level(stream, first, brace))
