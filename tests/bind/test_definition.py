"""What `pb.operator` refuses, and what a redefinition does."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind import check, environment, runtime
from pullback.bind.register import RedefinitionNotice
from pullback.define.parse import parse
from pullback.kernels import compile, glue, toolchain

pytestmark = pytest.mark.compiler
fresh = itertools.count()
HAVE = {seen.language for seen in toolchain.survey() if isinstance(seen, toolchain.Compiler)}
ADD = pb.source(
    """template <class T> void add(T* y, const T* x, long n) {
        for (long i = 0; i < n; ++i) y[i] = x[i] + 1;
    }""",
    call="add(y, x, numel(x))",
)


def same(x: Tensor) -> Tensor:
    return x


def pair(grad: Tensor) -> tuple[Tensor, Tensor]:
    return grad, grad


def named(line: str) -> str:
    return f"definition::f{next(fresh)}{line}"


def with_a_taken_name() -> None:
    name = named("").removeprefix("definition::")
    pb.operator(f"definition::_{name}_backward(x[n]) -> y[n]", python=same)
    pb.operator(f"definition::{name}(x[n]) -> y[n]", python=same, backward=lambda grad: grad)


REFUSED: dict[str, Callable[[], object]] = {
    "PB207": lambda: pb.operator(named("(new[n]) -> y[n]"), cpu=ADD),
    "PB323": lambda: pb.operator(
        named("(x[n]) -> y[n]"), python=same, backward=returning_what_nobody_asks_for()
    ),
    "PB351": lambda: pb.operator(named("(x[n]) -> y[n]")),
    "PB352": lambda: pb.operator(named("(x[n]) -> y[n]"), cpu=ADD, python=same),
    "PB352 of a formula": lambda: pb.operator(named("(x[n]) -> y[n] = x**2"), python=same),
    "PB353": lambda: pb.operator(named("(xs[n]*) -> y[n]"), python=same),
    "PB354": lambda: pb.operator("aten::relu(x[n]) -> y[n]", python=same),
    "PB354 of a derivative's function": with_a_taken_name,
    "PB355": lambda: pb.operator(named("(x[n]) -> y[n]"), python=same, backward=3),  # pyright: ignore[reportArgumentType]
    "PB356": lambda: pb.operator(
        named("(" + ", ".join(f"x{i}[n]" for i in range(64)) + ") -> y[n]"), python=same
    ),
    "PB103": lambda: pb.operator(
        named("(grad_y[n]) -> y[n]"), python=same, backward={"grad_y": "grad"}
    ),
    "PB105": lambda: pb.source("f.cpp", call="f(y)", dtypes=["flaot32"]),
}


def returning_what_nobody_asks_for() -> str:
    name = f"definition::pull{next(fresh)}"
    pb.operator(f"{name}(grad[n]) -> grad_z[n]", python=same)
    return name


@pytest.mark.parametrize("code", REFUSED)
def test_a_definition_that_cannot_be_is_refused(code: str) -> None:
    with pytest.raises(pb.PullbackError) as caught:
        REFUSED[code]()
    assert caught.value.finding.code == code.split(maxsplit=1)[0]


def test_a_second_derivative_wired_by_names_that_clash_is_refused() -> None:
    # `grad` is an input here, so it cannot be what arrives as well.
    pull = pb.operator(
        named("(grad[n], x[n]) -> grad_x[n]"),
        python=lambda grad, x: grad * x,
        backward={
            "grad": "aten::mul.Tensor(grad_grad_x, x)",
            "x": "aten::mul.Tensor(grad_grad_x, grad)",
        },
    )
    inputs = tuple(torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(pull, inputs)


def test_bfloat16_is_refused_where_the_compiler_lacks_it() -> None:
    compiler = toolchain.find("c++")
    if "g++" not in compiler.path.name or int(compiler.version.split(".")[0]) >= 13:
        pytest.skip("this compiler has bfloat16")
    with pytest.raises(pb.PullbackError, match="PB208"):
        pb.operator(named("(x[n]: bfloat16) -> y[n]: bfloat16"), cpu=ADD)


def test_missing_python_headers_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare = replace(environment.current_environment(), headers=tmp_path)
    monkeypatch.setattr(environment, "current_environment", lambda: bare)
    with pytest.raises(pb.PullbackError, match="PB311"):
        runtime.plan()


def test_none_for_a_tensor_that_is_needed_says_how_to_make_it_optional() -> None:
    # Past the schema, which takes no None: an undefined gradient of another operator.
    add = pb.operator(named("(x[n]) -> y[n]"), cpu=ADD)
    with pytest.raises(pb.PullbackError, match=r"mark it optional in the line: x\[n\]\?"):
        add(None)
    with pytest.raises(pb.PullbackError, match="PB118"):
        check.solve(add.line, {"x": None})


def test_the_authors_flags_count_more_than_ours() -> None:
    written = """#ifdef __OPTIMIZE__
    constexpr double optimized = 1;
    #else
    constexpr double optimized = 0;
    #endif
    void tell(double* y, const double* x, long n) {
        for (long i = 0; i < n; ++i) y[i] = optimized;
    }"""
    for flags, found in (((), 1), (("-O0",), 0)):
        source = pb.source(written, call="tell(y, x, numel(x))", flags=flags)
        told = pb.operator(named("(x[n]) -> y[n]"), cpu=source)
        assert told(torch.ones(1, dtype=torch.float64)).item() == found


def test_a_kernel_of_32_bit_sizes_is_told_apart_from_one_of_64() -> None:
    line = parse("definition::sizes(x[n]) -> y[n]")
    taken = {
        "int n": False,
        "unsigned n": False,
        "long n": True,
        "int64_t n": True,
        "size_t n": True,
    }
    for parameter, takes in taken.items():
        text = f"void f(float* y, const float* x, {parameter}) {{}}"
        unit = glue.entry_point(line, pb.source(text, call="f(y, x, 2 * numel(x) + 1)"), "cpu")
        body = "pullback_body::pullback_takes<float, pullback::Wide>()"
        unit += f"static_assert({body} == {str(takes).lower()});"
        assert compiles(unit), parameter


def compiles(unit: str) -> bool:
    command = [*toolchain.find("c++").command, "-std=c++20", "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(command, input=unit, text=True, check=False).returncode == 0


def test_a_tensor_too_large_for_the_kernels_int_is_refused() -> None:
    add = pb.operator(
        named("(x[n]: uint8) -> y[1]: uint8"),
        cpu=pb.source(
            "#include <stdint.h>\nvoid f(uint8_t* y, const uint8_t* x, int n) { *y = x[n - 1]; }",
            call="f(y, x, numel(x))",
            strided=True,
        ),
    )
    assert add(torch.ones(7, dtype=torch.uint8)).item() == 1
    with pytest.raises(pb.PullbackError, match="PB303"):
        add(torch.ones(1, dtype=torch.uint8).expand(2**31))


def test_a_redefinition_replaces_with_a_notice_at_the_users_line() -> None:
    name = named("")
    first = pb.operator(f"{name}(x[n]) -> y[n]", python=lambda x: x + 1)
    with pytest.warns(RedefinitionNotice, match=name) as caught:
        second = pb.operator(f"{name}(x[n], k: float = 2.0) -> y[n]", python=lambda x, k: x * k)
    assert caught[0].filename == __file__
    x = torch.ones(2)
    assert second(x, 3.0).tolist() == [3, 3]
    # The name is what counts: the earlier object calls what the name means now.
    assert first.overload is second.overload
    assert getattr(torch.ops.definition, name.split("::")[1])(x).tolist() == [2, 2]


def test_export_finds_the_redefined_operator() -> None:
    class Module(torch.nn.Module):
        def __init__(self, operator: pb.Operator) -> None:
            super().__init__()
            self.operator = operator

        def forward(self, x: Tensor) -> Tensor:
            return self.operator(x)

    name = named("")
    for factor in (2, 3):
        with pytest.warns(RedefinitionNotice) if factor == 3 else nullcontext():
            operator = pb.operator(
                f"{name}(x[n]) -> y[{factor} * n]", python=lambda x, factor=factor: x.repeat(factor)
            )
        program = torch.export.export(Module(operator), (torch.ones(2),))
        targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
        assert targets == [operator.overload]
        assert program.module()(torch.ones(2)).shape == (2 * factor,)


def test_reload_runs_the_changed_kernel_and_keeps_the_old_one_if_it_is_broken(
    tmp_path: Path,
) -> None:
    file = tmp_path / "scale.cpp"
    text = """void scale(float* y, const float* x, long n) {{
        for (long i = 0; i < n; ++i) y[i] = {} * x[i];
    }}"""
    file.write_text(text.format(2))
    scale = pb.operator(named("(x[n]) -> y[n]"), cpu=pb.source(file, call="scale(y, x, n)"))
    x = torch.ones(3)
    assert scale(x).tolist() == [2, 2, 2]
    file.write_text(text.format(3))
    assert scale(x).tolist() == [2, 2, 2]
    scale.reload()
    assert scale(x).tolist() == [3, 3, 3]
    file.write_text(text.format("oops"))
    with pytest.raises(pb.PullbackError, match="PB202"):
        scale.reload()
    assert scale(x).tolist() == [3, 3, 3]


WRONG_OUTPUTS: dict[str, Callable[[Tensor], object]] = {
    "2 values, the line says 1": lambda x: (x, x),
    "of shape \\(3, 1\\), the line says \\(3\\)": lambda x: x[:, None],
    "as float32 on cpu, the line says float64": lambda x: x.float(),
    "a list for 'y'": lambda x: ([1.0],),
    "on meta, the line says float64 on cpu": lambda x: x.to("meta"),
}


@pytest.mark.parametrize("words", WRONG_OUTPUTS)
def test_a_python_kernel_that_returns_something_else_than_the_line_says_is_refused(
    words: str,
) -> None:
    wrong = pb.operator(named("(x[n]) -> y[n]"), python=WRONG_OUTPUTS[words])
    with pytest.raises(pb.PullbackError, match=words) as caught:
        wrong(torch.ones(3, dtype=torch.float64))
    assert caught.value.finding.code == "PB331"


def test_a_python_kernel_that_returns_its_input_gets_a_copy() -> None:
    x = torch.ones(3)
    y = pb.operator(named("(x[n]) -> y[n]"), python=same)(x)
    y.add_(1)
    assert x.tolist() == [1, 1, 1]


DOUBLE = "{ for (long i = 0; i < n; ++i) y[i] = x[i] + x[i]; }"
# A line, a kernel that includes nothing, and the dtypes that are named.
WITHOUT_HEADERS = {
    "of the line": ("(x[n]: complex64) -> y[n]: complex64", None),
    "of dtypes=": ("(x[n]) -> y[n]", ["float64", "complex64"]),
}


@pytest.mark.parametrize("where", WITHOUT_HEADERS)
def test_complex_numbers_need_no_header(where: str) -> None:
    line, dtypes = WITHOUT_HEADERS[where]
    text = f"template <class C> void twice(C* y, const C* x, long n) {DOUBLE}"
    twice = pb.operator(named(line), cpu=pb.source(text, call="twice(y, x, n)", dtypes=dtypes))
    x = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(twice(x), 2 * x)


def test_an_author_who_forgets_a_header_is_told_where() -> None:
    text = f"void twice(std::complex<double>* y, const std::complex<double>* x, long n) {DOUBLE}"
    with pytest.raises(pb.PullbackError, match="#include <complex>") as caught:
        pb.operator(named("(x[n]) -> y[n]"), cpu=pb.source(text, call="twice(y, x, n)"))
    assert dict(caught.value.finding.evidence)["at"].startswith("source of definition::")


@pytest.mark.nvcc
@pytest.mark.thorough
@pytest.mark.skipif("cuda" not in HAVE, reason="no CUDA toolkit here")
def test_types_of_cuda_that_are_named_need_no_header() -> None:
    text = f"template <class T> void twice(T* y, const T* x, long n) {DOUBLE}"
    dtypes = ["float16", "bfloat16", "complex64"]
    line = parse(named("(x[n]) -> y[n]"))
    source = pb.source(text, call="twice(y, x, n)", dtypes=dtypes)
    compile.compile(glue.plan_of(line, source, "cuda", "sm_80"))
