"""C++ text -> tokens with their places and brackets; nothing is expanded or understood here.

The code outside directives is one stream and the body of each `#define` another, so a rule that
looks at a token's neighbours never sees half a directive. Text under `#if 0` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

_GAP = r"(?:[ \t]|\\[ \t]*\r?\n|/\*.*?\*/)*"
TOKEN = re.compile(
    rf"""
    (?P<newline>\n)
  | (?P<space>(?:[^\S\n]|\\[ \t]*\r?\n)+)
  | (?P<comment>//(?:[^\n\\]|\\[ \t]*\r?\n|\\)*|/\*.*?(?:\*/|\Z))
  | (?P<include>\#{_GAP}include{_GAP}(?:<[^>\n]*>|"[^"\n]*"))
  | (?P<string>(?:u8|[uUL])?(?:R"(?P<fence>[^()\\\s]{{0,16}})\(.*?\)(?P=fence)"
                              |"(?:[^"\\\n]|\\\r?\n|\\.)*"))
  | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<word>(?:[^\W\d]|\$)[\w$]*)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9a-zA-Z]|[0-9A-Za-z_.])*)
  | (?P<launch><<<|(?<!operator)(?<!operator[ ])(?:<<[ \t]+<|<[ \t]+<(?:[ \t]+|(?=<))<))
  | (?P<sign>::|->|\#\#|\+\+|--|&&|\|\||[-+*/%&|^!=<>]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
OPENED_BY = {close: open_ for open_, close in CLOSED_BY.items()}
OPENING = {"if", "ifdef", "ifndef"}
CONDITIONAL = {*OPENING, "elif", "elifdef", "elifndef", "else", "endif"}

Token = tuple[str, str, int]  # text, kind, start


@dataclass(frozen=True)
class Macro:
    """What a `#define` defines; `parameters` is None where it takes no arguments."""

    name: str
    parameters: tuple[str, ...] | None


@dataclass(frozen=True)
class Include:
    """An `#include` with a plain name, and the part of the text that holds the name."""

    name: str
    quoted: bool
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class TokenStream:
    """Tokens that follow one another once directives are set aside.

    Attributes:
        words: their texts.
        kinds: "word", "number", "string", "char", "launch" (`<<<`, `<< <`) or "sign".
        starts: where they start in the file's text.
        partner: the bracket that each bracket belongs to; -1 where there is none.
        inside: the innermost bracket that is open at each token; -1 outside all.
        macro: the macro whose body the stream is; None for code and for a condition.
    """

    words: list[str]
    kinds: list[str]
    starts: list[int]
    partner: list[int]
    inside: list[int]
    macro: Macro | None = None

    def __len__(self) -> int:
        return len(self.words)

    def end(self, index: int) -> int:
        """Return where a token ends in the file's text."""
        return self.starts[index] + len(self.words[index])

    def word(self, index: int) -> str:
        """Return a token's text; "" beyond either end."""
        return self.words[index] if 0 <= index < len(self.words) else ""

    def adjacent(self, index: int) -> bool:
        """Tell whether the next token follows without a gap."""
        return index + 1 < len(self.words) and self.end(index) == self.starts[index + 1]

    def find(self, *words: str) -> list[int]:
        """Return the indices of words, in order; `<<<` finds launches, however they are spaced."""
        return sorted(index for word in words for index in self._places.get(word, ()))

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for index, (word, kind) in enumerate(zip(self.words, self.kinds, strict=True)):
            if kind in ("word", "launch"):
                places.setdefault("<<<" if kind == "launch" else word, []).append(index)
        return places


@dataclass(frozen=True)
class TokenizedSource:
    """A file's text, split into tokens."""

    text: str
    streams: tuple[TokenStream, ...]
    includes: tuple[Include, ...]

    def line(self, start: int) -> int:
        """Return the line number of a place."""
        return self.text.count("\n", 0, start) + 1


def read(text: str) -> TokenizedSource:
    """Split a text into tokens."""
    reader = _Reader()
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or "string"
        if kind not in ("space", "comment"):
            reader.take((match[0], kind, match.start()))
    reader.take(("\n", "newline", len(text)))
    code = _stream(reader.code, reader.branches)
    return TokenizedSource(text, (code, *reader.others), tuple(reader.includes))


@dataclass
class _Reader:
    """The state between two tokens."""

    code: list[Token] = field(default_factory=list[Token])
    others: list[TokenStream] = field(default_factory=list[TokenStream])
    includes: list[Include] = field(default_factory=list[Include])
    # Index into `code` -> the conditional directives before that token.
    branches: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    directive: list[Token] | None = None
    at_line_start: bool = True
    dead: int = 0  # the depth of `#if` in text that no compiler sees

    def take(self, token: Token) -> None:
        """Take the next token."""
        text, kind, start = token
        if kind == "newline":
            if self.directive:
                self.end_directive(self.directive)
            self.directive = None
            self.at_line_start = True
            return
        opens = self.at_line_start and (kind == "include" or text == "#")
        self.at_line_start = False
        if opens:
            self.directive = []
            if kind == "include" and not self.dead:
                self.includes.append(_include(text, start))
        elif self.directive is not None:
            self.directive.append(token)
        elif not self.dead:
            self.code.append(token)

    def end_directive(self, tokens: list[Token]) -> None:
        """Act on a whole directive, given without its `#`."""
        name = tokens[0][0]
        if name in CONDITIONAL:
            self.branch(name, tokens)
        elif name == "define" and len(tokens) > 1 and not self.dead:
            self.others.append(_definition(tokens[1:]))

    def branch(self, name: str, tokens: list[Token]) -> None:
        """Note an `#if`, `#else` or `#endif`."""
        if self.dead and name in OPENING:
            self.dead += 1
        elif self.dead > 1:
            self.dead -= name == "endif"
        else:
            # For brackets, the text after dead text is the first branch.
            if not self.dead or name == "endif":
                self.branches.setdefault(len(self.code), []).append(name)
            self.dead = int(name == "if" and [token[0] for token in tokens[1:]] == ["0"])
            self.others.append(_stream(tokens[1:], {}))


def _include(text: str, start: int) -> Include:
    opening = text.rindex('"', 0, -1) if text.endswith('"') else text.rindex("<")
    name = text[opening + 1 : -1]
    return Include(name, text.endswith('"'), start + opening, start + len(text))


def _definition(tokens: list[Token]) -> TokenStream:
    """Return the body of a `#define`, given from its name on."""
    name, _, start = tokens[0]
    rest = tokens[1:]
    if not rest or rest[0][0] != "(" or rest[0][2] != start + len(name):
        return _stream(rest, {}, Macro(name, None))
    close = next((i for i, token in enumerate(rest) if token[0] == ")"), len(rest))
    parameters = [token[0] for token in rest[:close] if token[1] == "word"]
    return _stream(rest[close + 1 :], {}, Macro(name, (*parameters, "__VA_ARGS__")))


def _stream(
    tokens: list[Token], branches: Mapping[int, list[str]], macro: Macro | None = None
) -> TokenStream:
    words = [token[0] for token in tokens]
    kinds = [token[1] for token in tokens]
    starts = [token[2] for token in tokens]
    matched = _Brackets(len(words))
    for index, (word, kind) in enumerate(zip(words, kinds, strict=True)):
        if index in branches:
            matched.branch(branches[index])
        matched.inside[index] = matched.open[-1] if matched.open else -1
        if kind != "sign":
            continue
        if word in CLOSED_BY:
            matched.open.append(index)
        elif word in OPENED_BY:
            matched.close(index, words)
    partner, inside = matched.partner, matched.inside
    return TokenStream(
        words=words, kinds=kinds, starts=starts, partner=partner, inside=inside, macro=macro
    )


class _Brackets:
    """Brackets matched across `#if`: each branch starts from what was open before all of them."""

    def __init__(self, count: int) -> None:
        self.open: list[int] = []
        self.partner = [-1] * count
        self.inside = [-1] * count
        # For each `#if`: what was open before it, and after its first branch.
        self.saved: list[tuple[list[int], list[int] | None]] = []

    def close(self, index: int, words: list[str]) -> None:
        """Match a closing bracket with the innermost of its kind."""
        wanted = OPENED_BY[words[index]]
        for depth in range(len(self.open) - 1, -1, -1):
            opening = self.open[depth]
            if words[opening] == wanted:
                del self.open[depth:]
                self.partner[opening], self.partner[index] = index, opening
                self.inside[index] = self.inside[opening]
                return

    def branch(self, names: Iterable[str]) -> None:
        """Continue after conditional directives."""
        for name in names:
            if name in OPENING:
                self.saved.append((list(self.open), None))
            elif self.saved:
                before, first = self.saved.pop()
                first = list(self.open) if first is None else first
                if name != "endif":
                    self.saved.append((before, first))
                self.open = list(before) if name != "endif" else first
