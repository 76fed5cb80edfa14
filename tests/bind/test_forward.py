"""Operators x dtypes x layouts against their references."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from operators import BY_NAME, TABLE, Case, as_tuple, assert_agrees, draw
from torch import Tensor

import pullback as pb

pytestmark = pytest.mark.compiler


def transposed(tensor: Tensor) -> Tensor:
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def sliced(tensor: Tensor) -> Tensor:
    """Every second element of a larger tensor, from its second on."""
    large = tensor.new_full([2 * size + 1 for size in tensor.shape], 9)
    part = large[tuple(slice(1, 2 * size + 1, 2) for size in tensor.shape)]
    return part.copy_(tensor)


def expanded(tensor: Tensor) -> Tensor:
    return tensor[:1].expand(tensor.shape) if tensor.dim() else tensor


def with_stride_0(tensor: Tensor) -> Tensor:
    return tensor.as_strided(tensor.shape, [0] * tensor.dim()) if tensor.numel() else tensor


def channels_last(tensor: Tensor) -> Tensor:
    last = tensor.dim() - 1
    return tensor.movedim(1, last).contiguous().movedim(last, 1) if last > 0 else tensor


def overlapping(tensor: Tensor) -> Tensor:
    """Rows that begin one element after each other."""
    return tensor.as_strided(tensor.shape, [1] * tensor.dim())


def negated(tensor: Tensor) -> Tensor:
    """A view whose elements are negated when they are read."""
    return torch._neg_view(tensor)  # pyright: ignore[reportPrivateImportUsage]


def conjugated(tensor: Tensor) -> Tensor:
    return tensor.conj() if tensor.is_complex() else tensor


def imaginary(tensor: Tensor) -> Tensor:
    """The imaginary part of a conjugated tensor: both strided and lazily negated."""
    if tensor.is_complex():
        return conjugated(transposed(tensor))
    return torch.complex(tensor.double(), tensor.double()).conj().imag.to(tensor.dtype)


LAYOUTS: tuple[Callable[[Tensor], Tensor], ...] = (
    Tensor.contiguous,
    transposed,
    sliced,
    expanded,
    with_stride_0,
    channels_last,
    overlapping,
    negated,
    conjugated,
    imaginary,
)
each_case = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)


def laid_out(
    arguments: tuple[object, ...], layout: Callable[[Tensor], Tensor]
) -> tuple[object, ...]:
    return tuple(
        layout(a) if isinstance(a, Tensor) and a.dtype != torch.int64 else a for a in arguments
    )


@each_layout
@each_case
def test_an_operator_agrees_with_its_reference(
    case: Case, layout: Callable[[Tensor], Tensor], seed: int
) -> None:
    for dtype in case.dtypes:
        for index, example in enumerate(case.examples):
            arguments = laid_out(draw(example, dtype, seed + index), layout)
            assert_agrees(case, arguments, case.operator(*arguments))


@each_case
def test_an_operator_agrees_through_torch_ops_and_by_keyword(case: Case, seed: int) -> None:
    packet = getattr(torch.ops.pbtest, case.operator.__name__)
    for example in case.examples:
        arguments = draw(example, case.dtypes[0], seed)
        names = [parameter.name for parameter in case.operator.line.parameters]
        keywords = dict(zip(names, arguments, strict=False))
        # Defined at its first use, which the line above was.
        assert_agrees(case, arguments, packet(*arguments))
        assert_agrees(case, arguments, packet(**keywords))
        assert_agrees(case, arguments, case.operator(**keywords))
        first, rest = arguments[0], dict(list(keywords.items())[1:])
        assert_agrees(case, arguments, case.operator(first, **dict(reversed(rest.items()))))


@each_case
def test_outputs_are_new_contiguous_memory(case: Case, seed: int) -> None:
    arguments = draw(case.examples[0], case.dtypes[0], seed)
    before = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
    outputs = as_tuple(case.operator(*arguments))
    taken = {a.untyped_storage().data_ptr() for a in arguments if isinstance(a, Tensor)}
    for output in outputs:
        assert output.is_contiguous()
        assert output.untyped_storage().data_ptr() not in taken
        taken.add(output.untyped_storage().data_ptr())
        output.zero_()
    for argument, kept in zip(arguments, before, strict=True):
        assert argument is kept or torch.equal(argument, kept)


@each_case
def test_the_fake_kernel_gives_the_shapes_and_dtypes_of_the_real_one(case: Case, seed: int) -> None:
    for example in case.examples:
        arguments = draw(example, case.dtypes[0], seed)
        real = as_tuple(case.operator(*arguments))
        meta = [a.to("meta") if isinstance(a, Tensor) else a for a in arguments]
        for output, fake in zip(real, as_tuple(case.operator(*meta)), strict=True):
            assert fake.is_meta
            assert (fake.shape, fake.dtype, fake.stride()) == (
                output.shape,
                output.dtype,
                output.stride(),
            )


def test_a_python_kernel_may_return_a_view_of_its_input_or_one_tensor_twice() -> None:
    import pullback as pb  # noqa: PLC0415

    alias = pb.operator("pbtest::alias(x[...]) -> (y[...], z[...])", python=lambda x: (x, x))
    x = torch.randn(3)
    y, z = alias(x)
    assert len({t.data_ptr() for t in (x, y, z)}) == 3
    torch.testing.assert_close(y, x)
    torch.testing.assert_close(z, x)


def test_nothing_is_recorded_inside_a_python_kernel(seed: int) -> None:
    (x,) = draw(BY_NAME["sin"].examples[0], torch.float64, seed)
    # NumPy refuses a tensor that requires a gradient: the kernel gets none that does.
    y = BY_NAME["sin"].operator(x.requires_grad_())
    assert y.grad_fn
    assert y.grad_fn.name() == "pbtest::sinBackward"


def test_a_kernel_reads_the_values_of_lazily_negated_tensors(seed: int) -> None:
    z = torch.randn(5, dtype=torch.complex128)
    imaginary = z.conj().imag
    assert imaginary.is_neg()
    mul = BY_NAME["mul"].operator
    for given in (imaginary, imaginary.expand(3, 5), imaginary[1:2]):
        plain = given.clone().resolve_neg()
        torch.testing.assert_close(mul(given, plain.square()), plain**3)


def test_sizes_round_down_as_in_python() -> None:
    sizes = pb.operator(
        "pbtest::sizes(x[n]) -> (y[(n - 4) // 2 + 1], z[(n - 7) % 3])",
        cpu=pb.source(
            """template <class T> void fill(T* y, T* z, long ny, long nz) {
                for (long i = 0; i < ny; ++i) y[i] = 1;
                for (long i = 0; i < nz; ++i) z[i] = 1;
            }""",
            call="fill(y, z, numel(y), numel(z))",
        ),
    )
    for n in range(2, 10):
        y, z = sizes(torch.ones(n))
        assert (len(y), len(z)) == ((n - 4) // 2 + 1, (n - 7) % 3), n
