"""Kernels in Python: the `python=` function and the fake kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback.bind import autocast, check
from pullback.bind.gradients_inside import computes_gradients
from pullback.bind.levels import allow_recording
from pullback.bind.memo import Memo, key_of_argument
from pullback.define import shape
from pullback.define.line import Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math import extents
from pullback.define.operator import Definition
from pullback.diagnostic import Rule, an

WrongOutput = Rule("PB331", "wrong-output")


@dataclass(frozen=True)
class Outputs:
    """What the line says about the outputs of one call."""

    definition: Definition
    sizes: shape.Sizes
    shapes: list[tuple[int, ...]]
    dtypes: list[torch.dtype]
    device: torch.device
    wanted: list[bool]

    @property
    def maker(self) -> str:
        """What to call the author's function in messages."""
        function = self.definition.function
        return f"forward of {function.__name__}" if function else "its Python kernel"

    @cached_property
    def strides(self) -> list[tuple[int, ...]]:
        """The strides of the outputs, as PyTorch gives them to new tensors."""
        return [torch.empty(size, device="meta").stride() for size in self.shapes]


def select_wanted(outputs: Outputs, wanted: list[bool]) -> Outputs:
    """Return the outputs of a call that wants only some of them."""
    return replace(outputs, wanted=wanted)


def outputs_of(definition: Definition, arguments: Sequence[object]) -> Outputs:
    """Check the inputs of a call and return what its outputs are.

    Args:
        definition: the operator.
        arguments: in the order of its schema.
    """
    line = definition.line
    by_name = {p.name: value for p, value in zip(line.parameters, arguments, strict=False)}
    sizes, dtype, device = check.solve(line, by_name)
    if definition.formula is not None:
        sizes = extents.with_counts(definition.formula, sizes, by_name)
    shapes = shape.output_shapes(definition.shaped, sizes, by_name)
    dtypes = [check.dtype_named(o.dtype) if o.dtype else dtype for o in line.outputs]
    return Outputs(definition, sizes, shapes, dtypes, device, mask_of(definition, arguments))


def fill_defaults(
    definition: Definition, arguments: tuple[object, ...], output_mask: list[bool] | None
) -> tuple[object, ...]:
    """Return the arguments with the defaults that the dispatcher leaves out, and the mask."""
    rest = definition.line.parameters[len(arguments) :]
    defaults = (p.default if isinstance(p, Scalar) else None for p in rest)
    return (*arguments, *defaults, *([output_mask] if definition.masked else []))


def mask_of(definition: Definition, arguments: Sequence[object]) -> list[bool]:
    """Return which outputs are wanted."""
    everything = [True] * len(definition.line.outputs)
    mask = arguments[-1] if definition.masked else None
    return list(mask) if isinstance(mask, list) else everything


def make_fake_kernel(definition: Definition) -> Callable[..., object]:
    """Return the fake kernel: empty outputs of the right shape, from sizes that may be symbolic."""

    def kernel(*arguments: object, output_mask: list[bool] | None = None) -> object:
        arguments = fill_defaults(definition, arguments, output_mask)
        outputs = outputs_of(definition, arguments)
        named = dict(zip((p.name for p in definition.line.parameters), arguments, strict=False))
        made = [
            named[output.name]
            if output.name in definition.line.changed
            else torch.empty(size, dtype=dtype, device=outputs.device)
            if wanted
            else None
            for output, size, dtype, wanted in zip(
                definition.line.outputs, outputs.shapes, outputs.dtypes, outputs.wanted, strict=True
            )
        ]
        return unwrap_single(made)

    return kernel


def make_python_kernel(definition: Definition) -> Callable[..., object]:
    """Return the kernel that calls the author's function, with its inputs and outputs checked."""
    function = definition.python
    assert function
    takes_mask = definition.masked and "output_mask" in _parameter_names(function)
    unrecorded = allow_recording if computes_gradients(function) else torch.no_grad
    # What follows from the inputs' shapes and dtypes alone is worked out once for each.
    known: Memo[object, Outputs] = Memo()

    def outputs_for(arguments: tuple[object, ...]) -> Outputs:
        key = (*map(key_of_argument, arguments), torch.get_default_dtype())
        return known.get_or_make(key, lambda: outputs_of(definition, arguments))

    def kernel(*arguments: Any, output_mask: list[bool] | None = None) -> object:  # noqa: ANN401
        arguments = fill_defaults(definition, arguments, output_mask)
        outputs = outputs_for(arguments)
        plain = [a.detach() if isinstance(a, Tensor) else a for a in arguments]
        given = plain[: len(definition.line.parameters)]
        before = versions(given)
        # Autograd and autocast are above this kernel: nothing in it is recorded or cast.
        with unrecorded(), autocast.disable_autocast():
            if takes_mask:
                returned = function(*given, output_mask=outputs.wanted)
            else:
                returned = function(*given)
        if versions(given) != before:
            raise WrongOutput.error(
                f"{definition.line.qualname}: its Python kernel changed an input in place",
                help="clone it first; a torch.autograd.Function as function= may change its inputs",
            )
        return check_outputs(outputs, returned, [a for a in plain if isinstance(a, Tensor)])

    return kernel


def versions(values: Sequence[Any]) -> list[int]:
    """Return the version counter of each tensor."""
    return [t._version for t in values if isinstance(t, Tensor) and not t.is_inference()]


def check_outputs(outputs: Outputs, returned: object, inputs: list[Tensor]) -> object:
    """Return the function's results as the outputs of the line, or stop."""
    line = outputs.definition.line
    values = list(returned) if isinstance(returned, tuple | list) else [returned]
    if len(values) != len(line.outputs):
        raise WrongOutput.error(
            f"{line.qualname}: {outputs.maker} returned {len(values)} values, "
            f"the line says {len(line.outputs)}"
        )
    tensors: list[Tensor | None] = []
    # An output has memory of its own: a view of an input would escape autograd.
    used = {memory_of(tensor) for tensor in inputs if tensor.numel()}
    for index, value in enumerate(values):
        tensor = check_output(outputs, index, value) if outputs.wanted[index] else None
        if tensor is not None and tensor.numel():
            if memory_of(tensor) in used:
                tensor = tensor.clone()
            used.add(memory_of(tensor))
        tensors.append(tensor)
    return unwrap_single(tensors)


def unwrap_single(values: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return one value as it is, several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


def check_output(outputs: Outputs, index: int, value: object) -> Tensor:
    """Return one output as a tensor, or stop."""
    line = outputs.definition.line
    spec: TensorSpec = line.outputs[index]
    place = f"{line.qualname}: {outputs.maker} returned"
    if isinstance(value, np.ndarray | np.generic):
        value = torch.as_tensor(np.ascontiguousarray(value).reshape(np.shape(value)))
        value = value.to(outputs.device)
    if not isinstance(value, Tensor):
        raise WrongOutput.error(f"{place} {an(type(value).__name__)} for '{spec.name}'")
    if value.shape != outputs.shapes[index] and not spec.has_any_shape:
        raise WrongOutput.error(
            f"{place} '{spec.name}' of shape {shape.format_shape(value.shape)}, "
            f"the line says {shape.format_shape(outputs.shapes[index])}: {shape.format_spec(spec)}"
        )
    if value.dtype != outputs.dtypes[index] or value.device != outputs.device:
        raise WrongOutput.error(
            f"{place} '{spec.name}' as {check.name_of(value.dtype)} on {value.device}, the line "
            f"says {check.name_of(outputs.dtypes[index])} on {outputs.device}",
            help="convert it before returning it",
        )
    if value.layout != torch.strided:
        raise WrongOutput.error(
            f"{place} '{spec.name}' as a tensor that is not dense",
            help="call to_dense() on it before returning it",
        )
    value = value.resolve_conj().resolve_neg()
    if value._is_view() or value.requires_grad:
        value = value.data  # the same memory: what it was made of is the function's own affair
    # The fake kernel's strides: `contiguous()` alone keeps those of sizes 0 and 1 as they are.
    if spec.has_any_shape:
        return value.contiguous()
    if value.stride() != outputs.strides[index]:
        value = value.clone(memory_format=torch.contiguous_format)
    return value


def memory_of(tensor: Tensor) -> int:
    """Return the address of a tensor's memory, which views of it share."""
    return tensor.untyped_storage().data_ptr()


def _parameter_names(function: Callable[..., object]) -> list[str]:
    code = getattr(function, "__code__", None)
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) if code else []
