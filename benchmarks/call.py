"""What a call costs: an elementwise operator of two inputs on 16 floats, one thread."""

from __future__ import annotations

from collections.abc import Callable

import torch

import pullback as pb
from benchmarks import peers
from benchmarks.measure import Figure, by_turns, scaled, show
from benchmarks.peers import Multiply

BASE = "torch.mul"
NATIVE_BACKWARD = """
template <class T>
void mul_backward(T* grad_a, T* grad_b, const T* grad, const T* a, const T* b, long n) {
  for (long i = 0; i < n; ++i) {
    if (grad_a) grad_a[i] = grad[i] * b[i];
    if (grad_b) grad_b[i] = grad[i] * a[i];
  }
}
"""


def ours() -> dict[str, Multiply]:
    """Return pullback's operators: a backward by expressions, a native one, and one in Python."""
    by_expressions = pb.operator(
        "bench::mul(a[...], b[...]) -> c[...]",
        cpu=pb.source(peers.KERNEL, call="mul(c, a, b, numel(c))"),
        backward={"a": "bench::mul(grad, b)", "b": "bench::mul(grad, a)"},
    )
    pb.operator(
        "bench::mul_backward(grad[...], a[...], b[...]) -> (grad_a[...], grad_b[...])",
        cpu=pb.source(
            NATIVE_BACKWARD, call="mul_backward(grad_a, grad_b, grad, a, b, numel(grad))"
        ),
    )
    native = pb.operator(
        "bench::mul2(a[...], b[...]) -> c[...]",
        cpu=pb.source(peers.KERNEL, call="mul(c, a, b, numel(c))"),
        backward="bench::mul_backward",
    )
    return {
        "pullback": by_expressions,
        "pullback, native backward": native,
        "pullback, through torch.ops": by_expressions.overload,
    }


def in_python(kernel: Multiply) -> Multiply:
    """Return pullback's operator around a Python function, as `custom_op` has it."""
    return pb.operator(
        "bench::python_mul(a[...], b[...]) -> c[...]",
        python=kernel,
        backward={"a": "bench::python_mul(grad, b)", "b": "bench::python_mul(grad, a)"},
    )


def others() -> tuple[dict[str, Multiply], dict[str, str]]:
    """Return the peers, and those that cannot be built here with the reason."""
    built: dict[str, Multiply] = {BASE: torch.mul}
    absent: dict[str, str] = {}

    def add(names: dict[str, Callable[[Multiply], Multiply]], make: Callable[[], Multiply]) -> None:
        try:
            kernel = make()
        except Exception as error:  # a peer that is missing must not end the others' run
            absent.update(dict.fromkeys(names, str(error).splitlines()[0]))
            return
        built.update({name: wrap(kernel) for name, wrap in names.items()})

    add({"C++ autograd::Function, TORCH_LIBRARY": lambda mul: mul}, peers.native_autograd)
    add(
        {
            "autograd.Function, ctx": peers.function_with_ctx,
            "autograd.Function, setup_context": peers.function_with_setup_context,
            "torch.library.custom_op": peers.custom_op,
            "pullback, python=": in_python,
            "torch.library impl + Function": peers.library_and_function,
        },
        peers.pybind_kernel,
    )
    add({"tvm-ffi + Function": peers.function_with_ctx}, peers.tvm_kernel)
    return built, absent


def measure(rounds: int, calls: int) -> tuple[dict[str, list[Figure]], dict[str, str]]:
    """Time no grad, forward, and forward and backward; microseconds."""
    torch.set_num_threads(1)
    a, b = (torch.randn(16, requires_grad=True) for _ in range(2))
    plain_a, plain_b, ones = a.detach(), b.detach(), torch.ones(16)
    peers_built, absent = others()
    candidates = {**ours(), **peers_built}
    for name, mul in candidates.items():
        gradients = torch.autograd.grad(mul(a, b), (a, b), ones)
        assert torch.equal(mul(plain_a, plain_b), plain_a * plain_b), name
        assert torch.equal(torch.stack(gradients), torch.stack([plain_b, plain_a])), name

    def columns(mul: Multiply) -> list[Callable[[], object]]:
        return [
            lambda: mul(plain_a, plain_b),
            lambda: mul(a, b),
            lambda: torch.autograd.grad(mul(a, b), (a, b), ones),
        ]

    figures: dict[str, list[Figure]] = {name: [] for name in candidates}
    for column in range(3):
        runs = {name: columns(mul)[column] for name, mul in candidates.items()}
        for name, value in by_turns(runs, rounds=rounds, calls=calls).items():
            figures[name].append(scaled(value, 1e6))
    return figures, absent


def main(rounds: int = 40, calls: int = 1000) -> dict[str, list[Figure]]:
    """Print the table; return the figures in microseconds."""
    figures, absent = measure(rounds, calls)
    base = figures[BASE]
    rows = [
        [name, *(f"{v}  ×{v.median / b.median:.2f}" for v, b in zip(values, base, strict=True))]
        for name, values in figures.items()
    ]
    rows += [[name, "absent", "", ""] for name in absent]
    best = min(figures["pullback"][2].median, figures["pullback, native backward"][2].median)
    empty = by_turns({"": lambda: torch.empty(16)}, rounds=rounds, calls=calls)[""]
    show(
        "Call of c = a · b on 16 floats, µs (median ± half the quartiles' distance, × torch.mul)",
        ["", "no grad", "forward", "forward + backward"],
        rows,
        [
            f"aim: forward + backward ≤ 1.10 × torch.mul: {best / base[2].median:.2f}",
            f"aim: no grad ≤ 1.5 × torch.mul: {figures['pullback'][0].median / base[0].median:.2f}",
            f"for comparison, torch.empty(16) alone: {scaled(empty, 1e6)} µs",
            *(f"absent: {name}: {reason}" for name, reason in absent.items()),
        ],
    )
    return figures


if __name__ == "__main__":
    main()
