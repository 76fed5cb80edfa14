"""An operator that has a CUDA kernel only, and a model that uses it."""

import torch

import pullback as pb

add2 = pb.operator(
    "tour::gpu_add2(a[...], b[...]) -> c[...]",
    cuda=pb.source("gpu_add2.cu", call="launch_add2(c, a, b, numel(c))"),
    backward={"a": "grad", "b": "grad"},
)


class AddModel(torch.nn.Module):
    """Two parameters, squared by PyTorch and added by the operator."""

    def __init__(self, n: int = 1024) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.randn(n))
        self.b = torch.nn.Parameter(torch.randn(n))

    def forward(self) -> torch.Tensor:
        """Return a² + b²."""
        return add2(self.a**2, self.b**2)
