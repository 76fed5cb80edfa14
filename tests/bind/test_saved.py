"""What the node of an operator saves: versions, hooks, graphs used twice, memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from operators import BY_NAME, draw
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import pullback as pb

pytestmark = pytest.mark.compiler


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def exp() -> pb.Operator:
    """An operator that saves its output alone."""
    return pb.operator(
        "pbtest::saved_exp(x[...]) -> y[...]",
        cpu=pb.source(
            """#include <cmath>
            template <class T> void run(T* y, const T* x, long n) {
                for (long i = 0; i < n; ++i) y[i] = std::exp(x[i]);
            }""",
            call="run(y, x, numel(x))",
        ),
        backward={"x": "pbtest::mul(grad, y)"},
    )


@pytest.fixture(name="exp", scope="session")
def exp_fixture() -> pb.Operator:
    """Defined once: a worker that takes tests from another one may come back to this module."""
    assert BY_NAME["mul"].operator
    return exp()


def test_a_saved_input_that_was_changed_in_place_is_noticed() -> None:
    a, b = leaf(3), torch.randn(3, dtype=torch.float64)
    c = BY_NAME["mul"].operator(a, b)
    b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        c.sum().backward()


def test_an_input_that_no_gradient_reads_may_be_changed_in_place() -> None:
    a, b = leaf(3), torch.randn(3, dtype=torch.float64)
    hidden = a * 1
    c = BY_NAME["mul"].operator(hidden, b)
    with torch.no_grad():
        hidden.zero_()
    c.sum().backward()
    torch.testing.assert_close(a.grad, b)


def test_a_saved_output_that_was_changed_in_place_is_noticed(exp: pb.Operator) -> None:
    x = leaf(3)
    y = exp(x)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_input_may_be_changed_in_place_where_only_the_output_is_saved(exp: pb.Operator) -> None:
    x = leaf(3)
    hidden = x * 1
    y = exp(hidden)
    hidden.zero_()
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_an_output_may_be_changed_in_place_and_differentiated() -> None:
    a, b = leaf(3), leaf(3)
    c = BY_NAME["mul"].operator(a, b)
    c.mul_(2)
    c.sum().backward()
    torch.testing.assert_close(a.grad, 2 * b.detach())


@pytest.mark.parametrize("name", ["mul", "linear", "square", "cube", "sin", "matvec"])
def test_a_second_backward_raises_unless_the_graph_is_retained(name: str, seed: int) -> None:
    arguments = draw(BY_NAME[name].examples[0], torch.float64, seed)
    x = arguments[0].requires_grad_()
    once = BY_NAME[name].operator(*arguments)
    once = (once if isinstance(once, Tensor) else once[0]).sum()
    once.backward(retain_graph=True)
    first = x.grad.clone()
    once.backward()
    torch.testing.assert_close(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        once.backward()


def test_hooks_see_each_saved_tensor_once(exp: pb.Operator) -> None:
    packed: list[Tensor] = []
    unpacked: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor.detach()

    def unpack(tensor: Tensor) -> Tensor:
        unpacked.append(tensor)
        return tensor

    for name, count in (("mul", 2), ("linear", 2), ("square", 1), ("matvec", 2)):
        packed.clear()
        unpacked.clear()
        arguments = draw(BY_NAME[name].examples[0], torch.float64, 0)
        for argument in arguments:
            argument.requires_grad_()
        with saved_tensors_hooks(pack, unpack):
            output = BY_NAME[name].operator(*arguments)
        assert len(packed) == count
        output.backward(torch.ones_like(output))
        assert len(unpacked) == count
    packed.clear()
    with saved_tensors_hooks(pack, unpack):
        y = exp(leaf(3))
    assert len(packed) == 1
    torch.testing.assert_close(packed[0], y.detach())


def test_save_on_cpu_and_checkpoint_work(exp: pb.Operator) -> None:
    mul = BY_NAME["mul"].operator
    a, b = leaf(3), leaf(3)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        linear = BY_NAME["linear"].operator(exp(mul(a, b))[None], torch.ones_like(a)[None])
        return linear.sum()

    wanted = torch.autograd.grad(loss(a, b), (a, b))
    with save_on_cpu():
        value = loss(a, b)
    torch.testing.assert_close(torch.autograd.grad(value, (a, b)), wanted)
    value = checkpoint(loss, a, b, use_reentrant=False)
    assert isinstance(value, Tensor)
    torch.testing.assert_close(torch.autograd.grad(value, (a, b)), wanted)
    value = checkpoint(loss, a, b, use_reentrant=True)
    assert isinstance(value, Tensor)
    value.backward()
    torch.testing.assert_close((a.grad, b.grad), wanted)


def test_a_graph_whose_output_is_saved_is_freed(exp: pb.Operator) -> None:
    gc.disable()
    try:
        x = leaf(3)
        y = exp(x)
        output, seen = weakref.ref(y), weakref.ref(x)
        del x, y
        # The node holds the leaf: it is freed when the node is.
        assert (output(), seen()) == (None, None)
    finally:
        gc.enable()


def test_what_no_gradient_reads_is_freed_after_forward(exp: pb.Operator) -> None:
    a, b = leaf(3), torch.randn(3, dtype=torch.float64)
    once, twice = a * 1, a * 2
    unread, read, replaced = weakref.ref(once), weakref.ref(b), weakref.ref(twice)
    y = BY_NAME["mul"].operator(once, b)
    z = exp(twice)
    del once, twice, b
    assert unread() is None
    assert replaced() is None
    assert read() is not None
    y.sum().backward()
    z.sum().backward()


def test_backward_frees_what_was_saved() -> None:
    a = leaf(3)
    b = torch.randn(3, dtype=torch.float64)
    kept = weakref.ref(b)
    c = BY_NAME["mul"].operator(a, b)
    del b
    assert kept() is not None
    c.sum().backward()
    assert kept() is None


def test_a_thousand_calls_leave_no_tensor_behind(exp: pb.Operator) -> None:
    x = leaf(2, 2)

    def step() -> None:
        y = exp(BY_NAME["mul"].operator(x, x)).sum() + BY_NAME["cube"].operator(x)[0].sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        gradient.sum().backward()
        x.grad = None

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    step()
    before = alive()
    for _ in range(1000):
        step()
    assert alive() <= before


def test_anomaly_mode_names_the_forward_call(recwarn: pytest.WarningsRecorder) -> None:
    raising = pb.operator(
        "pbtest::nan_pull(x[n]) -> y[n]",
        python=torch.clone,
        backward=lambda grad: grad * float("nan"),
    )
    x = leaf(3)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan values"):
        raising(x).sum().backward()
    text = "".join(str(warning.message) for warning in recwarn)
    assert "nan_pull" in text or "test_saved.py" in text
    recwarn.clear()
    with torch.autograd.detect_anomaly(check_nan=False):
        a, b = leaf(3), leaf(3)
        BY_NAME["mul"].operator(a, b).sum().backward()
    torch.testing.assert_close(a.grad, b.detach())
    recwarn.clear()


def test_hooks_on_the_node_and_on_tensors_run(seed: int) -> None:
    a, b = leaf(3), leaf(3)
    c = BY_NAME["mul"].operator(a, b)
    calls: list[Any] = []
    node = c.grad_fn
    assert node
    node.register_hook(lambda inputs, outputs: calls.append((len(inputs), len(outputs))))
    node.register_prehook(lambda grads: tuple(2 * g for g in grads))
    a.register_hook(lambda grad: 10 * grad)
    c.retain_grad()
    c.sum().backward()
    assert calls == [(2, 1)]
    torch.testing.assert_close(c.grad, torch.ones_like(c))
    torch.testing.assert_close(a.grad, 20 * b.detach())
    torch.testing.assert_close(b.grad, 2 * a.detach())


def test_a_subset_of_the_inputs_can_be_asked_for(seed: int) -> None:
    a, b = leaf(2, 3), leaf(3)
    matvec = BY_NAME["matvec"].operator
    loss = matvec(a, b).square().sum()
    whole = torch.autograd.grad(loss, (a, b), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, b, retain_graph=True)[0], whole[1])
    torch.testing.assert_close(torch.autograd.grad(loss, a)[0], whole[0])
    unrelated = leaf(2)
    found = torch.autograd.grad(matvec(a, b).sum(), (a, unrelated), allow_unused=True)
    assert found[1] is None


def test_gradients_do_not_flow_into_what_is_detached_or_made_under_no_grad() -> None:
    a, b = leaf(3), leaf(3)
    mul = BY_NAME["mul"].operator
    with torch.no_grad():
        assert not mul(a, b).requires_grad
    with torch.inference_mode():
        inside = mul(a, b)
    assert inside.is_inference()
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        mul(a, inside).sum().backward()
    mul(a.detach(), b).sum().backward()
    assert a.grad is None
