"""A tensor times a Python number: a Function whose number gets None for its gradient."""

import torch
from torch.autograd import Function

import pullback as pb

# The Function is as its tutorial writes it, without annotations.
# ruff: noqa: ANN001, ANN205
# pyright: basic


class MulConstant(Function):
    @staticmethod
    def forward(tensor, constant):
        return tensor * constant

    @staticmethod
    def setup_context(ctx, inputs, output):
        # ctx is a context object that can be used to stash information for backward.
        _tensor, constant = inputs
        ctx.set_materialize_grads(False)
        ctx.constant = constant

    @staticmethod
    def backward(ctx, grad_output):
        # Here we must handle a grad_output that is None. In this case we can skip unnecessary
        # computations and just return None.
        if grad_output is None:
            return None, None

        # We return as many input gradients as there were arguments. Gradients of non-Tensor
        # arguments to forward must be None.
        return grad_output * ctx.constant, None


mul_constant = pb.operator(
    "functions::mul_constant(tensor[...], constant: float) -> output[...]",
    function=MulConstant,
)


class Severed(Function):
    """Passes a tensor on and lets no gradient back: what its input gets is None."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


def main() -> dict[str, list[float] | None]:
    """Differentiate 3.5 x where a gradient arrives, and where none does."""
    x = torch.tensor([1.0, -2.0, 4.0], requires_grad=True)
    y = mul_constant(x, 3.5)
    (reached,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    (none,) = torch.autograd.grad(Severed.apply(y).sum(), x, allow_unused=True)
    figures = {
        "3.5 x": y.tolist(),
        "gradient": reached.tolist(),
        "gradient where none arrives": None if none is None else none.tolist(),
    }
    for name, value in figures.items():
        print(f"{name}: {value}")
    return figures


if __name__ == "__main__":
    main()
