"""Gradients that a forward computes itself, where one number is all that arrives in the backward.

The gradients of a line with one number as its output, such as the mean loss of a batch, are those
for a gradient of 1, multiplied by the one that arrives. A forward that computes them at once has
the products of matrices at hand that the gradients need too: these are not computed again.

Source: B. Hsu et al., "Liger Kernel" (2024), for the cross-entropy of a linear layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from pullback.define.line import Line
from pullback.define.math import build, derived
from pullback.define.math.draft import Derived, FreeNames, is_real, name_of
from pullback.define.math.formula import Formula, element
from pullback.define.math.node import READ, SUM, Node, close, names_read, number
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.statistics import Keeping, returning
from pullback.define.math.term import add_parts, split_sum


def has_unit_gradients(formula: Formula) -> bool:
    """Return whether one number is all that arrives in the gradients of a formula."""
    line = formula.line
    is_plain = not (formula.pointwise or formula.groups or line.returns_gradients)
    is_one = len(line.outputs) == 1 and not line.outputs[0].dims and is_real(line.outputs[0])
    return is_plain and is_one and not any(tensor.optional for tensor in line.tensors)


def keep_gradients(formula: Formula, wanted: Set[str]) -> Keeping | None:
    """Return a formula that keeps the gradients of some tensors for a gradient of 1.

    None if none of them has one.

    Args:
        formula: one that `has_unit_gradients`.
        wanted: the names of these tensors.
    """
    made = derived.backward_recalling(formula, (), {})
    if made is None:
        return None
    line, gradients = formula.line, made.formula
    grad = gradients.line.parameters[0].name
    names = FreeNames(line)
    given = zip(made.gives, gradients.line.outputs, _at_one(gradients, grad), strict=True)
    kept = [
        (place, node, replace(output, name=names.fresh(f"unit_{output.name}"), detached=True))
        for place, output, node in given
        if line.tensors[place].name in wanted
    ]
    if not kept:
        return None
    forward = returning(formula, [(node, tensor) for _, node, tensor in kept])
    return Keeping(forward=forward, backward=_scaled(forward, [place for place, _, _ in kept]))


def _at_one(gradients: Formula, grad: str) -> tuple[Node, ...]:
    """Return gradients for a gradient of 1."""

    def known(node: Node) -> Node | None:
        return number(1.0) if node.op == READ and node.name == grad else None

    found = rewrite_nodes(
        list(gradients.elements),
        lambda node: build.rebuild(node, node.args),
        gradients.ranges,
        known,
    )
    return tuple(_divide_inside(node, gradients.ranges) for node in found)


def _divide_inside(node: Node, ranges: Ranges) -> Node:
    """Return a gradient whose sums are divided by the number of rows, say, addend by addend.

    What is summed up is then the gradient as it is, and no other tensor of its size is made of it.
    """

    def divided(addend: Node) -> Node:
        if addend.op != "div" or addend.args[0].op != SUM or any(names_read(addend.args[1:])):
            return addend
        total, by = addend.args
        index, body = ranges.opened(total, alone=False)
        return close(SUM, index, total.size, build.apply("div", body, by))

    return add_parts([(sign, divided(addend)) for sign, addend in split_sum(node)])


def _scaled(forward: Formula, places: Iterable[int]) -> Derived:
    """Return what was kept, multiplied by the gradient that arrives.

    Args:
        forward: what returns it, behind its output.
        places: of the tensors whose gradients are kept.
    """
    line = forward.line
    output, *kept = line.outputs
    names = FreeNames(line)
    grad = replace(output, name=names.fresh("grad"))
    own = [replace(tensor, detached=False) for tensor in kept]
    made = Line(
        namespace=line.namespace,
        name=name_of(line, "backward"),
        parameters=(grad, *own),
        outputs=tuple(
            replace(each, name=names.fresh(each.name.removeprefix("unit_"))) for each in own
        ),
        formula=derived.UNWRITTEN,
        stands_for=f"the gradient of {line.called}",
    )
    arriving = element(grad, line.qualname)
    elements = tuple(build.apply("mul", arriving, element(each, line.qualname)) for each in own)
    sizes = {
        index: size
        for index, size in forward.sizes.items()
        if any(index in each.labels for each in own)
    }
    return Derived(
        formula=Formula(line=made, elements=elements, sizes=sizes, accuracy=forward.accuracy),
        arrives=(0,),
        gives=tuple(places),
    )
