"""A Function's forward and backward as operators, for PyTorch's transforms and tracers.

`demo::_linear_forward` runs forward and returns, beside the outputs, the intermediates that it
saved and the number under which the rest of `ctx` is kept. `demo::_linear_backward` takes all of
that and runs backward. Both are opaque, so they may use NumPy or ctypes. Each has a batching rule
here; their fake kernels are in `fakes.py`, their derivatives in `transforms.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.bind.batching import loop_over_batch, stack_columns
from pullback.bind.functions.adopted import Adopted, WrongGradients
from pullback.bind.functions.context import (
    Context,
    State,
    address,
    put_together,
    stow,
    take_apart,
)
from pullback.bind.functions.eager import run_backward, run_forward
from pullback.bind.functions.fakes import Fakes
from pullback.bind.functions.memory import check_memory, require_unchanged
from pullback.bind.functions.residuals import ForwardPass, Pull, state_of
from pullback.bind.levels import allow_recording, is_smooth
from pullback.define.operator import Definition
from pullback.define.schema import type_of
from pullback.define.shape import format_shape


@dataclass(frozen=True, eq=False)
class Hidden:
    """The operators that run a Function's forward and backward."""

    adopted: Adopted
    definition: Definition
    known: Callable[[Sequence[object]], kernel.Outputs]

    @cached_property
    def fakes(self) -> Fakes:
        """The fake kernels that run in their place while a program is traced."""
        return Fakes(self.adopted, self.definition, self.known, self.evaluate)

    @property
    def namespace(self) -> str:
        """The namespace in which they are registered."""
        return self.adopted.line.namespace

    @property
    def names(self) -> tuple[str, str]:
        """Their names, without the namespace."""
        return (f"_{self.adopted.line.name}_forward", f"_{self.adopted.line.name}_backward")

    @cached_property
    def operators(self) -> tuple[Any, Any]:
        """The operators, as PyTorch's Python objects."""
        packets = getattr(torch.ops, self.namespace)
        return tuple(getattr(packets, name).default for name in self.names)  # pyright: ignore

    def schemas(self) -> tuple[str, str]:
        """Return their schemas."""
        line = self.adopted.line
        inputs = "".join(f"{type_of(p)} {p.name}, " for p in line.parameters)
        outputs = "Tensor, " * len(line.outputs)
        forward, backward = self.names
        return (
            f"{forward}({inputs}bool[] needs_input_grad_, bool hold_) "
            f"-> ({outputs}Tensor[], Tensor, Tensor[])",
            f"{backward}(Tensor?[] grads, Tensor?[] inputs, Tensor[] outputs, Tensor[] kept, "
            "Tensor number, Tensor[] owners, bool[] needs_input_grad, int[] lengths, "
            "bool[] absent) -> Tensor[]",
        )

    def evaluate(
        self, arguments: Sequence[Any], needs: Sequence[bool], *, clone: bool
    ) -> tuple[Context, list[Any], tuple[Tensor, ...]]:
        """Run forward below autograd; return its `ctx`, flat arguments and outputs.

        Args:
            arguments: of the line.
            needs: for each flat argument, whether its gradient is needed.
            clone: whether forward gets a copy of an input that it changes in place.
        """
        adopted = self.adopted
        given = [
            a.detach().clone() if clone and p.name in adopted.line.changed else detach(a)
            for p, a in zip(adopted.line.parameters, arguments, strict=True)
        ]
        flat, lengths = adopted.flat(given)
        # As in PyTorch, forward may ask its inputs whether they require a gradient.
        flat = [
            detach_requiring_grad(f) if need else f for f, need in zip(flat, needs, strict=True)
        ]
        ctx = Context(adopted.as_forward(needs, lengths))
        if adopted.lists:
            ctx._lengths = lengths  # pyright: ignore[reportAttributeAccessIssue]
        before = kernel.versions(flat)
        with allow_recording():
            outputs = run_forward(adopted, ctx, flat)
        require_unchanged(adopted, before, flat)
        return ctx, flat, outputs

    def checked(self, arguments: Sequence[Any], outputs: tuple[Tensor, ...]) -> list[Tensor]:
        """Return the outputs as the line describes them, each with memory of its own."""
        expected = self.known(arguments)
        inputs = [t for t in self.adopted.flat(arguments)[0] if isinstance(t, Tensor)]
        checked: Any = kernel.check_outputs(expected, outputs, inputs)
        return list(checked) if isinstance(checked, tuple) else [checked]

    def plain(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run forward and keep nothing: the operator's kernel where no gradient is needed."""
        line = self.adopted.line
        arguments = kernel.fill_defaults(self.definition, arguments, None)
        self.known(arguments)
        count = len(self.adopted.flat(arguments)[0])
        ctx, flat, outputs = self.evaluate(arguments, [False] * count, clone=False)
        outputs = check_memory(self.adopted, ctx.dirty_tensors, flat, outputs)
        named = dict(zip((p.name for p in line.parameters), arguments, strict=True))
        if line.changed:
            return kernel.unwrap_single(
                [named.get(o.name, v) for o, v in zip(line.outputs, outputs, strict=True)]
            )
        return kernel.unwrap_single(self.checked(arguments, outputs))

    def forward(self, *given: Any) -> Any:  # noqa: ANN401
        """Run forward and keep what backward needs: the kernel of the forward operator."""
        *arguments, needs, hold = given
        self.known(arguments)
        ctx, flat, outputs = self.evaluate(arguments, needs, clone=True)
        outputs = check_memory(self.adopted, ctx.dirty_tensors, flat, outputs)
        state, kept = take_apart(ctx, flat, outputs, hold=hold)
        number, owner = stow(state)
        return (*self.checked(arguments, outputs), kept, number, [owner])

    def backward(self, *given: Any) -> list[Tensor]:  # noqa: ANN401
        """Run backward; return the gradients that are needed: the backward operator's kernel."""
        pull, number, _ = Pull.given(given)
        with allow_recording():
            gradients = self.pull(state_of(int(number)), self.as_saved(pull))
        used = {address(t) for t in pull.flat() if t is not None}
        fresh: list[Tensor] = []
        for gradient in (g.resolve_conj().resolve_neg() for g in gradients):
            own = address(gradient) not in used and gradient.is_contiguous()
            used.add(address(gradient))
            fresh.append(gradient if own else gradient.clone(memory_format=torch.contiguous_format))
        return fresh

    def as_saved(self, pull: Pull) -> Pull:
        """Return the arguments with inputs that require a gradient, as PyTorch's saved ones do."""
        pairs = zip(pull.inputs, pull.needs, strict=True)
        return replace(
            pull, inputs=[detach_requiring_grad(detach(t)) if need else t for t, need in pairs]
        )

    def pull(self, state: State, pull: Pull) -> list[Tensor]:
        """Run backward on tensors of any kind; return the gradients that are needed."""
        adopted = self.adopted
        pull.require(state)
        needs = adopted.as_forward(pull.needs, pull.lengths)
        ctx = put_together(state, pull.inputs, pull.outputs, pull.kept, needs)
        grads = pull.grads
        if state.materialize_grads:
            pairs = zip(grads, pull.outputs, strict=True)
            grads = [torch.zeros_like(output) if grad is None else grad for grad, output in pairs]
        found = run_backward(adopted, ctx, grads)
        if len(found) < len(pull.needs):
            raise WrongGradients.error(
                f"{adopted.line.qualname}: backward of {adopted.function.__name__} returned "
                f"{len(found)} values for the {len(pull.needs)} arguments of its forward",
                help="return one for each argument of forward, None for those without a gradient",
            )
        return [
            self.as_engine(gradient, value)
            for gradient, value, need in zip(found, pull.inputs, pull.needs, strict=False)
            if need and value is not None
        ]

    def as_engine(self, gradient: object, value: Tensor) -> Tensor:
        """Return a gradient that fits, as in PyTorch's engine: zeros for None, summed, cast."""
        if gradient is None:
            return torch.zeros_like(value)
        if not isinstance(gradient, Tensor) or gradient.device != value.device:
            what = (
                f"on {gradient.device}" if isinstance(gradient, Tensor) else type(gradient).__name__
            )
            raise WrongGradients.error(
                f"{self.adopted.line.qualname}: backward of {self.adopted.function.__name__} "
                f"returned a gradient {what} for an input on {value.device}"
            )
        if gradient.layout != torch.strided:
            gradient = gradient.to_dense()  # an operator returns dense tensors
        if gradient.shape != value.shape:
            if not expandable(value.shape, gradient.shape):
                raise WrongGradients.error(
                    f"{self.adopted.line.qualname}: backward of {self.adopted.function.__name__} "
                    f"returned a gradient of shape {format_shape(gradient.shape)} for an input "
                    "of shape "
                    f"{format_shape(value.shape)}"
                )
            gradient = gradient.sum_to_size(value.shape)
        return gradient if gradient.dtype == value.dtype else gradient.to(value.dtype)

    def register(self, library: torch.library.Library) -> None:
        """Define both operators and everything they need."""
        forward, backward = self.names
        for text in self.schemas():
            library.define(text, tags=(torch.Tag.pt2_compliant_tag,))
        for name, run, fake, batched in (
            (forward, self.forward, self.fakes.forward, self.forward_batched),
            (backward, self.backward, self.fakes.backward, self.backward_batched),
        ):
            qualname = f"{self.namespace}::{name}"
            library.impl(name, run, "CompositeExplicitAutograd")
            torch.library.register_fake(qualname, fake, lib=library)
            torch.library.register_vmap(qualname, batched, lib=library)

    def forward_batched(self, info: Any, in_dims: Any, *given: Any) -> Any:  # noqa: ANN401
        """Run forward for each element of a batch; a state for each, one number for each."""
        size = info.batch_size
        rows = [
            ForwardPass.returned(r)
            for r in loop_over_batch(self.operators[0], size, in_dims, given)
        ]
        outputs = stack_columns([row.outputs for row in rows], size)
        kept = stack_columns([row.kept for row in rows], size)
        number = torch.stack([row.number for row in rows])[:size]
        owners = [owner for row in rows for owner in row.owners]
        dims = (*[0] * len(outputs), [0] * len(kept), 0, [None] * len(owners))
        return (*outputs, kept, number, owners), dims

    def backward_batched(self, info: Any, in_dims: Any, *given: Any) -> Any:  # noqa: ANN401
        """Run backward for each element of a batch."""
        rows = loop_over_batch(self.operators[1], info.batch_size, in_dims, given)
        gradients = stack_columns(rows, info.batch_size)
        return gradients, [0] * len(gradients)


def detach_requiring_grad(value: Any) -> Any:  # noqa: ANN401
    """Return a detached tensor that requires a gradient, if it is of a dtype that can."""
    return value.requires_grad_() if is_smooth(value) else value


def detach(value: Any) -> Any:  # noqa: ANN401
    """Return an argument detached; for a list, each of its tensors."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
        return [tensor.detach() for tensor in value]
    return value


def expandable(small: Sequence[int], large: Sequence[int]) -> bool:
    """Return whether a tensor of one shape can be expanded to the other."""
    pairs = zip(reversed(small), reversed(large), strict=False)
    return len(small) <= len(large) and all(a in (1, b) for a, b in pairs)
