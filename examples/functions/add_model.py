"""Train a² + b² to zero with a compiled module that adds, called from a Function.

The Function allocates the result and calls the module, as it does however that was compiled. Where
there is no GPU or no CUDA compiler, a Python class stands in for the module.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.cpp_extension import CUDA_HOME, is_ninja_available, load_inline

import pullback as pb

# The Function and the model are as their tutorial writes them, without annotations.
# ruff: noqa: ANN001, ANN205
# pyright: basic

device = "cuda:0" if torch.cuda.is_available() else "cpu"
LAUNCHER = "void torch_launch_add2(torch::Tensor c, torch::Tensor a, torch::Tensor b, int64_t n)"
CALL = "{ launch_add2(c.data_ptr<float>(), a.data_ptr<float>(), b.data_ptr<float>(), n); }"


class StandIn:
    """What the compiled module offers."""

    @staticmethod
    def torch_launch_add2(c, a, b, n):
        torch.add(a[:n], b[:n], out=c)


def compiled() -> Any:  # noqa: ANN401
    """Compile the kernel in ../add_model with PyTorch's own tools."""
    kernel = Path(__file__).parents[1] / "add_model" / "add2.cu"
    sources = [kernel.read_text(), LAUNCHER + CALL]
    return load_inline("add2", [LAUNCHER + ";"], sources, functions=["torch_launch_add2"])


can_compile = torch.cuda.is_available() and CUDA_HOME and is_ninja_available()
cuda_module = compiled() if can_compile else StandIn


class AddModelFunction(Function):
    @staticmethod
    def forward(ctx, a, b, n):
        c = torch.empty(n).to(device=device)
        cuda_module.torch_launch_add2(c, a, b, n)
        return c

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output, grad_output, None)


add2 = pb.operator("functions::add2(a[m], b[m], n: int) -> c[n]", function=AddModelFunction)


class AddModel(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n
        self.a = nn.Parameter(torch.Tensor(self.n))
        self.b = nn.Parameter(torch.Tensor(self.n))
        self.a.data.normal_(mean=0.0, std=1.0)
        self.b.data.normal_(mean=0.0, std=1.0)

    def forward(self) -> Tensor:
        a2 = torch.square(self.a)
        b2 = torch.square(self.b)
        return add2(a2, b2, self.n)


def train(model: nn.Module) -> dict[int, float]:
    """Return the losses printed, by epoch."""
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    printed = {}
    for epoch in range(500):
        opt.zero_grad()
        loss = model().sum()
        loss.backward()
        opt.step()
        if epoch % 25 == 0:
            printed[epoch] = loss.item()
            print(f"epoch {epoch:>3d}: loss = {loss:>8.3f}")
    return printed


def main(seed: int = 0) -> dict[int, float]:
    """Train on the device at hand."""
    torch.manual_seed(seed)
    return train(AddModel(1024).to(device=device))


if __name__ == "__main__":
    main()
