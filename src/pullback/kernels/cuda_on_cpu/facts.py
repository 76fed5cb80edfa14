"""What a rule has to know about the author's other files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import (
    ATTRIBUTES,
    arguments,
    line_of,
    outside_templates,
    top_level,
)

MEMORY = ("__device__", "__constant__", "__managed__")
# Other words that a macro for `__shared__` or `__global__` may contain.
QUALIFIERS = frozenset(
    {"__shared__", "__global__", "extern", "static", "volatile", "void", "inline", "__host__"}
)


@dataclass
class Facts:
    """Facts about all files of a build.

    Attributes:
        shared_words: names of macros that stand for `__shared__` -> whether `extern` too.
        kernel_words: names of macros that stand for `__global__`.
        extern_variables: device variables that some file declares `extern`.
        cuda_operators: namespace -> operators registered for CUDA; None among them: unreadable.
        own_words: enumerators that the author defines, such as `kCUDA`.
        device_macros: names of macros that make `k##device` -> which argument `device` is.
        cuda_uses: uses of such macros for CUDA: the macro, and its other arguments' first.
    """

    shared_words: dict[str, bool] = field(default_factory=dict[str, bool])
    kernel_words: set[str] = field(default_factory=set[str])
    extern_variables: set[str] = field(default_factory=set[str])
    cuda_operators: dict[str, set[str | None]] = field(default_factory=dict[str, set[str | None]])
    own_words: set[str] = field(default_factory=set[str])
    device_macros: dict[str, int] = field(default_factory=dict[str, int])
    cuda_uses: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def learn(self, streams: Iterable[TokenStream]) -> None:
        """Collect the facts from all streams of a build."""
        known = list(streams)
        for stream in known:
            self._learn_macro(stream)
        for stream in known:
            self._learn_code(stream)

    def _learn_code(self, stream: TokenStream) -> None:
        for index in stream.find(*MEMORY):
            external = "extern" in (stream.word(index - 1), stream.word(index + 1))
            if external and (name := variable_name(stream, index)):
                self.extern_variables.add(name)
        for index in stream.find("enum"):
            self._learn_enumerators(stream, index)
        for registration in registrations(stream):
            if registration.key == "CUDA":
                operators = self.cuda_operators.setdefault(registration.namespace, set())
                operators |= set(registration.operators) or {None}
        for use in device_uses(stream, self):
            if stream.words[use.device_at] == "CUDA":
                self.cuda_uses.add(use.what)

    def _learn_macro(self, stream: TokenStream) -> None:
        if stream.macro is None:
            return
        if stream.macro.parameters is not None:
            for index in stream.find("k"):
                pasted = stream.word(index + 2) if stream.word(index + 1) == "##" else ""
                if pasted in stream.macro.parameters:
                    self.device_macros[stream.macro.name] = stream.macro.parameters.index(pasted)
            return
        words = [
            stream.words[index]
            for index in top_level(stream, 0, len(stream))
            if stream.kinds[index] == "word"
        ]
        if "__shared__" in words and _only_qualifies(words):
            self.shared_words[stream.macro.name] = "extern" in words
        if "__global__" in words and "{" not in stream.words:
            self.kernel_words.add(stream.macro.name)

    def _learn_enumerators(self, stream: TokenStream, index: int) -> None:
        for opening in range(index, min(index + 8, len(stream))):
            if stream.words[opening] == "{":
                behind = stream.partner[opening]
                self.own_words |= {"kCUDA"} & set(stream.words[opening:behind])
                return


@dataclass(frozen=True)
class KernelRegistration:
    """A `TORCH_LIBRARY_IMPL(namespace, key, m) { m.impl("operator", ...); }`.

    Attributes:
        namespace: as written.
        key: the dispatch key.
        key_at: where it is in the stream.
        operators: name -> where the statement `m.impl(...)` begins.
    """

    namespace: str
    key: str
    key_at: int
    operators: dict[str, int]


def registrations(stream: TokenStream) -> list[KernelRegistration]:
    """Return the registrations of kernels."""
    found: list[KernelRegistration] = []
    for index, word in enumerate(stream.words):
        if "TORCH_LIBRARY_IMPL" not in word or stream.word(index + 1) != "(":
            continue
        parts = arguments(stream, index + 1)
        if len(parts) != 3 or parts[1][1] - parts[1][0] != 1:
            continue
        key_at, variable = parts[1][0], stream.words[parts[2][0]]
        body = stream.partner[index + 1] + 1
        operators = _operators(stream, body, variable) if stream.word(body) == "{" else {}
        namespace = line_of(stream, *parts[0])
        found.append(KernelRegistration(namespace, stream.words[key_at], key_at, operators))
    return found


@dataclass(frozen=True)
class DeviceUse:
    """A use of a macro that takes a device's name: `REGISTER(f, CUDA, f_cuda)`."""

    what: tuple[str, str]
    device_at: int


def device_uses(stream: TokenStream, facts: Facts) -> list[DeviceUse]:
    """Return the uses of macros that make a device's enumerator by token pasting."""
    found: list[DeviceUse] = []
    for index in stream.find(*facts.device_macros):
        macro = stream.words[index]
        place = facts.device_macros[macro]
        given = arguments(stream, index + 1) if stream.word(index + 1) == "(" else []
        if place < len(given) and given[place][1] - given[place][0] == 1:
            others = [line_of(stream, *each) for n, each in enumerate(given) if n != place]
            found.append(DeviceUse((macro, "".join(others[:1])), given[place][0]))
    return found


def _operators(stream: TokenStream, body: int, variable: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for index in range(body, stream.partner[body] - 3):
        if stream.words[index : index + 4] == [variable, ".", "impl", "("]:
            # The name may be in a macro: TORCH_SELECTIVE_NAME("ns::add").
            names = range(index + 4, min(index + 8, len(stream)))
            name = next((stream.words[at] for at in names if stream.kinds[at] == "string"), None)
            if name is not None:
                found[name.strip('"').rpartition("::")[2]] = index
    return found


def variable_name(stream: TokenStream, index: int) -> str | None:
    """Return the name of the first variable that a declaration declares; None for a function."""
    name: str | None = None
    for at in outside_templates(stream, index, len(stream)):
        word = stream.words[at]
        if word in (";", "=", "[", ",", "{"):
            return name
        if word == "(" and stream.word(at - 1) not in ATTRIBUTES:
            return stream.word(at + 2) if stream.word(at + 1) == "*" else None
        if stream.kinds[at] == "word":
            name = word
    return name


def _only_qualifies(words: list[str]) -> bool:
    return all(word in QUALIFIERS or "align" in word for word in words)
