"""What a user's machine does with the package: it prints what it found, for the tests to read."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch

warnings.simplefilter("ignore")
package = sys.argv[1]
ops = __import__(package)
torch.manual_seed(0)
found: dict[str, object] = {"file": ops.__file__, "version": ops.__version__}
for name in ("float32", "float64", "float16", "bfloat16"):
    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(getattr(torch, name)).requires_grad_()
    s = torch.linspace(0, 1, 4).to(x.dtype).requires_grad_()
    for optional in (s, None):
        y = ops.bell(x, optional)
        given = [t for t in (x, optional) if t is not None]
        grads = torch.autograd.grad(y.sum(), given)
        found[f"bell {name} {optional is None}"] = [t.double().tolist() for t in (y, *grads)]
    if name in ("float32", "float64"):
        y = ops.scale(x, 3.0)
        (grad,) = torch.autograd.grad(y.sum(), x)
        found[f"scale {name}"] = [t.double().tolist() for t in (y, grad)]
x = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(2, 4).requires_grad_()
s = torch.ones(4, dtype=torch.float64, requires_grad=True)
found["second"] = torch.autograd.gradgradcheck(ops.bell, (x, s))
orders = [ops.bell(x, s).sum()]
for _ in range(4):
    orders += torch.autograd.grad(orders[-1].sum(), x, create_graph=True)
found["fourth"] = orders[-1].tolist()
found["hessian"] = torch.func.hessian(lambda x: ops.bell(x, s).sum())(x.detach()).sum().item()
found["doubled"] = ops.doubled(torch.ones(2)).tolist()
cache = Path(os.environ["PULLBACK_CACHE"])
found["compiled"] = sorted(path.name for path in cache.iterdir()) if cache.is_dir() else []
sys.stdout.write(json.dumps(found))
