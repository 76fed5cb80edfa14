"""Launches, `k<<<g, b>>>(x)`, and calls of CUDA's runtime that take a kernel."""

from __future__ import annotations

import json

from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import arguments, expression_start, line_of, top_level

# Functions of the CUDA runtime -> which of their arguments is a kernel.
TAKE_A_KERNEL = {
    "cudaLaunchKernel": 0,
    "cudaLaunchCooperativeKernel": 0,
    "cudaFuncSetAttribute": 0,
    "cudaFuncSetCacheConfig": 0,
    "cudaFuncSetSharedMemConfig": 0,
    "cudaFuncGetAttributes": 1,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": 1,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 1,
    "cudaOccupancyAvailableDynamicSMemPerBlock": 1,
    "cudaOccupancyMaxPotentialBlockSize": 2,
    "cudaOccupancyMaxPotentialBlockSizeWithFlags": 2,
}
CASTS = ("reinterpret_cast", "static_cast")


def rewrite_launches(stream: TokenStream, out: Rewriting) -> None:
    """Make each launch a call."""
    for index in stream.find("<<<"):
        start, close = expression_start(stream, index - 1), _launch_end(stream, index)
        if start < 0 or close < 0:
            missing = "the kernel's name before" if start < 0 else "the end of"
            out.problem(stream, index, f"{missing} this launch (<<<...>>>) cannot be found")
            continue
        name = _name(stream, start, index)
        opening = "::cuda_on_cpu::cuda_on_cpu_kernel([&](auto&&... cuda_on_cpu_a) -> void { "
        out.before(stream, start, opening)
        out.after(stream, index - 1, f"(cuda_on_cpu_a...); }}, {name})")
        out.replace(stream, index, ".cuda_on_cpu_configure(")
        out.replace(stream, close, ")")
        for angle in (close + 1, close + 2):
            out.replace(stream, angle, "")
        if stream.word(close + 3) == "(":
            _rewrite_arguments(stream, close + 3, out)


def _launch_end(stream: TokenStream, launch: int) -> int:
    """Return the first `>` of the `>>>` that belongs to a `<<<`; -1 where there is none."""
    spaced = stream.words[launch] != "<<<"
    end = _closing_angles(stream, launch, spaced=spaced)
    # `k<<<n, 3>> >(x)`: blanks are allowed only there.
    return end if end >= 0 or spaced else _closing_angles(stream, launch, spaced=True)


def _closing_angles(stream: TokenStream, launch: int, *, spaced: bool) -> int:
    close = stream.partner[stream.inside[launch]] if stream.inside[launch] >= 0 else len(stream)
    last, templates = -1, 0
    for index in top_level(stream, launch + 1, close if close > launch else len(stream)):
        word = stream.words[index]
        if word == ";" or stream.kinds[index] == "launch":
            break
        if word == "<" and stream.kinds[index - 1] == "word":
            templates += 1
        if word != ">":
            continue
        if _is_launch_end(stream, index, spaced=spaced):
            # In `k<<<A<B<C<int>>>(n), 3>>>(x)` the first three close templates.
            if templates <= 0:
                return index
            last = index
        templates -= 1
    return last  # `<` was a comparison


def _is_launch_end(stream: TokenStream, index: int, *, spaced: bool) -> bool:
    """Tell whether this is `>>>` before arguments, or at the end of a macro."""
    if stream.words[index : index + 3] != [">", ">", ">"]:
        return False
    together = spaced or (stream.adjacent(index) and stream.adjacent(index + 1))
    follows = stream.word(index + 3)
    named = index + 3 < len(stream) and stream.kinds[index + 3] == "word"
    return together and (named or follows in ("(", ""))


def _rewrite_arguments(stream: TokenStream, open_: int, out: Rewriting) -> None:
    close = stream.partner[open_]
    for index in range(open_ + 1, close):
        # The arguments pass through a template, where NULL is an integer.
        if stream.words[index] == "NULL":
            out.replace(stream, index, "nullptr")
    for first, _ in arguments(stream, open_):
        if stream.words[first] == "{":
            out.problem(
                stream,
                first,
                "a kernel's argument in braces has no type here: name it, as in dim3{1, 2}",
            )


def _name(stream: TokenStream, first: int, behind: int) -> str:
    """Return a kernel's expression as a string literal, with a macro's parameters filled in."""
    parameters = stream.macro.parameters if stream.macro else None
    if not parameters or set(parameters).isdisjoint(stream.words[first:behind]):
        return _literal(line_of(stream, first, behind))
    parts: list[str] = []
    for index in range(first, behind):
        word = stream.words[index]
        if word in parameters:
            parts.append(f"#{word}")
        elif word != "##":
            parts.append(_literal(word))
    return " ".join(parts)


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def rewrite_kernel_pointers(stream: TokenStream, out: Rewriting) -> None:
    """Remove casts to `void*` from kernels, so that a typed overload is chosen."""
    for index in stream.find(*TAKE_A_KERNEL):
        if stream.word(index + 1) != "(" or stream.partner[index + 1] < 0:
            continue
        given = arguments(stream, index + 1)
        place = TAKE_A_KERNEL[stream.words[index]]
        if place < len(given):
            out.erase(stream, _cast(stream, *given[place]))


def _cast(stream: TokenStream, first: int, behind: int) -> list[int]:
    """Return the tokens of a cast to `void*` at the start of an expression."""
    word = stream.words[first]
    if word == "(":
        close = stream.partner[first]
        is_cast = _is_void_pointer(stream.words[first + 1 : close]) and close + 1 < behind
        return list(range(first, close + 1)) if is_cast else []
    if word in CASTS and stream.word(first + 1) == "<":
        close = next((at for at in range(first, behind) if stream.words[at] == ">"), -1)
        if close > 0 and _is_void_pointer(stream.words[first + 2 : close]):
            return list(range(first, close + 1))
    return []


def _is_void_pointer(words: list[str]) -> bool:
    return sorted(word for word in words if word != "const") == ["*", "void"]
