"""A derivative written as a Python function -> an operator of its own, wired by parameter names.

The operator is composite: PyTorch sees through it to what the function calls. So double backward,
`torch.compile` and `vmap` work on the function's body, and what the runtime knows stays the same:
to get the gradients of these inputs, call that operator with these tensors.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from pullback.bind.concrete import make_stand_in
from pullback.bind.disconnected import Cuts, as_list
from pullback.bind.kernel import unwrap_single
from pullback.bind.levels import copy_requiring_grad
from pullback.bind.program import OperatorCall, Origin, Program, Reference
from pullback.define import derivative
from pullback.define.line import Line, Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.diagnostic import PullbackError, Rule, an

VariableArguments = Rule("PB324", "variable-arguments")
WrongNumber = Rule("PB325", "wrong-number")
NotTensor = Rule("PB326", "not-a-tensor")

LeavesPyTorch = Rule("PB327", "leaves-pytorch")

NEEDS = "needs_input_grad"
# PyTorch's errors for `numpy()` on a tensor that autograd, functorch or a tracer watches.
LEAVES = re.compile(r"doesn't have storage|Can't call numpy\(\)|Cannot access data pointer")


@dataclass(frozen=True, kw_only=True)
class DerivativeRule:
    """A Python function that computes gradients or tangents, and how it is wired.

    Attributes:
        name: of its operator, without the namespace: `_mul_backward`.
        function: takes some of the incoming, the inputs and the outputs, by name.
        line: of the operator whose derivative it is.
        incoming: names of the gradients or tangents, with their index.
        origin: `Origin.grad` or `Origin.tangent`.
        results: the inputs or outputs whose gradients or tangents it returns.
    """

    name: str
    function: Callable[..., object]
    line: Line
    incoming: Mapping[str, int]
    origin: Origin
    results: tuple[str, ...]

    @property
    def of(self) -> str:
        """What to call it in messages."""
        return f"{'backward' if self.origin is Origin.grad else 'jvp'} of {self.line.qualname}"

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The function's parameters, each a known name."""
        parameters = list(inspect.signature(self.function).parameters.values())
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise VariableArguments.error(
                    f"the {self.of} takes '{parameter}', so nothing says what to pass",
                    help=f"name what it needs: {', '.join(self.known)}",
                )
            if parameter.name not in self.known:
                raise derivative.unknown_name(parameter.name, self.known, of=f"the {self.of}")
        return parameters

    @property
    def known(self) -> list[str]:
        """The names that the function can take."""
        line = self.line
        needs = [NEEDS] if self.origin is Origin.grad else []
        return [*self.incoming, *(p.name for p in (*line.parameters, *line.outputs)), *needs]

    def schema(self) -> str:
        """Return the operator's schema."""
        arguments = ", ".join(f"{self.type_of(p)} {p.name}" for p in self.parameters)
        returns = ", ".join("Tensor" for _ in self.results)
        returns = returns if len(self.results) == 1 else f"({returns})"
        return f"{self.name}({arguments}) -> {returns}"

    def type_of(self, parameter: inspect.Parameter) -> str:
        """Return a parameter's type in the schema."""
        if parameter.name == NEEDS:
            return "bool[]"
        if parameter.name in self.incoming:
            return "Tensor?" if takes_none(parameter) else "Tensor"
        values = {p.name: p for p in (*self.line.parameters, *self.line.outputs)}
        value = values[parameter.name]
        if isinstance(value, Scalar):
            return value.type
        return "Tensor?" if value.optional else "Tensor"

    def program(self) -> Program:
        """Return the program: one call of the operator."""
        line = self.line
        references: list[Reference] = []
        arguments = {p.name: i for i, p in enumerate(line.parameters)}
        outputs = {o.name: i for i, o in enumerate(line.outputs)}
        for parameter in self.parameters:
            name = parameter.name
            if name == NEEDS:
                references.append(Reference(Origin.mask))
            elif name in self.incoming:
                index = self.incoming[name]
                references.append(Reference(self.origin, index, optional=takes_none(parameter)))
            elif name in arguments:
                references.append(Reference(Origin.argument, arguments[name]))
            else:
                references.append(Reference(Origin.output, outputs[name]))
        qualname = f"{line.namespace}::{self.name}"
        call = OperatorCall(qualname, "", tuple(references), len(self.results))
        of = line.tensors if self.origin is Origin.grad else line.outputs
        return Program((call,), tuple(self.reference_of(tensor) for tensor in of))

    def reference_of(self, tensor: TensorSpec) -> Reference | None:
        """Return the reference to a tensor's gradient or tangent among the results."""
        if tensor.name not in self.results:
            return None
        return Reference(Origin.result, 0, self.results.index(tensor.name))

    def __call__(self, *arguments: object) -> object:
        """Run the function and return its results in the schema's order."""
        try:
            values = self.guarded(arguments) if self.is_watched else self.run(arguments)
        except RuntimeError as error:
            if LEAVES.search(str(error)):
                raise self.leaves_pytorch() from error
            raise
        for name, value in zip(self.results, values, strict=True):
            if value is not None and not isinstance(value, Tensor):
                raise NotTensor.error(
                    f"the {self.of} returned {an(type(value).__name__)} for '{name}'",
                    help="return a tensor, or None where the gradient is zero",
                )
        return unwrap_single(values)

    def leaves_pytorch(self) -> PullbackError:
        """Return the error for a function that gives a transform's tensors to NumPy."""
        return LeavesPyTorch.error(
            f"the {self.of} leaves PyTorch, as with numpy(), where a transform or a second "
            "derivative has to look into it",
            help="make an operator of it, python=..., and give that operator's name instead",
        )

    def run(self, arguments: Sequence[object]) -> list[object]:
        """Run the function; return one value for each result."""
        return self.in_order(self.function(*arguments))

    @property
    def is_watched(self) -> bool:
        """Whether the gradients are differentiated in turn, outside of a tracer."""
        if self.origin is not Origin.grad or not torch.is_grad_enabled():
            return False
        return not torch._C._len_torch_dispatch_stack()

    def guarded(self, arguments: Sequence[object]) -> list[object]:
        """Run the function so that a result that cannot be differentiated raises when it is."""
        places = [i for i, p in enumerate(self.parameters) if p.name in self.incoming]

        def run(grads: Sequence[object]) -> list[object]:
            given = list(arguments)
            for place, grad in zip(places, grads, strict=True):
                given[place] = grad
            return self.run(given)

        if not torch._C._are_functorch_transforms_active():
            return self.cuts.guarded(run, [arguments[place] for place in places], arguments)
        if not self.is_known:
            self.learn(arguments, places)
        return self.cuts.marked(self.run(arguments), arguments)

    @property
    def is_known(self) -> bool:
        """Whether it is known for every result if it is cut off from the gradients."""
        return len(self.cuts.known) == len(self.results)

    def learn(self, arguments: Sequence[object], places: Sequence[int]) -> None:
        """Find out which results are cut off, on values of the same shapes.

        Inside a level of functorch that cannot be seen, so this runs outside of all levels.
        """
        # Whatever the author's function raises on these values, it may not raise on the real ones.
        with temporarily_clear_interpreter_stack(), torch.enable_grad(), suppress(Exception):
            given = [make_stand_in(value) for value in arguments]
            grads = [
                copy_requiring_grad(g) if (g := given[place]) is not None else None
                for place in places
            ]
            for place, grad in zip(places, grads, strict=True):
                given[place] = grad
            self.cuts.learn(self.run(given), grads)

    @cached_property
    def cuts(self) -> Cuts:
        """Which results are cut off from the gradients, as far as is known."""
        return Cuts(f"the {self.of}")

    def in_order(self, returned: object) -> list[object]:
        """Return what the function returned, one value for each result."""
        if isinstance(returned, Mapping):
            derivative.require_keys(
                returned, list(self.results), of=f"what the {self.of} returned", kind="result"
            )
            return [returned[name] for name in self.results]
        values = as_list(returned)
        if len(values) != len(self.results):
            raise WrongNumber.error(
                f"the {self.of} returned {len(values)} values for {len(self.results)}: "
                f"{', '.join(self.results)}",
                help="return one gradient for each input tensor, in the line's order, "
                "or a dictionary by name",
            )
        return values


def takes_none(parameter: inspect.Parameter) -> bool:
    """Return whether an undefined gradient arrives as None: it is annotated so, or defaults to it.

    Otherwise it arrives as zeros.
    """
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else str(annotation)
    return parameter.default is None or "None" in text or "Optional" in text


def backward_rule(line: Line, function: Callable[..., object]) -> DerivativeRule:
    """Return the rule of `backward=function`."""
    return DerivativeRule(
        name=f"_{line.name}_backward",
        function=function,
        line=line,
        incoming=derivative.grad_names(line),
        origin=Origin.grad,
        results=tuple(derivative.differentiable(line)),
    )


def jvp_rule(line: Line, function: Callable[..., object]) -> DerivativeRule:
    """Return the rule of `jvp=function`."""
    floating = (o.name for o in line.outputs if derivative.has_derivative(o))
    return DerivativeRule(
        name=f"_{line.name}_jvp",
        function=function,
        line=line,
        incoming=derivative.tangent_names(line),
        origin=Origin.tangent,
        results=tuple(floating),
    )


def register(rule: DerivativeRule, library: torch.library.Library) -> None:
    """Register a rule's operator."""
    library.define(rule.schema(), tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(rule.name, rule, "CompositeImplicitAutograd")
    # Without it vmap would call the operator once for each element, and warn that this is slow.
    library.impl(rule.name, rule, "FuncTorchBatched")
