"""The lexer, and that whatever is rewritten every other token keeps its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullback.kernels.cuda_on_cpu.tokens import TOKEN, read
from tests.kernels.cuda_on_cpu.rewriting import rewritten

PIECES = st.sampled_from(
    [
        *("k<<<1, 2>>>(x);", "__shared__ float a[3], b;", "extern __shared__ int s[];"),
        *("__global__ void f(int n) {", "}", "{", "(", ")", "<", ">", ">>>", "<<<", "[", "]"),
        *("\n", "\r\n", "\\\n", "\\\r\n", " ", "\t", "#", "#define M(x) ", "#if 0", "#if A"),
        *("#else", "#endif", "// note", "/* a\nb */", "/*", '"text\\n"', 'R"(raw\n")"', "'c'"),
        *("don't", '"open', "1'000.5e-3f", "__device__ int x;", "name", "::", "->", "##", ","),
        *("__CUDA_ARCH__", 'asm("mov.u32 %0, %%laneid;\n" : "=r"(x));', "é", "\udcff", ";"),
        *("x.is_cuda()", "at::kCUDA", "TORCH_LIBRARY_IMPL(a, CPU, m) {", '#include "a.h"'),
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)
LINED = st.lists(PIECES, max_size=30).map("\n".join)


@given(st.one_of(TEXTS, st.text()))
def test_tokens_and_gaps_are_the_whole_text(text: str) -> None:
    assert "".join(match[0] for match in TOKEN.finditer(text)) == text


@given(st.one_of(TEXTS, LINED))
def test_every_text_is_rewritten_and_keeps_its_lines(text: str) -> None:
    assert rewritten(text, torch=True).count("\n") == text.count("\n")


@given(TEXTS, LINED)
def test_a_word_no_rule_knows_keeps_its_line(before: str, after: str) -> None:
    text = f"{before}\nuntouched {after}\nuntouched_too"
    new = rewritten(text, torch=True)
    for word in ("untouched ", "untouched_too"):
        assert _line(new, word) == _line(text, word)


def _line(text: str, word: str) -> int:
    return text[: text.index(word)].count("\n")


@pytest.mark.parametrize(
    "text",
    [
        '"k<<<1, 2>>>(x)"',
        '"a \\" k<<<1, 2>>>(x)"',
        "// k<<<1, 2>>>(x)",
        "// goes on \\\nk<<<1, 2>>>(x)",
        "/* k<<<1, 2>>>(x)\n k<<<1, 2>>>(x) */",
        'R"(k<<<1, 2>>>(x))"',
        'R"x(a)" k<<<1, 2>>>(x))x"',
        'u8R"(\n#define __shared__\n)"',
        "#if 0\nk<<<1, 2>>>(x)\n#endif",
        "#if 0\n#if 1\n#else\nk<<<1, 2>>>(x)\n#endif\n__shared__ int x;\n#endif",
        "#error it's k<<<1, \"2>>>(x)",
        "#pragma unroll",
        "int a = b << 3, c = d >> 2;",
    ],
)
def test_text_that_is_no_code_stays(text: str) -> None:
    assert rewritten(text, torch=True) == text


def test_the_other_branch_of_if_0_is_code() -> None:
    assert "configure" in rewritten("#if 0\n{(\n#else\nk<<<1, 2>>>(x);\n#endif")


def test_brackets_are_matched_across_branches() -> None:
    code = read("f(\n#ifdef A\n1) {\n#else\n2) {\n#endif\nx; }\n").streams[0]
    brace, close = code.words.index("{"), code.words.index("}")
    assert code.partner[close] == brace
    assert code.partner[1] == max(at for at, word in enumerate(code.words) if word == ")")


def test_a_macros_body_is_read_apart_from_the_code() -> None:
    code, macro = read("a #\n#define M(x, ...) b { \\\n c(\nd").streams
    assert code.words == ["a", "#", "d"]
    assert macro.words == ["b", "{", "c", "("]
    assert macro.macro
    assert macro.macro.parameters == ("x", "__VA_ARGS__")


def test_lines_end_as_they_did() -> None:
    assert rewritten("a;\r\nk<<<1, 2>>>(\r\n  x);\r\n").count("\r\n") == 3
