"""y = x Wᵀ (+ b): a Function in both its styles, forward with ctx and forward with setup_context.

Each is given to pullback as it is; the module and the gradient checks use the operators.
"""

import torch
from torch import Tensor, nn
from torch.autograd import Function, gradcheck

import pullback as pb

# The Functions are as their tutorial writes them, without annotations.
# ruff: noqa: ANN001, ANN205
# pyright: basic


class LinearFunction(Function):
    @staticmethod
    # bias is an optional argument
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None

        # These needs_input_grad checks are optional and there only to improve efficiency.
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)

        return grad_input, grad_weight, grad_bias


class LinearSetupFunction(Function):
    @staticmethod
    def forward(input, weight, bias):
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    # inputs is a tuple of all of the inputs passed to forward, output is what it returned
    def setup_context(ctx, inputs, output):
        input, weight, bias = inputs
        ctx.save_for_backward(input, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None

        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)

        return grad_input, grad_weight, grad_bias


linear = pb.operator(
    "functions::linear(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
    function=LinearFunction,
)
linear_setup = pb.operator(
    "functions::linear_setup(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
    function=LinearSetupFunction,
)


class Linear(nn.Module):
    def __init__(self, input_features: int, output_features: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(output_features, input_features))
        if bias:
            self.bias = nn.Parameter(torch.empty(output_features))
        else:
            self.register_parameter("bias", None)

        nn.init.uniform_(self.weight, -0.1, 0.1)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -0.1, 0.1)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def main(seed: int = 0) -> dict[str, bool]:
    """Check the gradients against finite differences, in both styles."""
    torch.manual_seed(seed)
    input = (
        torch.randn(20, 20, dtype=torch.double, requires_grad=True),
        torch.randn(30, 20, dtype=torch.double, requires_grad=True),
    )
    bias = torch.randn(30, dtype=torch.double, requires_grad=True)
    figures = {
        "ctx": gradcheck(linear, input, eps=1e-6, atol=1e-4),
        "ctx, with a bias": gradcheck(linear, (*input, bias), eps=1e-6, atol=1e-4),
        "setup_context": gradcheck(linear_setup, input, eps=1e-6, atol=1e-4),
        "setup_context, with a bias": gradcheck(linear_setup, (*input, bias), eps=1e-6, atol=1e-4),
        "module": gradcheck(Linear(20, 30).double(), input[0], eps=1e-6, atol=1e-4),
    }
    for name, test in figures.items():
        print(f"{name}: {test}")
    return figures


if __name__ == "__main__":
    main()
