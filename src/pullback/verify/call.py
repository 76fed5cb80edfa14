"""A target with its inputs, called again for each question from the same values and seed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from pullback.verify.randomness import make_generator, seed_everything
from pullback.verify.target import Target

# What a run does to a leaf before the target sees it; `layouts.py` has others.
Prepare = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class InputLeaf:
    """One tensor among the inputs.

    Attributes:
        name: "x", "xs[0]", or a module's "linear.weight".
        value: as the user gave it, detached. The target never gets it, only copies.
        wanted: whether its gradient is checked.
        parameter: it is a module's parameter.
    """

    name: str
    value: Tensor
    wanted: bool
    parameter: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """One forward, and what is needed for its backward.

    Attributes:
        leaves: the tensors to differentiate by, in the order of `Call.leaves`.
        given: what the target was given: copies of the leaves, so that it may write in place.
        returned: what the target returned.
        outputs: the tensors in it.
    """

    leaves: tuple[Tensor, ...]
    given: tuple[Tensor, ...]
    returned: Any
    outputs: tuple[Tensor, ...]
    seed: int

    @property
    def differentiable(self) -> tuple[int, ...]:
        """The outputs for which a gradient can arrive."""
        return tuple(i for i, output in enumerate(self.outputs) if output.requires_grad)

    def backward(
        self,
        grads: Sequence[Tensor | None],
        *,
        retain: bool = True,
        create_graph: bool = False,
        seed: int | None = None,
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the leaves; None where none was asked for, or none arrived.

        Args:
            grads: one for each output, in its shape; None where nothing arrives for it.
            retain: keep the graph for another backward.
            create_graph: record the backward.
            seed: of the random state in which it runs; by default different from forward's.
        """
        pairs = [
            (output, grad)
            for output, grad in zip(self.outputs, grads, strict=True)
            if grad is not None and output.requires_grad
        ]
        asked = [leaf for leaf in self.leaves if leaf.requires_grad]
        if not pairs or not asked:
            return (None,) * len(self.leaves)
        with seed_everything(self.seed + 1 if seed is None else seed):
            found = iter(
                torch.autograd.grad(
                    [output for output, _ in pairs],
                    asked,
                    [grad for _, grad in pairs],
                    retain_graph=retain or create_graph,
                    create_graph=create_graph,
                    allow_unused=True,
                )
            )
        return tuple(next(found) if leaf.requires_grad else None for leaf in self.leaves)

    def random_grads(self, seed: int = 0) -> tuple[Tensor | None, ...]:
        """Return Gaussian gradients of both signs for the outputs; None where none can arrive."""
        generator = make_generator(self.seed + 7919 + seed)
        return tuple(
            torch.randn(output.shape, dtype=at_least_single(output.dtype), generator=generator).to(
                output
            )
            if output.requires_grad
            else None
            for output in self.outputs
        )


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Return a dtype in which PyTorch can draw normal numbers."""
    return dtype if dtype.itemsize >= 4 and dtype != torch.complex32 else torch.float32


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """A target with its inputs.

    Attributes:
        target: what is called.
        arguments: the positional arguments, with tensors as the user gave them.
        keywords: likewise.
        leaves: the tensors in them, and a module's parameters.
        seed: of the random state in which forward runs.
        intentions: what the author declared, such as "straight_through".
        assumed: no input required a gradient; it is checked as if all that can did.
    """

    target: Target
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    leaves: tuple[InputLeaf, ...]
    seed: int = 0
    intentions: frozenset[str] = frozenset()
    assumed: bool = False

    def forward(
        self,
        *,
        prepare: Prepare | Sequence[Prepare] = torch.clone,
        wanted: Sequence[bool] | None = None,
        seed: int | None = None,
    ) -> Run:
        """Call the target on copies of the inputs, recorded by autograd.

        Args:
            prepare: makes the target's input from a leaf; one for all, or one for each leaf.
                It is differentiable, and the target may write into its result.
            wanted: which leaves require a gradient, if not those of `leaves`.
            seed: of the random state, if not the call's.
        """
        wanted = [leaf.wanted for leaf in self.leaves] if wanted is None else wanted
        prepares = prepare if isinstance(prepare, Sequence) else [prepare] * len(self.leaves)
        leaves = tuple(
            copy_leaf(leaf.value).requires_grad_(want)
            for leaf, want in zip(self.leaves, wanted, strict=True)
        )
        with torch.enable_grad():
            given = tuple(own(leaf) for own, leaf in zip(prepares, leaves, strict=True))
            returned = self.on(given, seed=seed)
        outputs = tensors_in(returned)
        own = self.seed if seed is None else seed
        return Run(leaves=leaves, given=given, returned=returned, outputs=outputs, seed=own)

    def on(self, given: Sequence[Tensor], *, seed: int | None = None) -> Any:  # noqa: ANN401
        """Call the target on these tensors in the places of the leaves; return what it returns.

        Autograd's and every other mode is as the caller has set it.
        """
        arguments, keywords, parameters = self.filled(given)
        with seed_everything(self.seed if seed is None else seed):
            if parameters:
                return torch.func.functional_call(
                    self.target.given, parameters, arguments, dict(keywords)
                )
            return self.target.call(*arguments, **keywords)

    def values(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs for these values of the leaves, without a graph."""
        with torch.no_grad():
            copies = [tensor.detach().clone() for tensor in given]
            return tuple(output.detach().clone() for output in tensors_in(self.on(copies)))

    def filled(
        self, given: Sequence[Tensor]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any], dict[str, Tensor]]:
        """Return arguments, keywords and parameters with these tensors in the leaves' places."""
        tensors = iter(given)
        flat, spec, names = self.structure
        flat = [next(tensors) if isinstance(leaf, Tensor) else leaf for leaf in flat]
        arguments, keywords = _pytree.tree_unflatten(flat, spec)
        return arguments, keywords, dict(zip(names, tensors, strict=True))

    @cached_property
    def structure(self) -> tuple[list[Any], _pytree.TreeSpec, list[str]]:
        """What the arguments hold, how they hold it, and the names of parameters.

        A derivative by differences calls the target hundreds of times.
        """
        flat, spec = _pytree.tree_flatten((self.arguments, dict(self.keywords)))
        return flat, spec, [leaf.name for leaf in self.leaves if leaf.parameter]

    def with_values(self, values: Sequence[Tensor]) -> Call:
        """Return the same call on other values: other sizes, dtypes or strides may be refused."""
        leaves = tuple(
            replace(leaf, value=value) for leaf, value in zip(self.leaves, values, strict=True)
        )
        arguments, keywords, _ = self.filled(values)
        return replace(self, arguments=arguments, keywords=keywords, leaves=leaves)

    def wanting(self, wanted: Sequence[bool]) -> Call:
        """Return the same call with gradients of other leaves."""
        leaves = tuple(
            replace(leaf, wanted=want) for leaf, want in zip(self.leaves, wanted, strict=True)
        )
        return replace(self, leaves=leaves)

    def with_option(self, name: str, value: object) -> Call:
        """Return the same call with another value of a parameter that is not a tensor."""
        signature = self.target.signature
        assert signature is not None
        names = list(signature.parameters)
        if name in self.keywords or names.index(name) >= len(self.arguments):
            return replace(self, keywords={**self.keywords, name: value})
        arguments = list(self.arguments)
        arguments[names.index(name)] = value
        return replace(self, arguments=tuple(arguments))

    def to(self, dtype: torch.dtype) -> Call:
        """Return the same call in another precision; complex tensors get its complex dtype."""
        return self.with_values([cast_precision(leaf.value, dtype) for leaf in self.leaves])

    @cached_property
    def wanted(self) -> tuple[int, ...]:
        """The leaves whose gradients are checked."""
        return tuple(i for i, leaf in enumerate(self.leaves) if leaf.wanted)

    @cached_property
    def double(self) -> Call | None:
        """The call in float64, None if the target then still computes in its own precision."""
        call = self.to(torch.float64)
        try:
            run = call.forward()
            outputs = [run.outputs[i] for i in run.differentiable]
            gradients = run.backward(run.random_grads())
        except Exception:  # it does not take float64
            return None
        own = [*outputs, *(g for g in gradients if g is not None)]
        wide = all(t.dtype in (torch.float64, torch.complex128) for t in own)
        return call if wide and outputs else None

    @cached_property
    def random(self) -> bool:
        """Whether forward draws random numbers: other seeds, other outputs."""
        first = self.values(self._values)
        second = replace(self, seed=self.seed + 1).values(self._values)
        return len(first) != len(second) or not all(map(is_same, first, second))

    @cached_property
    def repeatable(self) -> bool:
        """Whether forward gives the same bits twice from the same random state."""
        first, second = self.values(self._values), self.values(self._values)
        return len(first) == len(second) and all(map(is_same, first, second))

    @property
    def _values(self) -> tuple[Tensor, ...]:
        return tuple(leaf.value for leaf in self.leaves)


def is_same(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors are equal, NaN included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan()))


def copy_leaf(value: Tensor) -> Tensor:
    """Return a leaf of the same values and strides."""
    if value.layout != torch.strided:
        return value.detach().clone()
    return value.detach().clone(memory_format=torch.preserve_format)


def cast_precision(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast floating-point and complex tensors, leave integers and booleans."""
    if value.is_complex():
        return value.to(dtype.to_complex())
    return value.to(dtype) if value.is_floating_point() else value


def tensors_in(returned: object) -> tuple[Tensor, ...]:
    """Return the tensors in what a target returned: nested, with None and numbers among them."""
    return tuple(leaf for leaf in _pytree.tree_leaves(returned) if isinstance(leaf, Tensor))


def call_of(
    target: Target,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    seed: int,
    intentions: frozenset[str] = frozenset(),
) -> Call:
    """Return a target with its inputs.

    Gradients are checked for the inputs that require one; if none does, for every floating-point
    and complex one. A module's parameters are inputs as well.
    """
    arguments, keywords = tuple(arguments), dict(keywords)
    tensors = list(name_tensors(target, arguments, keywords))
    parameters: list[tuple[str, Tensor]] = []
    if isinstance(target.given, nn.Module):
        parameters = list(target.given.named_parameters())
    some = any(tensor.requires_grad for _, tensor in tensors)
    leaves = [
        InputLeaf(
            name=name,
            value=tensor.detach(),
            wanted=tensor.requires_grad if some else can_require_grad(tensor),
        )
        for name, tensor in tensors
    ]
    leaves += [
        InputLeaf(name=name, value=p.detach(), wanted=p.requires_grad, parameter=True)
        for name, p in parameters
    ]
    return Call(
        target=target,
        arguments=arguments,
        keywords=keywords,
        leaves=tuple(leaves),
        seed=seed,
        intentions=intentions,
        assumed=not some and any(leaf.wanted and not leaf.parameter for leaf in leaves),
    )


def can_require_grad(tensor: Tensor) -> bool:
    """Tell whether a tensor is of a dtype that has gradients."""
    return tensor.is_floating_point() or tensor.is_complex()


def name_tensors(
    target: Target, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> list[tuple[str, Tensor]]:
    """Return the tensors among the arguments with their names, in the order of a flattened call."""
    names = names_of(target.signature, len(arguments))
    found: list[tuple[str, Tensor]] = []
    for name, value in [*zip(names, arguments, strict=True), *keywords.items()]:
        for path, leaf in _pytree.tree_leaves_with_path(value):
            if isinstance(leaf, Tensor):
                found.append((name + _pytree.keystr(path), leaf))
    return found


def names_of(signature: inspect.Signature | None, count: int) -> list[str]:
    """Return a name for each positional argument."""
    parameters = list(signature.parameters.values()) if signature else []
    names: list[str] = []
    several = inspect.Parameter.VAR_POSITIONAL
    for index in range(count):
        if index < len(parameters) and parameters[index].kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            names.append(parameters[index].name)
            continue
        spread = next((p for p in parameters if p.kind is several), None)
        start = parameters.index(spread) if spread else 0
        names.append(f"{spread.name}[{index - start}]" if spread else f"input {index}")
    return names


def format_call(call: Call) -> str:
    """Print a call: "Square(x: float64 (2, 3))"."""
    inputs = [
        f"{leaf.name}: {str(leaf.value.dtype).removeprefix('torch.')} {tuple(leaf.value.shape)}"
        for leaf in call.leaves
    ]
    return f"{call.target.name}({', '.join(inputs)})"
