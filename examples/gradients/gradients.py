"""The gradients of Q = 3a³ - b²: 9a² and -2b, and the graph that `backward()` walks."""

import torch
from torch import Tensor

import pullback as pb


def power_backward(grad: Tensor, x: Tensor, n: int) -> Tensor:
    """Return n xⁿ⁻¹ grad: of the operator itself, so it is differentiable any number of times."""
    return grad * n * power(x, n - 1) if n else torch.zeros_like(x)


power = pb.operator(
    "examples::power(x[...], n: int) -> y[...]",
    cpu=pb.source("q.cpp", call="power(y, x, n, numel(x))"),
    backward=power_backward,
)
combine = pb.operator(
    "examples::combine(u[...], v[...]) -> q[...]",
    cpu=pb.source("q.cpp", call="combine(q, u, v, numel(q))"),
    backward={"u": "aten::mul.Scalar(grad, 3)", "v": "aten::neg(grad)"},
)


def q_of(a: Tensor, b: Tensor) -> Tensor:
    """Return Q = 3a³ - b²."""
    return combine(power(a, 3), power(b, 2))


def main() -> dict[str, list[float]]:
    """Differentiate with an external gradient of ones, then `Q.sum()`: the two agree."""
    a = torch.tensor([2.0, 3.0], requires_grad=True)
    b = torch.tensor([6.0, 4.0], requires_grad=True)

    print(pb.graph(q_of, a, b), end="\n\n")
    q = q_of(a, b)
    q.backward(gradient=torch.ones_like(q))
    gradients = {"a, of ones": a.grad, "b, of ones": b.grad}

    a.grad = b.grad = None
    q_of(a, b).sum().backward()
    gradients |= {"a, of Q.sum()": a.grad, "b, of Q.sum()": b.grad}

    figures = {name: gradient.tolist() for name, gradient in gradients.items()}
    for name, values in figures.items():
        print(f"gradient of {name:14}{values}")
    return figures


if __name__ == "__main__":
    main()
