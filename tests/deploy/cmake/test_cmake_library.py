"""A library that CMake built, in a process where pullback has not defined its operators."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from building import command
from cases import cases, outcome
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

# A build takes half a minute: what is written for CMake is a matter of each run, what it builds of
# the thorough one.
pytestmark = [pytest.mark.compiler, pytest.mark.thorough]

FORMULAS = ("bias", "plane")


@pytest.fixture(scope="module")
def ship(library: Path) -> Any:
    """The operators of the library."""
    torch.ops.load_library(str(library))
    return torch.ops.shiplib


@pytest.fixture(scope="module")
def expected(project: Path) -> dict[str, list[Tensor | None]]:
    """What Python gave for the same calls."""
    return torch.load(project / "expected.pt")


def double(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def symbolic(mode: FakeTensorMode, tensor: Tensor) -> Tensor:
    """Return a fake tensor, each of whose sizes is a symbol."""
    sizes = [DimDynamic.DYNAMIC] * tensor.dim()
    context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
    return mode.from_tensor(tensor, symbolic_context=context)


@pytest.mark.parametrize("what", cases())
def test_the_library_gives_the_numbers_that_python_gives(
    what: str, ship: Any, expected: dict[str, list[Tensor | None]]
) -> None:
    name, arguments = cases()[what]
    # A formula's functions may differ by units in the last place, since Python compiles them for
    # the CPU at hand and the library for many; an author's kernel does what C++ says.
    ulps = 16 if name in FORMULAS else 0
    for ours, theirs in zip(outcome(ship, name, arguments), expected[what], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert ours.stride() == theirs.stride()
            bound = ulps * torch.finfo(ours.dtype).eps
            torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound)


@pytest.mark.parametrize("name", ["multiply", "bias"])
def test_derivatives_are_right_to_the_second(name: str, ship: Any) -> None:
    operator, inputs = getattr(ship, name), (double(2, 3), double(3))
    assert torch.autograd.gradcheck(operator, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(operator, inputs)


def test_a_derivative_that_was_left_out_is_missed_where_it_is_asked_for(ship: Any) -> None:
    x, b = double(2, 3), double(3)
    (first,) = torch.autograd.grad(ship.bias(x, b).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    of = "the gradient of the gradient of shiplib::bias"
    with pytest.raises(RuntimeError, match=rf"derivative-left-out \[PB732\]: {of}: "):
        torch.autograd.grad(second.sum(), x)


def test_a_mask_and_a_subset_of_gradients_are_those_of_all(ship: Any) -> None:
    r, t = double(5), double(5)
    x, y = ship.plane(r, t)
    (x + y).sum().backward()
    torch.testing.assert_close(t.grad, r * (t.cos() - t.sin()))
    torch.testing.assert_close(r.grad, t.cos() + t.sin())
    (alone,) = torch.autograd.grad(ship.plane(r.detach(), t)[0].sum(), t)
    torch.testing.assert_close(alone, -r * t.sin())


def test_forward_mode_and_vmap_go_through_the_library(ship: Any) -> None:
    x, b, v = (double(3).detach() for _ in range(3))
    tangent = torch.func.jvp(lambda x: ship.multiply(x, b), (x,), (v,))[1]
    torch.testing.assert_close(tangent, b * v)
    batched = torch.func.vmap(ship.bias, (0, None))(torch.stack([x, v]), b)
    torch.testing.assert_close(batched[1], ship.bias(v, b))


def test_second_derivatives_need_no_loop_for_every_choice_of_tangents(ship: Any) -> None:
    r, t, v = (double(4).detach() for _ in range(3))

    def gradients(r: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        return torch.func.grad(lambda r, t: ship.plane(r, t)[0].sum(), (0, 1))(r, t)

    # No gradient of y arrives, and no tangent of it: no loop was compiled for just that.
    of_r, of_t = torch.func.jvp(gradients, (r, t), (v, torch.ones_like(v)))[1]
    torch.testing.assert_close(of_r, -t.sin())
    torch.testing.assert_close(of_t, -v * t.sin() - r * t.cos())


def test_autocast_follows_the_policy_of_the_author(ship: Any) -> None:
    x = torch.randn(3, requires_grad=True)
    with torch.autocast("cpu", torch.float16):
        lowered = ship.lowered(x)
        assert lowered.dtype == torch.float16
        assert ship.multiply(x, x).dtype == torch.float32
    assert ship.lowered(x).dtype == torch.float32
    (grad,) = torch.autograd.grad(lowered.float().sum(), x)
    assert grad.dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ship: ship.bias(double(2, 3), double(4)), r"size-mismatch \[PB112\]"),
        (
            lambda ship: ship.repeat(double(2, 3).detach(), -1),
            r"output-size \[PB114\].* would be -2",
        ),
        (lambda ship: ship.multiply(double(2).half(), double(2).half()), r"kernel-dtype \[PB302\]"),
        (
            lambda ship: ship.bias(*[double(3).to(torch.complex64)] * 2),
            r"loop-left-out \[PB731\].*complex64; it has float32, float64, bfloat16, float16",
        ),
        (
            lambda ship: ship.on_gpu(torch.ones(2)),
            r"no-kernel \[PB351\].*for cpu\n.*import the file that defines the operator",
        ),
        (lambda ship: ship.repeat(double(2, 3), 2).sum().backward(), r"no-derivative \[PB308\]"),
    ],
)
def test_what_is_wrong_is_said_as_in_python(call: Any, message: str, ship: Any) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(ship)


def test_symbolic_sizes_stay_symbolic(ship: Any) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x, b = symbolic(mode, torch.randn(4, 5)), symbolic(mode, torch.randn(6))
    rows, columns = x.shape
    assert str(rows).startswith("s")
    with mode:
        assert [str(n) for n in ship.repeat(x, 3).shape] == [f"3*{rows}", str(columns)]
        with pytest.raises(RuntimeError, match=rf"PB112.*is {columns} in 'x' .* but s\d+ in 'b'"):
            ship.bias(x, b)


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(4, 5),
        torch.randn(5, 4).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(3, 1, 5).permute(2, 0, 1).expand(5, 3, 5),
        torch.randn(2, 0, 5),
    ],
    ids=lambda x: f"{tuple(x.shape)} {x.stride()}",
)
def test_a_fake_tensor_has_the_strides_of_a_real_one(x: Tensor, ship: Any) -> None:
    b = torch.randn(5 if x.shape[-1] == 5 else 4)
    real = ship.bias(x, b)
    mode = FakeTensorMode(shape_env=ShapeEnv())
    for make in (mode.from_tensor, lambda tensor: symbolic(mode, tensor)):
        fakes = [make(x), make(b)]
        with mode:
            fake = ship.bias(*fakes)
        assert [int(n) for n in fake.stride()] == list(real.stride())


def test_pytorch_finds_no_fault_in_the_registration(ship: Any) -> None:
    torch.library.opcheck(ship.multiply.default, (double(3), double(3)))
    torch.library.opcheck(ship.bias.default, (double(2, 3), double(3), 0.5))
    torch.library.opcheck(ship.plane.default, (double(3), double(3)))
    torch.library.opcheck(ship.affine.default, (double(3), None, 2.0, True, "up"))


def test_compiled_code_calls_it_in_one_graph(ship: Any) -> None:
    def loss(x: Tensor, b: Tensor) -> Tensor:
        return ship.bias(ship.multiply(x, b), b).sum()

    x, b = double(2, 3), double(3)
    torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")(x, b).backward()
    (wanted,) = torch.autograd.grad(loss(x, b), x)
    torch.testing.assert_close(x.grad, wanted)


def test_a_process_without_pullback_has_the_same_numbers(
    library: Path, expected: dict[str, list[Tensor | None]], tmp_path: Path
) -> None:
    torch.save(expected["a formula"][0], tmp_path / "wanted.pt")
    code = f"""
        import sys, torch
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from cases import cases
        torch.ops.load_library({str(library)!r})
        got = torch.ops.shiplib.bias(*cases()["a formula"][1])
        torch.testing.assert_close(got, torch.load("wanted.pt"))
        assert "pullback" not in sys.modules
    """
    ran = command("-c", textwrap.dedent(code), folder=tmp_path, PYTHONPATH="")
    assert ran.returncode == 0, ran.stderr


def test_an_exported_program_runs_in_a_process_without_pullback(
    library: Path, tmp_path: Path, ship: Any
) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def forward(self, x: Tensor) -> Tensor:
            return ship.bias(ship.affine(x, self.weight), self.weight, 0.5)

    model, x = Model(), torch.randn(4, 3)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program, tmp_path / "model.pt2")
    torch.save((x[:2], model(x[:2])), tmp_path / "wanted.pt")
    code = f"""
        import sys, torch
        torch.ops.load_library({str(library)!r})
        x, wanted = torch.load("wanted.pt")
        got = torch.export.load("model.pt2").module()(x)
        torch.testing.assert_close(got, wanted)
        got.sum().backward()
        assert "pullback" not in sys.modules
    """
    ran = command("-W", "ignore", "-c", textwrap.dedent(code), folder=tmp_path, PYTHONPATH="")
    assert ran.returncode == 0, ran.stderr


def test_the_library_names_no_folder_of_this_machine_and_no_python(library: Path) -> None:
    dynamic = subprocess.run(
        ["readelf", "-d", library], capture_output=True, text=True, check=True
    ).stdout
    needed = re.findall(r"NEEDED.*\[(.*?)\]", dynamic)
    assert {"libtorch_cpu.so", "libc10.so"} < set(needed)
    assert not [name for name in needed if "python" in name]
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic
    content = library.read_bytes()
    for folder in (library.parents[1], Path(__file__).parents[3], Path(torch.__file__).parent):
        assert str(folder).encode() not in content


def test_only_functions_for_others_are_shown(library: Path) -> None:
    listed = subprocess.run(
        ["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split(maxsplit=2)[2] for line in listed.splitlines()}
    shown = ("shiplib::", "aoti_torch_cpu_", "pullback_shim.cpu.shiplib.")
    assert [name for name in names if not name.startswith(shown)] == []
    assert {"aoti_torch_cpu_bias", "pullback_shim.cpu.shiplib.bias"} < names
