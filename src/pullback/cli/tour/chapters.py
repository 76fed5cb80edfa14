"""The chapters of the tour, in order."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.text import Text
from torch import Tensor

from pullback.bind import runtime
from pullback.bind.declare import operator
from pullback.cli.screen import clock, say, table
from pullback.cli.tour import check, cuda, formulas, index, timing
from pullback.cli.tour.verify import Comparison, compare
from pullback.diagnostic import Rule
from pullback.graphs import graph
from pullback.kernels import cache

FileInTheWay = Rule("PB803", "file-in-the-way")

FILES = Path(__file__).parent / "files"
STEPS, POINTS, RATE = 2000, 2000, 5e-6
EPOCHS, SHOWN = 500, (0, 25, 50, 75, 100, 200, 300, 400, 499)


def tell(console: Console, where: Path) -> bool:
    """Tell the whole tour, with its files in a folder; return whether a gradient was wrong."""
    torch.manual_seed(0)
    with clock() as took:
        say(console, f"pullback on PyTorch {torch.__version__}; the files of this tour are in")
        say(console, f"{where}")
        prepare(console)
        add2 = define(console, where)
        legendre3 = load(where, "legendre3")
        wrong = verify(console, add2, legendre3)
        train(console, add2)
        fit(console, legendre3)
        show_graph(console, add2)
        show_times(console, add2)
        chapter(console, "7  Write the mathematics, get the operator")
        formulas.show(console)
        show_cuda(console, where)
        wrong = show_check(console, where) or wrong
        chapter(console, "10  Sums over pairs, without a matrix of them")
        index.show(console)
    show_next(console, where, took=str(took))
    return wrong


def chapter(console: Console, title: str) -> None:
    """Begin a chapter."""
    say(console, f"\n{title}", style="bold")


def prepare(console: Console) -> None:
    """Build the runtime, once for a PyTorch."""
    known = cache.look_up(runtime.plan())
    with clock() as took:
        runtime.load()
    state = "found in the cache" if known else f"built for this PyTorch, once, in {took}"
    say(console, f"The runtime: {state}.", style="dim")


def define(console: Console, where: Path) -> ModuleType:
    """Show a kernel and the line that defines the operator, and compile it."""
    chapter(console, "1  One line, one operator")
    say(console, "A kernel in plain C++, add2.cpp:\n")
    listing(console, (FILES / "add2.cpp").read_text(encoding="utf-8"), "cpp")
    text = (FILES / "add2.py").read_text(encoding="utf-8")
    say(console, "\nWhat it is, in one line, with its kernel and its derivative, in add2.py:\n")
    start = text.index("add2 = ")
    listing(console, text[start : text.index("\n\n", start)], "python")
    with clock() as took:
        module = load(where, "add2")
    say(console, f"\nCompiled, registered and ready to call: {took}.")
    answer = module.add2(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]))
    say(console, f"add2([1, 2], [10, 20]) = {answer.tolist()}; it is {module.add2.overload} too.")
    return module


def listing(console: Console, code: str, language: str) -> None:
    """Print code."""
    if console.is_terminal and not console.no_color:
        shown = Syntax(code.rstrip(), language, theme="ansi_dark", background_color="default")
        console.print(shown)
    else:
        say(console, code.rstrip())


def load(where: Path, name: str) -> ModuleType:
    """Write an example's files to the folder and import it from there."""
    where.mkdir(parents=True, exist_ok=True)
    for source in sorted(FILES.glob(f"{name}.*")):
        text, target = source.read_text(encoding="utf-8"), where / source.name
        if target.exists() and target.read_text(encoding="utf-8") != text:
            raise FileInTheWay.error(
                f"the tour would overwrite {target.name}", at=target, help="choose another folder"
            )
        target.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"pullback_tour_{name}", where / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verify(console: Console, add2: ModuleType, legendre3: ModuleType) -> bool:
    """Compare gradients with finite differences; return whether one is wrong that should not."""
    chapter(console, "2  Is its gradient right?")
    say(console, "The derivative along a random direction, by backward and by differences of")
    say(console, "values, which use no derivative. The last one is wrong on purpose.\n")
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(1024, generator=generator) for _ in range(2))
    x = torch.randn(1024, dtype=torch.float64, generator=generator)
    wrong = operator(
        "tour::wrong(x[...]) -> y[...]",
        python=reference,
        backward=wrong_backward,
    )
    results = {
        "add2": compare(add2.add2, (a, b), step=0.5),
        "legendre3": compare(legendre3.legendre3, (x,), step=2**-17),
        "wrong, on purpose": compare(wrong, (x,), step=2**-17),
    }
    show_comparisons(console, results)
    torch.autograd.gradcheck(legendre3.legendre3, (x[:32].requires_grad_(),))
    say(console, "\ntorch.autograd.gradcheck passes legendre3 too. PyTorch's own derivative of")
    say(console, f"(5x³ - 3x) / 2 is the same to {against_pytorch(legendre3, x):.1e}.")
    return not (results["add2"].agrees and results["legendre3"].agrees)


def wrong_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Return the derivative of P₃ with a wrong sign."""
    return grad * 1.5 * (5 * x**2 + 1)


def reference(x: Tensor) -> Tensor:
    """Return P₃(x) by PyTorch."""
    return (5 * x**3 - 3 * x) / 2


def against_pytorch(legendre3: ModuleType, x: Tensor) -> float:
    """Return the largest relative difference from PyTorch's derivative of the reference."""
    x = x.detach().requires_grad_()
    (ours,) = torch.autograd.grad(legendre3.legendre3(x).sum(), x)
    (theirs,) = torch.autograd.grad(reference(x).sum(), x)
    return float(((ours - theirs).abs() / theirs.abs().max()).max())


def show_comparisons(console: Console, results: dict[str, Comparison]) -> None:
    """Print gradients beside finite differences."""
    numbers = ("backward", "differences", "apart", "allowed")
    shown = table("", "operator", *numbers, right=numbers)
    for name, found in results.items():
        verdict = Text("ok", "green") if found.agrees else Text("FAIL", "red bold")
        figures = (f"{found.backward:.9g}", f"{found.differences:.9g}")
        shown.add_row(verdict, name, *figures, f"{found.off:.1e}", f"{found.allowed:.1e}")
    console.print(shown)


def train(console: Console, add2: ModuleType) -> None:
    """Train the model of two squares; plain gradient descent shrinks each by 0.98 a step."""
    chapter(console, "3  A model with it")
    say(console, "The loss Σ (a² + b²) of 1024 + 1024 parameters, by SGD with rate 0.01: each step")
    say(console, "multiplies the parameters by 0.98, so 25 steps multiply the loss by")
    say(console, f"0.98^50 = {0.98**50:.5f}.\n")
    model = add2.AddModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses: list[float] = []
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = model().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    shown = table("epoch", "loss", "to that of 25 before", right=("epoch", "loss"))
    for epoch in SHOWN:
        ratio = f"{losses[epoch] / losses[epoch - 25]:.5f}" if epoch >= 25 else ""
        shown.add_row(str(epoch), f"{losses[epoch]:.6g}", ratio)
    console.print(shown)


def fit(console: Console, legendre3: ModuleType) -> None:
    """Fit a + b P₃(c + d x) to sin by plain gradient descent."""
    chapter(console, "4  A fit: a + b P₃(c + d x) to sin x")
    say(console, f"{STEPS} steps on {POINTS} points in float32; P₃ and its derivative are C++.\n")
    x = torch.linspace(-math.pi, math.pi, POINTS)
    y = torch.sin(x)
    model = legendre3.Fit()
    loss = torch.tensor(0.0)
    with clock() as took, bar(console) as steps:
        for _ in steps:
            loss = (model(x) - y).pow(2).sum()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.add_(parameter.grad, alpha=-RATE)
                    parameter.grad = None
    values = ", ".join(f"{name} = {value.item():.7g}" for name, value in model.named_parameters())
    say(console, f"loss {loss.item():.3f} after {STEPS} steps in {took}")
    say(console, values)


@contextmanager
def bar(console: Console) -> Generator[Iterable[int]]:
    """Yield the steps, with a progress bar on a terminal."""
    if not console.is_terminal:
        yield range(STEPS)
        return
    with Progress(
        TextColumn("  fitting"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        console=console,
        transient=True,
    ) as progress:
        yield progress.track(range(STEPS))


def show_graph(console: Console, add2: ModuleType) -> None:
    """Show what autograd recorded."""
    chapter(console, "5  What backward will do: print(pb.graph(model))")
    say(console, f"\n{graph(add2.AddModel(n=4))}")


def show_times(console: Console, add2: ModuleType) -> None:
    """Show what a call costs."""
    chapter(console, "6  What a call costs")
    say(console, f"Microseconds a call on {timing.ELEMENTS} floats: medians of {timing.ROUNDS}")
    say(
        console,
        f"turns of {timing.CALLS} calls. The autograd.Function is Python's and calls torch.add.\n",
    )
    calls: dict[str, timing.Call] = {
        "torch.add": torch.add,
        "add2, by pullback": add2.add2,
        "autograd.Function": timing.AddFunction.apply,
    }
    situations = tuple(timing.SITUATIONS)
    shown = table("", *situations, right=situations)
    for name, row in timing.measure(calls).items():
        shown.add_row(name, *(f"{row[situation]:.2f}" for situation in situations))
    console.print(shown)


def show_cuda(console: Console, where: Path) -> None:
    """Show a CUDA kernel that trains, and one with a race, on the CPU if there is no GPU."""
    chapter(console, "8  A CUDA kernel, on this machine")
    say(console, "A CUDA kernel with its launch, gpu_add2.cu:\n")
    listing(console, (FILES / "gpu_add2.cu").read_text(encoding="utf-8"), "cpp")
    with cuda.silence_notice():
        with clock() as took:
            gpu_add2 = load(where, "gpu_add2")
        say(
            console,
            f"\nCompiled: {took}. On CPU tensors it runs on the CPU, with no change to the file.",
        )
        cuda.train(console, gpu_add2)
        say(console, "\nA kernel that lacks something, turned.cu:\n")
        listing(console, (FILES / "turned.cu").read_text(encoding="utf-8"), "cpp")
        cuda.find_race(console, load(where, "turned"))


def show_check(console: Console, where: Path) -> bool:
    """Show what is wrong with a backward; return whether the checker fails to find it."""
    chapter(console, "9  What is wrong with a backward")
    say(console, "A loss that is an autograd.Function, in loss.py:\n")
    text = (FILES / "loss.py").read_text(encoding="utf-8")
    start, end = text.index("class Squared"), text.index("class Mended")
    listing(console, text[start:end].replace("  # noqa: ANN401", ""), "python")
    return check.show(console, load(where, "loss"))


def show_next(console: Console, where: Path, *, took: str) -> None:
    """Say what to do next."""
    chapter(console, f"That was all, in {took}. Next:")
    for command, what in (
        (f"cd {where}", "where the two operators are"),
        ("python -i add2.py", "call add2 yourself; edit add2.cpp and start again"),
        ("pullback build add2.py", "compile the operators of a file ahead of time"),
        ("pullback check loss.py", "find what is wrong with the backwards of a file"),
        ("pullback doctor", "what works on this machine, and the cure for what does not"),
    ):
        say(console, f"\n  {command}")
        say(console, f"      {what}", style="dim")
    say(console, "\nYour own first operator: docs/tutorial.md and examples/ in the repository.")
