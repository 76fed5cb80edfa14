"""The line: parse, print, refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import lines

from pullback.define.dimension import Arithmetic, Batch, Name, Number
from pullback.define.line import Line, Scalar, Tensor
from pullback.define.parse import parse
from pullback.diagnostic import Finding, PullbackError

PRINTED = (
    "demo::linear(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
    "demo::add2(a[...], b[...]) -> c[...]",
    "demo::correlate(x[h, w], k[p, q]) -> y[h - p + 1, w - q + 1]",
    "demo::legendre3(x[...]) -> y[...] = (5*x**3 - 3*x) / 2",
    "demo::gauss(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2)))",
    "demo::norm(x[..., n], eps: float = 1e-05) -> (y[..., n], rstd[...])",
    "demo::pick(x[n, ..., 3], index[m]: int64, mask[]: bool?, k: int) -> y[m * (k - 1) // -2, ...]",
    "demo::cut(x[n], mode: str = 'it\\'s \"x\"\\n', flag: bool = True) -> y[]: int8",
    "demo::fill(n: int, k: int = -3) -> y[n, n % 7]",
    "demo::cat(layers[n, d]*, index[*]: int64, dims: int[] = [0, -1]) -> (y[*], z[n]: bool)",
    "demo::scale_(x[..., n], k: float?, w: float[]?, s: float[] = [1.0]) -> x[..., n]",
)


def finding_of(text: str) -> Finding:
    with pytest.raises(PullbackError) as caught:
        parse(text)
    return caught.value.finding


@given(lines())
def test_a_printed_line_parses_to_the_same_line(line: Line) -> None:
    assert parse(str(line)) == line


@pytest.mark.parametrize("text", PRINTED)
def test_an_example_prints_as_it_was_written(text: str) -> None:
    assert str(parse(text)) == text


def test_spaces_and_line_breaks_do_not_matter() -> None:
    text = "\n demo :: f(x[ n,...]:int64 ?,\n\t b:float=1) ->( y[n-(-1)] , )"
    line = parse(text.replace(" , )", ")"))
    assert str(line) == "demo::f(x[n, ...]: int64?, b: float = 1.0) -> y[n - -1]"


def test_a_line_holds_what_it_says() -> None:
    line = parse("demo::f(x[n, ..., 2], k: int, w[m]: int64?) -> y[n + k, ...] = a = b ")
    assert line == Line(
        namespace="demo",
        name="f",
        parameters=(
            Tensor(name="x", dims=(Name(name="n"), Batch(), Number(value=2))),
            Scalar(name="k", type="int"),
            Tensor(name="w", dims=(Name(name="m"),), dtype="int64", optional=True),
        ),
        outputs=(
            Tensor(
                name="y",
                dims=(
                    Arithmetic(operator="+", left=Name(name="n"), right=Name(name="k")),
                    Batch(),
                ),
            ),
        ),
        formula="a = b",
    )
    assert (line.qualname, line.dimensions) == ("demo::f", ("n", "m"))
    assert [tensor.name for tensor in line.tensors] == ["x", "w"]
    assert [scalar.name for scalar in line.scalars] == ["k"]


def test_dimensions_stand_before_or_after_the_batch() -> None:
    x, y = parse("demo::f(x[n, ..., 2], y[n, m]) -> z[]").tensors
    assert (x.has_batch, x.before, x.after) == (True, (Name(name="n"),), (Number(value=2),))
    assert (y.has_batch, y.before, y.after) == (False, (Name(name="n"), Name(name="m")), ())


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("a - (b + c)", "a - (b + c)"),
        ("(a - b) + c", "a - b + c"),
        ("a * (b * c)", "a * (b * c)"),
        ("(a + b) // 2", "(a + b) // 2"),
        ("((a)) % -2", "a % -2"),
        ("-a * b", "(0 - a) * b"),
        ("a - -(-3)", "a - 3"),
        ("--3", "3"),
    ],
)
def test_arithmetic_prints_with_the_fewest_parentheses(written: str, printed: str) -> None:
    line = parse(f"demo::f(x[a, b, c]) -> y[{written}]")
    assert str(line.outputs[0].dims[0]) == printed


def test_an_index_of_an_output_may_have_a_limit() -> None:
    text = "a::b(x[n], m: int) -> (y[i < 2*m + size(n), n], z[i < 2*m + size(n)]) = y = x; z = i"
    line = parse(text)
    assert line.limits == (("i", "2*m + size(n)"),)
    assert [output.labels for output in line.outputs] == [("i", "n"), ("i",)]
    assert str(line) == text
    assert parse("a::b() -> y[ i<min( 2,(3) ) ] =i").limits == (("i", "min( 2,(3) )"),)
    for wrong in (
        "y[i < m]",
        "y[i < ] = 1.0",
        "y[i < 2; 3] = 1.0",
        "y[i < (2] = 1.0",
        "y[3 < i] = 1",
    ):
        with pytest.raises(PullbackError, match="PB101"):
            parse(f"a::b(x[n], m: int) -> {wrong}")


def test_a_formula_may_name_new_dimensions() -> None:
    assert parse("demo::f(x[n]) -> y[m] = x[m]").dimensions == ("n",)


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("demo¦:f(x[n]) -> y[n]", "expected '::', found ':'"),
        ("¦::f(x[n]) -> y[n]", "expected a namespace, found '::'"),
        ("demo::¦(x[n]) -> y[n]", "expected the name of the operator, found '('"),
        ("demo::f¦[n]", "expected '(', found '['"),
        ("demo::f(x[n],¦) -> y[n]", "expected a parameter, found ')'"),
        ("demo::f(x¦) -> y[n]", "expected '[' or ':', found ')'"),
        ("demo::f(x[n¦) -> y[n]", "expected ',' or ']', found ')'"),
        ("demo::f(x[n ¦+ 1]) -> y[n]", "expected ',' or ']', found '+'"),
        ("demo::f(x[n]) -> y[min(n)¦]", "expected a second size for 'min', found ']'"),
        ("demo::f(x[n]) -> y[max(¦)]", "expected a name or a number, found ')'"),
        ("demo::f(x[¦-1]) -> y[n]", "expected a name, a number or '...', found '-'"),
        ("demo::f(x[¦(n)]) -> y[n]", "expected a name, a number or '...', found '('"),
        ("demo::f(x[¦2.5]) -> y[n]", "expected a name, a number or '...', found '2.5'"),
        ("demo::f(x[¦ñ]) -> y[n]", "expected a name, a number or '...', found 'ñ'"),
        ("demo::f(x[..., ¦...]) -> y[n]", "expected a name or a number, found '...'"),
        (f"demo::f(x[¦{2**63}]) -> y[]", f"expected a number below 2**63, found '{2**63}'"),
        (
            f"demo::f(x[¦{'9' * 5000}]) -> y[]",
            f"expected a number below 2**63, found '{'9' * 5000}'",
        ),
        ("demo::f(x[n]?¦: int8) -> y[n]", "expected ',' or ')', found ':'"),
        ("demo::f(x[n]: ¦3) -> y[n]", "expected a dtype, found '3'"),
        (
            "demo::f(k: ¦int64) -> y[k]",
            "expected int, float, bool, str, int[] or float[], found 'int64'",
        ),
        ("demo::f(k: int = ¦None) -> y[k]", "expected a literal of type int, found 'None'"),
        ("demo::f(e: float = -¦inf) -> y[1]", "expected a number, found 'inf'"),
        (
            "demo::f(s: str = ¦'a) -> y[1]",
            "expected a literal of type str, found a quote that opens no string",
        ),
        (
            r"demo::f(s: str = ¦'\q') -> y[1]",
            "expected a literal of type str, found a quote that opens no string",
        ),
        ("demo::f(x[n])¦", "expected '->', found the end"),
        ("demo::f(x[n]) -> (¦)", "expected an output, found ')'"),
        ("demo::f(x[n]) -> y¦", "expected '[', found the end"),
        ("demo::f(x[n]) -> y[(n¦]", "expected ')', found ']'"),
        ("demo::f(x[n]) -> y[n +¦]", "expected a name or a number, found ']'"),
        ("demo::f(x[n]) -> y[n]¦, z[n]", "expected '=' or the end, found ','"),
        ("demo::f(x[n]) -> y[n] =  ¦", "expected a formula, found the end"),
    ],
)
def test_a_syntax_error_points_at_its_column(marked: str, message: str) -> None:
    text = marked.replace("¦", "")
    finding = finding_of(text)
    assert (finding.code, finding.message) == ("PB101", message)
    assert finding.evidence == (("at", f"{text}\n{' ' * marked.index('¦')}^"),)


def test_a_syntax_error_in_a_later_row_shows_that_row() -> None:
    finding = finding_of("demo::f(x[n],\n\ty[n + 1]) -> z[n]")
    assert dict(finding.evidence)["at"] == " y[n + 1]) -> z[n]\n     ^"
    assert finding.help == "name this dimension; arithmetic belongs in outputs"


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("demo::f(k: integer) -> y[k]", "did you mean 'int'?"),
        ("demo::f(k: Tensor) -> y[2]", "a tensor has its dimensions in brackets: k[n, d], or k[]"),
        (
            "demo::f(x[n], k) -> y[n]",
            "a number is k: int or k: float, a tensor without dimensions k[]",
        ),
        ("demo::f(x[None, n]) -> y[n]", "a dimension of one element is called 1"),
    ],
)
def test_a_parameter_that_is_written_otherwise_has_a_hint(text: str, help: str) -> None:
    assert finding_of(text).help == help


DEEP = ["(" * 3000 + "n" + ")" * 3000, "-" * 3000 + "n", "n" + " + n" * 3000, "n" + " * n" * 3000]


@pytest.mark.parametrize("dimension", DEEP, ids=["parentheses", "signs", "sum", "product"])
def test_a_dimension_that_python_could_not_nest_is_a_syntax_error(dimension: str) -> None:
    finding = finding_of(f"demo::f(x[n]) -> y[{dimension}]")
    assert finding.code == "PB101"
    assert finding.help == "a dimension has at most 200 parts"
    parse(f"demo::f(x[n]) -> y[{'(' * 90}n{')' * 90}, {'n + ' * 90}1]")


def test_a_string_that_a_kernel_could_not_see_whole_is_a_syntax_error() -> None:
    assert finding_of(r"demo::f(x[n], m: str = 'a\x00b') -> y[n]").code == "PB101"


@given(st.text())
def test_any_text_parses_or_is_refused_with_a_column(text: str) -> None:
    try:
        parse(text)
    except PullbackError as error:
        assert error.finding.code == "PB101"  # noqa: PT017  (a text that parses is fine)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("demo::f(x[n], x[n]) -> y[n]", "PB102", "'x' appears twice"),
        ("demo::f(x[n], y[m]) -> x[m]", "PB102", "'x' appears twice"),
        ("demo::f(x[n]) -> x[n]: int64", "PB102", "'x' appears twice"),
        ("demo::f(x[n]) -> y[n]*", "PB108", "the output 'y' is a list"),
        ("demo::f(x[n], k: int? = 2) -> y[n]", "PB109", "'k' has '?', so its default is None: 2"),
        (
            "demo::f(x[n], k: int?) -> y[k]",
            "PB103",
            "'k' is both a dimension and a scalar of type int?",
        ),
        (
            "demo::f(k: int[] = [1, True]) -> y[1]",
            "PB109",
            "the default of 'k' is not of type int[]: True",
        ),
        (
            "demo::f(x[n], n: int) -> y[n]",
            "PB103",
            "'n' is both a dimension and a scalar of type int",
        ),
        ("demo::f(x[x]) -> y[1]", "PB103", "'x' is both a dimension and a tensor"),
        (
            "demo::f(x[n], s: float) -> y[s]",
            "PB103",
            "'s' is both a dimension and a scalar of type float",
        ),
        ("demo::f(x[n]) -> y[y] = x", "PB103", "'y' is both a dimension and a tensor"),
        ("demo::f(x[T]) -> y[T]", "PB104", "'T' is reserved"),
        ("demo::f(size[n]) -> y[n]", "PB104", "'size' is reserved"),
        ("demo::f(x[n]) -> output_mask[n]", "PB104", "'output_mask' is reserved"),
        ("demo::lambda(x[n]) -> y[n]", "PB104", "'lambda' is a keyword of Python"),
        ("demo::f(in[n]) -> y[n]", "PB104", "'in' is a keyword of Python"),
        ("demo::f(x[n]: float46) -> y[n]", "PB105", "'x' has the unknown dtype 'float46'"),
        ("demo::f(x[rows]) -> y[row]", "PB106", "'y' has the dimension 'row', but no input has it"),
        (
            "demo::f(x[n]) -> y[m - n] = x",
            "PB106",
            "'y' has the dimension 'm', but no input has it",
        ),
        ("demo::f(x[n]) -> y[...]", "PB106", "'y' has '...', but no input has it"),
        (
            "demo::f(a: int = 1, x[n]) -> y[n]",
            "PB107",
            "'x' has no default but comes after 'a', which has one",
        ),
        (
            "demo::f(x[n], a: int = 1, o[n]?, b: int) -> y[n]",
            "PB107",
            "'b' has no default but comes after 'a', which has one",
        ),
        ("demo::f(x[n]) -> y[n]?", "PB108", "the output 'y' is optional"),
        ("demo::f(k: int = 1.5) -> y[1]", "PB109", "the default of 'k' is not of type int: 1.5"),
        ("demo::f(k: bool = 1) -> y[1]", "PB109", "the default of 'k' is not of type bool: 1"),
        (
            "demo::f(k: float = True) -> y[1]",
            "PB109",
            "the default of 'k' is not of type float: True",
        ),
        ("demo::f(k: str = -2) -> y[1]", "PB109", "the default of 'k' is not of type str: -2"),
        ("demo::f(k: float = 1e999) -> y[1]", "PB109", "the default of 'k' is not finite: inf"),
        ("demo::f(x[n]) -> y[-1]", "PB101", "the size -1 of 'y' is below zero"),
    ],
)
def test_a_line_that_means_nothing_is_refused(text: str, code: str, message: str) -> None:
    finding = finding_of(text)
    assert (finding.code, finding.message) == (code, message)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("demo::f(x[n]: float46) -> y[n]", "did you mean 'float64'?"),
        ("demo::f(x[rows]) -> y[row]", "did you mean 'rows'?"),
        ("demo::f(a: int = 1, x[n]) -> y[n]", "move 'x' before 'a'"),
    ],
)
def test_a_refusal_says_what_may_help(text: str, hint: str) -> None:
    assert finding_of(text).help == hint


def output(dim: Name | Number | Arithmetic) -> Tensor:
    return Tensor(name="y", dims=(dim,))


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: Line(namespace="d", name="f", parameters=(), outputs=()), "PB108"),
        (
            lambda: Line(
                namespace="d", name="a b", parameters=(), outputs=(output(Number(value=1)),)
            ),
            "PB101",
        ),
        (lambda: Tensor(name="x", dims=(Batch(), Batch())), "PB101"),
        (lambda: Tensor(name="x", dims=(), dtype="float"), "PB105"),
        (lambda: Number(value=2**63), "PB101"),
        (lambda: Scalar(name="k", type="int", default=2**63), "PB109"),
        (lambda: Scalar(name="k", type="float", default=1), "PB109"),
        (lambda: Scalar(name="k", type="float", default=float("nan")), "PB109"),
    ],
)
def test_data_built_by_hand_is_checked_too(build: Callable[[], object], code: str) -> None:
    with pytest.raises(PullbackError) as caught:
        build()
    assert caught.value.finding.code == code


@pytest.mark.parametrize("formula", ["", " x", "x\n"])
def test_a_formula_built_by_hand_is_stripped(formula: str) -> None:
    with pytest.raises(PullbackError, match="empty or has spaces around it"):
        Line(
            namespace="d",
            name="f",
            parameters=(),
            outputs=(output(Number(value=1)),),
            formula=formula,
        )


def test_an_input_built_by_hand_has_no_arithmetic() -> None:
    dim = Arithmetic(operator="+", left=Name(name="n"), right=Number(value=1))
    x = Tensor(name="x", dims=(Name(name="n"), dim))
    with pytest.raises(PullbackError, match=r"an input's dimension is .*, not 'n \+ 1'"):
        Line(namespace="d", name="f", parameters=(x,), outputs=(output(dim),))
