"""What a user's machine does with the package: it prints what it found, for the tests to read."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch

package = sys.argv[1]
ops = __import__(package)
torch.manual_seed(0)
found: dict[str, object] = {"file": ops.__file__, "version": ops.__version__}
with warnings.catch_warnings(record=True) as notices:
    warnings.simplefilter("always")
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
    hessian = torch.func.hessian(lambda x: ops.bell(x, s).sum())(x.detach())
    found["hessian"] = hessian.sum().item()
ours = [each for each in notices if each.category.__module__.startswith("pullback")]
found["notices"] = [str(each.message) for each in ours]
warnings.simplefilter("ignore")
orders = [ops.bell(x, s).sum()]
for _ in range(4):
    orders += torch.autograd.grad(orders[-1].sum(), x, create_graph=True)
found["fourth"] = orders[-1].tolist()
found["doubled"] = ops.doubled(torch.ones(2)).tolist()
x, y = torch.linspace(-1, 1, 5).requires_grad_(), torch.linspace(0, 2, 4)
u = ops.sums(x, y)
found["sums"] = [t.tolist() for t in (u, *torch.autograd.grad(u.sum(), x))]
found["plans"] = [
    str(ops.sums.plan(torch.rand(n).to(dtype).requires_grad_(), torch.rand(2 * n).to(dtype)))
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    for n in (7, 1000)
]
(grad,) = torch.autograd.grad(ops.sums(x, y).sum(), x, create_graph=True)
found["curved"] = torch.autograd.grad(grad.sum(), x)[0].tolist()
cache = Path(os.environ["PULLBACK_CACHE"])
found["compiled"] = sorted(path.name for path in cache.rglob("*.so")) if cache.is_dir() else []
sys.stdout.write(json.dumps(found))
