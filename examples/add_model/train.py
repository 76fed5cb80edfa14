"""Train a² + b² to zero: PyTorch squares, your kernel adds. Runs on the GPU if there is one.

Each step multiplies a and b by 1 - 2·0.01, so every 25 epochs the loss shrinks by 0.98⁵⁰ = 0.36417.
The operator is compiled in one of three ways, from the one definition in add2.py:

    python train.py --compiler jit     when it is imported
    python train.py --compiler setup   as an installed package
    python train.py --compiler cmake   as a library of CMake's, which pullback need not load
"""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
COMPILERS = ("jit", "setup", "cmake")
SETUP = "pullback build add2.py --as setup --name add2_package && pip install ./add2_package-setup"
CMAKE = "pullback build add2.py --as cmake --into add2-cmake"


def operator(compiler: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the operator, compiled in one of the three ways."""
    if compiler == "jit":
        return import_module("add2").add2
    if compiler == "setup":
        if find_spec("add2_package") is None:
            sys.exit(f"add2_package is not installed; in {HERE}:\n  {SETUP}")
        return import_module("add2_package").add2
    if compiler == "cmake":
        library = next(HERE.glob("add2-cmake/lib/*.so"), None)
        if library is None:
            sys.exit(f"there is no library in add2-cmake/lib; in {HERE}:\n  {CMAKE}")
        torch.ops.load_library(library)
        return torch.ops.examples.add2
    raise ValueError(f"compiler '{compiler}' is none of {', '.join(COMPILERS)}")


class AddModel(nn.Module):
    """A model without input: its parameters are all there is."""

    def __init__(self, n: int = 1024, compiler: str = "jit") -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(n))
        self.b = nn.Parameter(torch.randn(n))
        self.add2 = operator(compiler)

    def forward(self) -> Tensor:
        return self.add2(self.a**2, self.b**2)


def train(model: nn.Module, *, epochs: int = 500, every: int = 25) -> dict[int, float]:
    """Minimise the sum of the model's output; return the losses printed, by epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    printed: dict[int, float] = {}
    for epoch in range(epochs):
        loss = model().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % every == 0:
            printed[epoch] = loss.item()
            print(f"epoch {epoch:3d}   loss {loss.item():8.3f}")
    return printed


def main(seed: int = 0, compiler: str = "jit") -> dict[int, float]:
    """Train on the device at hand."""
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"training on {device}")
    return train(AddModel(compiler=compiler).to(device))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a² + b² to zero.")
    parser.add_argument("--compiler", choices=COMPILERS, default="jit")
    main(compiler=parser.parse_args().compiler)
