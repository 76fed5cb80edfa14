"""The fake kernel and the real one disagree."""

from collections.abc import Iterator
from typing import Any

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call, tensors_in
from pullback.verify.composition.fakes import Compared, compare_calls, copy_of
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text


class FakeWrong(Probe):
    """The fake kernel gives the shape, dtype, strides and device that the real kernel gives.

    ## Why
    `torch.compile` lays out memory as the fake kernel says. Where the real kernel returns
    something else, the compiled program raises or reads wrong memory; if the fake kernel has a
    hard-coded size, for every input but the example.

    ## Fails
    ```python
    @torch.library.custom_op("page::square_fixed", mutates_args=())
    def target(x: torch.Tensor) -> torch.Tensor:
        return x * x


    @target.register_fake
    def fixed(x):
        return x.new_empty((3, 4))


    target.register_autograd(
        lambda ctx, grad: 2 * grad * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    inputs = (torch.randn(3, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    @torch.library.custom_op("page::square_like", mutates_args=())
    def target(x: torch.Tensor) -> torch.Tensor:
        return x * x


    target.register_fake(lambda x: torch.empty_like(x))
    target.register_autograd(
        lambda ctx, grad: 2 * grad * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    ```

    ## Cannot see
    Sizes that were not tried.
    """

    code = "PB586"
    name = "fake-kernel-wrong"
    help = "return what the real kernel returns: torch.empty_like(x), or x.new_empty of its shape"
    needs = "forward"
    about = frozenset({"traced"})
    explains = frozenset({"traced"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the two kernels at several sizes and strides."""
        if call.target.overload is None:
            raise NotApplicable("it is not a registered operator")
        fake = call.target.parts.get("fake")
        where = None if fake is None else Text(fake).place
        fixed = depends_on_values(call)
        if fixed is not None:
            yield self.breach(
                f"{call.target.name}: the output's size depends on the values of the inputs, but "
                "the fake kernel says a static shape",
                where=where,
                help="torch.library.get_ctx().new_dynamic_size() in the fake kernel",
                evidence=fixed,
            )
            return
        every = list(compare_calls(call))
        for one in every:
            if found := one.unlike:
                yield self.breach(
                    self.said(call, one, found, every), where=where, **self.numbers(one, found)
                )
                return

    def said(self, call: Call, one: Compared, found: tuple[int, str], every: list[Compared]) -> str:
        """Say what is wrong, in one sentence."""
        index, word = found
        name = call.target.name
        if index < 0:
            return f"{name}: the fake kernel returns another number of tensors than the real one"
        of = f" of output {index}" if len(one.real) > 1 else ""
        shapes = {c.fake[index].shape for c in every if c.fake and index < len(c.fake)}
        real = {c.real[index].shape for c in every}
        if word == "shape" and len(shapes) == 1 and len(real) > 1:
            return (
                f"{name}: the fake kernel returns shape {next(iter(shapes))}{of} for every input, "
                "whatever its size: the example's size is written down in it"
            )
        words = {"stride": "strides"}.get(word, word)
        when = f" {one.when}" if one.when else ""
        return f"{name}: the fake kernel says another {words}{of} than the real kernel gives{when}"

    def numbers(self, one: Compared, found: tuple[int, str]) -> dict[str, Any]:
        """Return both answers."""
        index, word = found
        assert one.fake is not None
        if index < 0:
            return {"fake": len(one.fake), "real": len(one.real)}
        return {"fake": getattr(one.fake[index], word), "real": getattr(one.real[index], word)}


def depends_on_values(call: Call) -> str | None:
    """Say how the real output's size changes with values alone, where the fake one cannot know."""
    shapes: list[tuple[tuple[int, ...], ...]] = []
    for change in (lambda v: v, torch.neg, torch.zeros_like):
        values = [
            change(v) if (v := copy_of(leaf.value)).is_floating_point() else v
            for leaf in call.leaves
        ]
        try:
            with torch.no_grad():
                shapes.append(tuple(tuple(t.shape) for t in tensors_in(call.on(values))))
        except Exception:
            continue
    if len(set(shapes)) < 2:
        return None
    one = next(iter(compare_calls(call)))
    if one.fake is None or any(is_symbol(n) for m in one.fake for n in m.shape):
        return None
    return f"output {shapes[0]} for the inputs, {shapes[1]} for other values of the same shapes"


def is_symbol(size: object) -> bool:
    """Tell whether a size is not known before the values are."""
    return isinstance(size, torch.SymInt)
