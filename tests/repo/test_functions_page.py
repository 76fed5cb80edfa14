"""The page of functions is written from their table, and what it says of kinks is PyTorch's."""

from __future__ import annotations

import functions_page
import pytest
import torch
from torch.nn import functional

from pullback.bind.dense import elements
from pullback.define.math import derived, notation
from pullback.define.operator import Definition
from pullback.define.parse import parse


def test_the_page_of_functions_is_that_of_the_table() -> None:
    assert functions_page.PAGE.read_text(encoding="utf-8") == functions_page.page()


@pytest.mark.parametrize(("text", "theirs", "at", "gradients"), functions_page.KINKS)
def test_gradients_at_kinks_are_as_the_page_says_and_as_pytorchs(
    text: str, theirs: str, at: dict[str, float], gradients: tuple[float, ...]
) -> None:
    tensors = [torch.tensor(float(value), requires_grad=True) for value in at.values()]
    line = parse(f"t::f({', '.join(f'{name}[]' for name in at)}) -> y[] = {text}")
    backward = derived.backward(notation.parse(line))
    assert backward is not None
    made = backward.formula
    arguments = {"grad": torch.tensor(1.0), **dict(zip(at, tensors, strict=True))}
    known = {"torch": torch, "functional": functional, "one": torch.tensor(1.0), **arguments}
    value = eval(theirs, known)
    arguments["y"] = value.detach()
    run = elements.kernel_of(Definition(line=made.line, formula=made))
    found = run(*(arguments[parameter.name] for parameter in made.line.parameters))
    assert torch.autograd.grad(value, tensors) == gradients
    assert (found if isinstance(found, tuple) else (found,)) == gradients
