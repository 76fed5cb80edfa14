"""A tutorial's CUDA extension as it stands: nothing here knows of pullback, all asks for a GPU.

On a machine without one: `python -m pullback.cuda train.py` compiles the same files for the CPU.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.cpp_extension import load

HERE = Path(__file__).parent
COMPILERS = ("jit", "setup")


def built(compiler: str) -> Any:  # noqa: ANN401  (a module)
    """Return the extension, compiled now or installed before."""
    if compiler == "jit":
        return load(
            name="add2",
            extra_include_paths=[str(HERE / "include")],
            sources=[str(HERE / "add2_ops.cpp"), str(HERE / "add2_kernel.cu")],
            verbose=False,
        )
    import add2  # noqa: PLC0415  # pyright: ignore  (what setup.py built)

    return add2


class AddModel(nn.Module):
    """A model without input: its parameters are all there is."""

    def __init__(self, extension: Any, n: int) -> None:  # noqa: ANN401
        super().__init__()
        self.n = n
        self.a = nn.Parameter(torch.randn(n))
        self.b = nn.Parameter(torch.randn(n))

        class AddModelFunction(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Tensor, b: Tensor, n: int) -> Tensor:  # noqa: ANN401
                c = torch.empty(n).to(device="cuda:0")
                extension.torch_launch_add2(c, a, b, n)
                return c

            @staticmethod
            def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
                return (grad, grad, None)

        self.add = AddModelFunction.apply

    def forward(self) -> Tensor:
        a2 = torch.square(self.a)
        b2 = torch.square(self.b)
        return self.add(a2, b2, self.n)


def main(compiler: str = "jit", epochs: int = 500) -> dict[int, float]:
    """Train; return the losses printed, by epoch."""
    torch.manual_seed(0)
    model = AddModel(built(compiler), 1024).to("cuda:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    printed: dict[int, float] = {}
    for epoch in range(epochs):
        optimizer.zero_grad()
        loss = model().sum()
        loss.backward()
        optimizer.step()
        if epoch % 25 == 0:
            printed[epoch] = loss.item()
            print(f"epoch {epoch:>3d}: loss = {loss:>8.3f}")
    return printed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", choices=COMPILERS, default="jit")
    main(parser.parse_args().compiler)
