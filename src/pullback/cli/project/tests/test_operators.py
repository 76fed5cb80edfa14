"""Values are PyTorch's, and derivatives are right: `pb.check` says what is not, and where."""

import my_operators
import pullback as pb
import pytest
import torch


def test_softplus_is_pytorchs() -> None:
    x = torch.linspace(-3, 3, 7)
    torch.testing.assert_close(
        my_operators.softplus(x, 2.0), torch.nn.functional.softplus(x, beta=2.0)
    )


def test_swish_is_pytorchs() -> None:
    x = torch.linspace(-3, 3, 7)
    torch.testing.assert_close(my_operators.swish(x), torch.nn.functional.silu(x))


@pytest.mark.parametrize("name", my_operators.__all__)
def test_derivatives_are_right(name: str) -> None:
    x = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(3, 4)
    assert pb.check(getattr(my_operators, name), x, 1.5)
