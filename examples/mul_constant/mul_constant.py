"""A tensor times a Python number.

The number is no tensor, so nothing asks for its gradient. Where no gradient arrives for the output,
no backward is run: None goes on to the tensor, and no zeros are made.
"""

import torch
from torch import Tensor

import pullback as pb

mul_constant = pb.operator(
    "examples::mul_constant(tensor[...], constant: float) -> output[...]",
    cpu=pb.source("mul_constant.cpp", call="mul_constant(output, tensor, constant, numel(tensor))"),
    backward={"tensor": "examples::mul_constant(grad, constant)"},
)


class Severed(torch.autograd.Function):
    """Passes a tensor on and lets no gradient back: what its input gets is None."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> None:
        return None


def main() -> dict[str, list[float] | None]:
    """Differentiate 3.5 x where a gradient arrives, and where none does."""
    x = torch.tensor([1.0, -2.0, 4.0], requires_grad=True)
    y = mul_constant(x, 3.5)
    (reached,) = torch.autograd.grad(y.sum(), x)
    (severed,) = torch.autograd.grad(
        Severed.apply(mul_constant(x, 3.5)).sum(), x, allow_unused=True
    )
    figures = {
        "3.5 x": y.tolist(),
        "gradient": reached.tolist(),
        "gradient where none arrives": None if severed is None else severed.tolist(),
    }
    for name, value in figures.items():
        print(f"{name}: {value}")
    return figures


if __name__ == "__main__":
    main()
