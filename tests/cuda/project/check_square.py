"""The project's own tests, which know of no pullback."""

import pytest
import torch
from ops import _C  # pyright: ignore  (built by setup.py)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_square() -> None:
    x = torch.randn(100, device=DEVICE)
    assert x.is_cuda
    assert x.device.type == "cuda"
    y = torch.empty_like(x)
    _C.square(x.data_ptr(), y.data_ptr(), 100)
    torch.testing.assert_close(y.cpu(), 2 * (x * x).cpu())
