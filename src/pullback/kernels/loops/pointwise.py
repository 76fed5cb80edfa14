"""A formula -> the text of its kernel: one body for CPU and CUDA, in the words of csrc/formula."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from pullback.define.line import Tensor
from pullback.define.math import absent, build, derived
from pullback.define.math.formula import Formula
from pullback.define.math.functions import DISTANCE, GELU_SLOPE, TABLE
from pullback.define.math.node import NUMBER, READ, SCALAR, Node, in_order, may_divide_by_zero

CSRC = Path(__file__).parents[2] / "csrc"
HEADERS = (CSRC / "kernel_abi.h", CSRC / "formula/formula.h")
# The type of a stored element, by its dtype in the line.
STORED = {
    **{"float64": "double", "float32": "float", "float16": "Half", "bfloat16": "Bfloat16"},
    **{"int64": "int64_t", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t"},
    **{"uint8": "uint8_t", "bool": "bool"},
}
# Multiplications an operand, up to which memory is the limit: measured for csrc/formula/stream.h.
CHEAP = 7
# Multiplications from which a processor does not reach the next vector while it waits.
LONG = 20
# What is computed as a whole where its outermost function is this one: a gelu's derivative, and the
# gradient of a divisor beside that of what is divided.
FUSED = {"add": "gelu_slope", "mul": "times_quotient"}
VALUES = {"real": "Real", "int": "Whole", "bool": "Truth"}
SCALARS = {"real": "double", "int": "int64_t", "bool": "bool"}
FIELDS = {"real": "real", "int": "integer", "bool": "integer != 0"}


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One kernel of a formula.

    Attributes:
        formula: whose it is.
        dtype: the shared dtype.
        wanted: a bit for each output that is computed.
        present: a bit for each input tensor that is not None.
    """

    formula: Formula
    dtype: str
    wanted: int
    present: int

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """What is computed, in the order of the wanted outputs."""
        tensors = self.formula.line.tensors
        missing = {t.name for k, t in enumerate(tensors) if not self.present >> k & 1}
        nodes = [n for k, n in enumerate(self.formula.elements) if self.wanted >> k & 1]
        return absent.drop_absent(nodes, missing)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The wanted outputs."""
        outputs = self.formula.line.outputs
        return tuple(o for k, o in enumerate(outputs) if self.wanted >> k & 1)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that are read."""
        read = {node.name for node in in_order(self.nodes) if node.op == READ}
        return tuple(t for t in self.formula.line.tensors if t.name in read)

    @property
    def used(self) -> int:
        """A bit for each input tensor that is read."""
        return sum(1 << k for k, t in enumerate(self.formula.line.tensors) if t in self.inputs)

    @property
    def compute(self) -> str:
        """The type that real numbers are computed in: double if one of them is, else float."""
        dtypes = {t.dtype or self.dtype for t in (*self.inputs, *self.outputs)}
        floating = [dtype for dtype in dtypes if "float" in dtype] or [self.dtype]
        return "double" if "float64" in floating else "float"

    @property
    def cheap(self) -> bool:
        """Whether moving the operands takes longer than the arithmetic on them."""
        return self.work <= CHEAP * (len(self.inputs) + len(self.outputs))

    @cached_property
    def work(self) -> int:
        """About how many multiplications an element costs."""
        return sum(map(derived.estimate_work, in_order(self.nodes)))

    @property
    def is_long(self) -> bool:
        """Whether two vectors are computed in turns, so that one need not wait for the other."""
        return self.work >= LONG

    @property
    def is_gradient(self) -> bool:
        """Whether it is nobody's own formula, where each product is computed as it is written."""
        return all(output.name.startswith("grad_") for output in self.outputs)

    def stored(self, tensors: Sequence[Tensor]) -> str:
        """Return the types of stored elements."""
        return ", ".join(STORED[tensor.dtype or self.dtype] for tensor in tensors)


def generate_cpu(loop: Loop) -> str:
    """Return the translation unit of a loop for TensorIterator."""
    return generate_together({"pullback_loop": loop})


def generate_together(loops: Mapping[str, Loop]) -> str:
    """Return one translation unit of several loops, by the names of their entry points.

    They compute in one type, with one accuracy. Reading the headers costs as much as five loops.
    """
    first, *others = loops.values()
    assert all(loop.compute == first.compute for loop in others)
    assert all(loop.formula.accuracy == first.formula.accuracy for loop in others)
    functions = "".join(write_entry_point(name, loop) for name, loop in loops.items())
    return f"""{write_beginning(macros_of(first), HEADERS)}
using namespace pullback::formula;
{functions}"""


def macros_of(loop: Loop) -> dict[str, object]:
    """Return what the headers of a loop have to know first."""
    return {"PULLBACK_COMPUTE": loop.compute, "PULLBACK_ULP": loop.formula.accuracy}


def write_beginning(macros: Mapping[str, object], headers: Iterable[Path]) -> str:
    """Return how a translation unit begins: with macros, and headers that ask for them."""
    defined = [f"#define {name} {value}" for name, value in macros.items()]
    return "\n".join([*defined, *(f'#include "{header}"' for header in headers)])


def name_loops(loops: Iterable[Loop], prefix: str) -> list[tuple[str, Loop]]:
    """Return loops with names for their entry points: those of one text have one.

    What is left out may change nothing in the text.
    """
    names: dict[str, str] = {}
    return [(names.setdefault(generate_cpu(loop), f"{prefix}{len(names)}"), loop) for loop in loops]


def write_entry_point(name: str, loop: Loop) -> str:
    """Return the C function of a loop, with its body in a namespace of its own."""
    return f"""namespace {{
namespace of_{name} {{
{write_body(loop, inline="[[gnu::always_inline]]")}}}
}}
extern "C" __attribute__((visibility("default")))
void {name}(char** data, const int64_t* strides, int64_t n,
            const pullback::Scalar* scalars) {{
  run(of_{name}::Body(scalars), {stored_types(loop)}{{}}, data, strides, n);
}}
"""


def stored_types(loop: Loop) -> str:
    """Return the types of all operands in memory."""
    return f"Stored<Outputs<{loop.stored(loop.outputs)}>, Inputs<{loop.stored(loop.inputs)}>>"


def write_body(loop: Loop, *, inline: str, first: str = "") -> str:
    """Return `Body`: made of the scalars once, called for each element or vector of them.

    Args:
        loop: whose body it is.
        inline: what makes its call inline.
        first: a declaration for what is computed of the scalars.
    """
    # A GPU has other threads to go on with.
    marks = ("", "b") if loop.is_long and not first else ("",)
    copies = [_BodyWriter(loop, notes=not first, mark=mark) for mark in marks]
    writer = copies[0]
    members = "".join(f"  {type} {name};\n" for name, type in writer.members.items())
    made = "".join(f"    {name} = {expression};\n" for name, expression in writer.kept.items())
    opening = f"    {first}\n" if first else ""
    return (
        f"struct Body {{\n  static constexpr bool cheap = {str(loop.cheap).lower()};\n"
        f"  static constexpr int abreast = {len(copies)};\n{members}"
        f"  explicit Body(const pullback::Scalar* pullback_scalars) {{\n"
        f"    (void)pullback_scalars;\n{opening}{''.join(writer.once)}{made}  }}\n"
        f"{_write_operator(loop, copies[:1], inline)}"
        f"{_write_operator(loop, copies, inline) if len(copies) > 1 else ''}}};\n"
    )


def _write_operator(loop: Loop, copies: Sequence[_BodyWriter], inline: str) -> str:
    """Return what computes one element or vector, or two of them in turns."""
    rows = [row for abreast in zip(*(copy.rows for copy in copies), strict=True) for row in abreast]
    assignments = [
        f"    {output.name}_{copy.mark} = {copy.value(node)};\n"
        for copy in copies
        for output, node in zip(loop.outputs, loop.nodes, strict=True)
    ]
    inputs = [
        f"const {_register_type(tensor)} {tensor.name}_{copy.mark}"
        for copy in copies
        for tensor in loop.inputs
    ]
    outputs = [
        f"{_register_type(output)}& {output.name}_{copy.mark}"
        for copy in copies
        for output in loop.outputs
    ]
    return (
        f"  {inline} void operator()({', '.join(inputs + outputs)}) const {{\n"
        f"{''.join(rows)}{''.join(assignments)}  }}\n"
    )


def _register_type(tensor: Tensor) -> str:
    """Return the type of a tensor's elements in registers."""
    if tensor.dtype is None or "float" in tensor.dtype:
        return "Real"
    return "Truth" if tensor.dtype == "bool" else "Whole"


class _BodyWriter:
    """Writes a variable for each node; what depends on scalars alone once, in double.

    The names of variables end in a mark, where two vectors are computed in turns.
    """

    def __init__(self, loop: Loop, *, notes: bool, mark: str) -> None:
        self.loop = loop
        self.notes = notes
        self.mark = mark
        self.once: list[str] = []
        self.rows: list[str] = []
        self.members: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        self.names: dict[Node, str] = {}
        self.varying: set[Node] = set()
        self.present = set(in_order(loop.nodes))
        self.exponentials = Counter(chain(*map(_exponentials_of, self.present)))
        ordered = list(in_order(loop.nodes, self.operands))
        self.scalars = {s.name: place for place, s in enumerate(loop.formula.line.scalars)}
        for node in ordered:
            if node.op == READ or any(arg in self.varying for arg in self.operands(node)):
                self.varying.add(node)
            self.write(node)
        # What is the same for all elements becomes a member before the members are written.
        for node in loop.nodes:
            self.value(node)

    def write(self, node: Node) -> None:
        """Give a node its variable."""
        if node.op == NUMBER:
            self.names[node] = write_literal(node)
        elif node.op == READ:
            self.names[node] = f"{node.name}_{self.mark}"
        elif node in self.varying:
            self.names[node] = f"t{len(self.rows)}{self.mark}"
            operands = [self.value(arg) for arg in self.operands(node)]
            self.note(node, operands, self.rows)
            code = self.code(node, operands)
            self.rows.append(f"    const {VALUES[node.type]} {self.names[node]} = {code};\n")
        else:
            self.names[node] = f"s{len(self.once)}"
            operands = [self.names[arg] for arg in self.operands(node)]
            self.note(node, operands, self.once)
            code = (
                f"pullback_scalars[{self.scalars[node.name]}].{FIELDS[node.type]}"
                if node.op == SCALAR
                else self.code(node, operands)
            )
            self.once.append(f"    const {SCALARS[node.type]} {self.names[node]} = {code};\n")

    def operands(self, node: Node) -> tuple[Node, ...]:
        """Return what a node is computed of: its arguments, or those of the word in `FUSED`."""
        match node.op, node.args:
            case "add", (half, slope) if any(arg.op == "erfc" for arg in half.args):
                x = next(iter(slope.args), node)
                if x.type == "real" and build.evaluate(GELU_SLOPE, {"x": x}) is node:
                    return (x,)
            case "mul", (factor, Node(op="div", args=(above, below))) if self.loop.is_gradient:
                quotient = build.apply("div", factor, below)
                if quotient in self.present:
                    return (factor, above, below, quotient)
            case "sigmoid", (Node(op="neg", args=(x,)) as minus,):
                if self.exponentials[x] > 1 >= self.exponentials[minus]:
                    return (x,)
            case _:
                pass
        return node.args

    def note(self, node: Node, operands: Sequence[str], rows: list[str]) -> None:
        """Let a division of whole numbers by zero be noted, in the scalar behind the last one."""
        if self.notes and may_divide_by_zero(node):
            self.members["divided"] = "bool*"
            self.kept["divided"] = f"pullback_scalars[{len(self.scalars)}].divided"
            where = "divided" if rows is self.rows else self.kept["divided"]
            rows.append(f"    note_division({operands[1]}, {where});\n")

    def value(self, node: Node) -> str:
        """Return a node's value as a vector."""
        name = self.names[node]
        if node in self.varying:
            return name
        if node.op == NUMBER:
            return f"splat({name})"
        self.members.setdefault(f"{name}_all", VALUES[node.type])
        self.kept.setdefault(f"{name}_all", f"splat({name})")
        return f"{name}_all"

    def code(self, node: Node, operands: Sequence[str]) -> str:
        """Return a function's call."""
        if node.op == "sigmoid":
            return self.sigmoid(node, operands[0])
        if node.op == "expm1" and build.apply("exp", node.args[0]) in self.present:
            return f"expm1_beside_exp({operands[0]})"
        if self.operands(node) is not node.args:
            return f"{FUSED[node.op]}({', '.join(operands)})"
        order = self.order(node.args[0]) if node.op == "polygamma" else ""
        return write_call(node, operands, order)

    def sigmoid(self, node: Node, operand: str) -> str:
        """Return a sigmoid's call: there is a faster one where nothing shares its exponential."""
        if self.operands(node) is not node.args:
            return f"sigmoid_of_minus({operand})"
        alone = "" if self.exponentials[node.args[0]] > 1 else "_alone"
        return f"sigmoid{alone}({operand})"

    def order(self, node: Node) -> str:
        """Return the order of a polygamma function as a plain number."""
        name = self.names[node]
        if node.op == NUMBER:
            return name
        self.members.setdefault(f"{name}_one", "int64_t")
        self.kept.setdefault(f"{name}_one", name)
        return f"{name}_one"


def _exponentials_of(node: Node) -> Iterator[Node]:
    """Yield each x for which a function can share exp(-abs(x)) with others."""
    if node.op in ("sigmoid", "softplus", "log_sigmoid"):
        yield node.args[0]
    if node.op == "sigmoid" and node.args[0].op == "neg":
        yield node.args[0].args[0]
    if node.op == "logaddexp":
        yield build.evaluate(DISTANCE, dict(zip("xy", node.args, strict=True)))
    if _is_exp_of_minus(node) and node.args[0].args[0].op == "abs":
        yield node.args[0].args[0].args[0]


def _is_exp_of_minus(node: Node) -> bool:
    """Return whether a node is exp(-x) of an x that is not below zero."""
    if node.op != "exp" or node.args[0].op != "neg":
        return False
    (x,) = node.args[0].args
    return x.op in ("abs", "sqrt") or (x.op == "powi" and int(str(x.data)) % 2 == 0)


def write_call(node: Node, operands: Sequence[str], order: str = "") -> str:
    """Return a function's call, by its row of the table.

    Args:
        node: which function, of the table.
        operands: in C++.
        order: of a polygamma function, as a plain number: it is one for all elements.
    """
    if _is_exp_of_minus(node):
        return f"exp_of_minus(-{operands[0]})"
    function = TABLE[node.op]
    given = dict(zip(function.parameters, operands, strict=True))
    if node.op == "powi":
        given["n"] = str(node.data)
    if order:
        given["n"] = order
    return function.code.format(**given)


def write_literal(node: Node) -> str:
    """Return a number as C++ reads it, to the last bit."""
    value = node.data
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return "INT64_MIN" if value == -(2**63) else f"int64_t{{{value}}}"
    assert isinstance(value, float)
    if math.isnan(value):
        return '__builtin_nan("")'
    if math.isinf(value):
        return "__builtin_inf()" if value > 0 else "(-__builtin_inf())"
    return f"({value!r})" if value < 0 or str(value).startswith("-") else repr(value)
