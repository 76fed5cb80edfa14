"""A formula by PyTorch's operations: where there is no compiler, or no kernel for the device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from pullback.bind import check, kernel
from pullback.bind.dense import arrange
from pullback.bind.notice import notice
from pullback.define.line import Line
from pullback.define.math import absent
from pullback.define.math.formula import Formula, require_real
from pullback.define.math.functions import TABLE
from pullback.define.math.language import DivisionByZero
from pullback.define.math.node import NUMBER, READ, SCALAR, Node, in_order
from pullback.define.operator import Definition
from pullback.diagnostic import PullbackError


class FormulaNotice(UserWarning):
    """A formula runs by PyTorch's operations, one after another: nothing compiles its loop here."""


def announce(line: Line, reason: PullbackError) -> None:
    """Say why a formula runs the slow way; for a derivative, its operator has said so."""
    if line.name.startswith("_"):
        return
    text = f"{line.qualname} runs by PyTorch's operations, derivatives included\n{reason}"
    notice(text, FormulaNotice)


# Python's operators take numbers and tensors in any order, as PyTorch's functions do not.
OPERATORS: dict[str, Callable[..., Any]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv},
    **{"neg": operator.neg, "lt": operator.lt, "le": operator.le, "gt": operator.gt},
    **{"ge": operator.ge, "eq": operator.eq, "ne": operator.ne},
}


def kernel_of(definition: Definition) -> Callable[..., object]:
    """Return a kernel that runs on every device, and that autograd sees through."""
    formula = definition.formula
    assert formula

    def run(*arguments: object, output_mask: list[bool] | None = None) -> object:
        given = kernel.fill_defaults(definition, arguments, output_mask)
        outputs = kernel.outputs_of(definition, given)
        for dtype in outputs.dtypes:
            require_real(definition.line, check.name_of(dtype))
        with no_division_by_zero(definition.line.called):
            values = evaluate(formula, arrange.name_arguments(definition.line, given), outputs)
        return kernel.unwrap_single(values)

    return run


def evaluate(
    formula: Formula, arguments: Mapping[str, object], outputs: kernel.Outputs
) -> list[Tensor | None]:
    """Return the outputs of a formula, None for those that are not wanted."""
    line = formula.line
    missing = {tensor.name for tensor in line.tensors if arguments[tensor.name] is None}
    nodes = absent.drop_absent(formula.elements, missing)
    batch = len(outputs.sizes.batch)
    space = arrange.shape_of_space(formula, outputs.sizes)
    values = InSpace(formula, arguments, outputs)
    results: list[Tensor | None] = []
    for k, node in enumerate(nodes):
        if not outputs.wanted[k]:
            results.append(None)
            continue
        value = values.of(node)
        if not isinstance(value, Tensor):
            value = torch.full((), value, dtype=outputs.dtypes[k], device=outputs.device)
        value = value.to(outputs.dtypes[k])
        # An output's memory is its own: no input's and no other output's, and as large as it is.
        if node.op == READ or node in nodes[:k] or value.shape != space:
            value = value.expand(space).clone()
        results.append(arrange.finish_output(value, formula, k, batch))
    return results


class Values:
    """The nodes of one call, each computed once.

    Attributes:
        arguments: the values of the line's parameters, by name.
        compute: the dtype of real numbers.
        device: of the tensors.
    """

    def __init__(
        self, arguments: Mapping[str, object], compute: torch.dtype, device: torch.device
    ) -> None:
        self.arguments = arguments
        self.compute = compute
        self.device = device
        self.known: dict[Node, Any] = {}

    def of(self, root: Node) -> Any:  # noqa: ANN401
        """Return a node's value: a tensor, or a Python number if only scalars are in it."""
        for node in in_order([root]):
            if node not in self.known:
                self.known[node] = self.compute_one(node, [self.known[arg] for arg in node.args])
        return self.known[root]

    def compute_one(self, node: Node, args: Sequence[Any]) -> Any:  # noqa: ANN401
        """Return a node's value from those of its operands."""
        if node.op == NUMBER:
            return node.data
        if node.op == SCALAR:
            return self.arguments[node.name]
        if node.op == READ:
            return self.read(node)
        if node.op in OPERATORS:
            return OPERATORS[node.op](*args)
        if node.op in SPECIAL:
            return SPECIAL[node.op](self, node, args)
        return torch_function(TABLE[node.op].torch)(*[self.tensor(arg) for arg in args])

    def read(self, node: Node) -> Tensor:
        """Return a tensor's elements, in the dtype that is computed in."""
        tensor = self.laid_out(node.name)
        if node.type == "real":
            return tensor.to(self.compute)
        return tensor if node.type == "bool" else tensor.to(torch.int64)

    def laid_out(self, name: str) -> Tensor:
        """Return a tensor with the dimensions in which its elements are computed with."""
        tensor = self.arguments[name]
        assert isinstance(tensor, Tensor)
        return tensor

    def tensor(self, value: Any) -> Tensor:  # noqa: ANN401
        """Return a value as a tensor, which most of PyTorch's functions want."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, torch.SymBool):  # a comparison of sizes, which PyTorch's traces know
            return torch.as_tensor(torch.sym_ite(value, 1, 0), device=self.device).to(torch.bool)
        dtype = self.compute if isinstance(value, float | torch.SymFloat) else None
        return torch.as_tensor(value, dtype=dtype, device=self.device)


@contextmanager
def no_division_by_zero(of: str) -> Generator[None]:
    """Say of a whole number that is divided by zero what to do, as the runtime does of a loop.

    Raises:
        PullbackError: PB136.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != "ZeroDivisionError":
            raise
        raise DivisionByZero.error(
            f"{of}: a whole number is divided by zero",
            help="where(...) chooses between values that are both computed, so let it choose the "
            "divisor: n // where(d != 0, d, 1)",
        ) from None


class InSpace(Values):
    """The nodes of a whole call, over the space of its formula."""

    def __init__(
        self, formula: Formula, arguments: Mapping[str, object], outputs: kernel.Outputs
    ) -> None:
        dtypes = [v.dtype for v in arguments.values() if isinstance(v, Tensor)]
        floating = [d for d in (*dtypes, *outputs.dtypes) if d.is_floating_point]
        compute = torch.float64 if torch.float64 in floating else torch.float32
        super().__init__(arguments, compute, outputs.device)
        self.space = formula.space
        self.batch = len(outputs.sizes.batch)
        self.specs = {tensor.name: tensor for tensor in formula.line.tensors}

    def laid_out(self, name: str) -> Tensor:
        """Return a tensor with the dimensions of the space."""
        tensor = super().laid_out(name)
        return arrange.view_in_space(tensor, self.specs[name], self.space, self.batch)


def _convert(dtype: torch.dtype | None, kind: Callable[[Any], Any]) -> Callable[..., Any]:
    def convert(values: Values, _: Node, args: Sequence[Any]) -> Any:  # noqa: ANN401
        value = args[0]
        return value.to(dtype or values.compute) if isinstance(value, Tensor) else kind(value)

    return convert


def _softplus(values: Values, _: Node, args: Sequence[Any]) -> Tensor:
    # Exact for all x, where PyTorch's softplus switches to x at 20.
    x = values.tensor(args[0])
    return torch.logaddexp(x, torch.zeros_like(x))


def _stop(_: Values, __: Node, args: Sequence[Any]) -> Any:  # noqa: ANN401
    # In memory of its own, which another operation may take for its result.
    (x,) = args
    return x.detach().clone() if isinstance(x, Tensor) else x


# Functions that need more than a call of PyTorch's function of that name.
SPECIAL: dict[str, Callable[[Values, Node, Sequence[Any]], Any]] = {
    "powi": lambda _, node, args: args[0] ** node.data,
    # A size that varies in a trace stays one.
    "real": _convert(None, torch.sym_float),
    "whole": _convert(torch.int64, torch.sym_int),
    "polygamma": lambda values, _, args: torch.polygamma(args[0], values.tensor(args[1])),
    **{"softplus": _softplus, "stop": _stop},
    "tanh_softplus": lambda values, node, args: _softplus(values, node, args).tanh(),
}


def torch_function(name: str) -> Callable[..., Any]:
    """Return PyTorch's function of a name such as `special.xlog1py`."""
    return operator.attrgetter(name)(torch)
