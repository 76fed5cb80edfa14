"""What a call of an adopted autograd.Function costs, beside its own `apply`; 16 floats."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import pullback as pb
from benchmarks import peers
from benchmarks.measure import Figure, by_turns, scaled, show
from benchmarks.peers import Multiply

CTX, SETUP = "apply, ctx", "apply, setup_context"
OURS, OURS_SETUP = "pullback, ctx", "pullback, setup_context"
LINE = "(a[...], b[...]) -> c[...]"


def candidates() -> dict[str, Multiply]:
    """Return the same Function in both styles: its own `apply`, adopted, and as a `custom_op`."""
    with_ctx, with_setup = (
        peers.class_with_ctx(torch.mul),
        peers.class_with_setup_context(torch.mul),
    )
    adopted = pb.operator(f"bench::adopted{LINE}", function=with_ctx)
    return {
        CTX: with_ctx.apply,
        SETUP: with_setup.apply,
        OURS: adopted,
        OURS_SETUP: pb.operator(f"bench::adopted_setup{LINE}", function=with_setup),
        "pullback, through torch.ops": adopted.overload,
        "torch.library.custom_op": peers.custom_op(torch.mul, name="bench_custom::product"),
    }


def measure(rounds: int, calls: int) -> dict[str, list[Figure]]:
    """Time no grad, forward, and forward and backward; microseconds."""
    torch.set_num_threads(1)
    a, b = (torch.randn(16, requires_grad=True) for _ in range(2))
    plain_a, plain_b, ones = a.detach(), b.detach(), torch.ones(16)
    built = candidates()
    for name, mul in built.items():
        assert torch.equal(mul(plain_a, plain_b), plain_a * plain_b), name
        found = torch.stack(torch.autograd.grad(mul(a, b), (a, b), ones))
        assert torch.equal(found, torch.stack([plain_b, plain_a])), name

    def columns(mul: Multiply) -> list[Callable[[], object]]:
        return [
            lambda: mul(plain_a, plain_b),
            lambda: mul(a, b),
            lambda: torch.autograd.grad(mul(a, b), (a, b), ones),
        ]

    figures: dict[str, list[Figure]] = {name: [] for name in built}
    for column in range(3):
        runs = {name: columns(mul)[column] for name, mul in built.items()}
        for name, value in by_turns(runs, rounds=rounds, calls=calls).items():
            figures[name].append(scaled(value, 1e6))
    return figures


def graph_breaks() -> int:
    """Return how often `torch.compile` stops in a function that calls the operator."""
    adopted = pb.operator(f"bench::compiled{LINE}", function=peers.class_with_ctx(torch.mul))

    def function(a: Tensor, b: Tensor) -> Tensor:
        return adopted(a.sin(), b).cos()

    arguments = (torch.randn(4, requires_grad=True), torch.randn(4))
    return torch._dynamo.explain(function)(*arguments).graph_break_count


def main(rounds: int = 40, calls: int = 1000) -> dict[str, list[Figure]]:
    """Print the table; return the figures in microseconds."""
    figures = measure(rounds, calls)
    base = figures[CTX]
    rows = [
        [name, *(f"{v}  ×{v.median / b.median:.2f}" for v, b in zip(values, base, strict=True))]
        for name, values in figures.items()
    ]
    slowest = max(
        ours.median / theirs.median
        for name in (OURS, OURS_SETUP)
        for ours, theirs in zip(figures[name], figures[SETUP], strict=True)
    )
    show(
        "Call of an adopted Function, µs (median ± half the quartiles' distance, × apply, ctx)",
        ["", "no grad", "forward", "forward + backward"],
        rows,
        [
            f"aim: no slower than apply with setup_context, in any column: {slowest:.2f}",
            "aim: forward + backward ≤ 1.25 × apply, ctx: "
            f"{figures[OURS][2].median / base[2].median:.2f}",
            f"aim: no graph break under torch.compile: {graph_breaks()}",
        ],
    )
    return figures


if __name__ == "__main__":
    main()
