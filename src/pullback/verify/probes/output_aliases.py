"""A registered operator returns its input, or a view of it."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call, tensors_in
from pullback.verify.composition.fakes import copy_of, is_implicit
from pullback.verify.probe import NotApplicable, Probe


class OutputAliases(Probe):
    """The outputs of a registered operator have memory of their own, or its schema says otherwise.

    ## Why
    The compiler relies on the schema. If an output is an input, or a view of one, a write to one
    changes the other in eager mode, but not in the compiled program.

    ## Fails
    ```python
    library = torch.library.Library("page_alias", "FRAGMENT")
    name = f"head_{id(library)}"
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x[:2], "CPU")
    torch.library.register_fake(f"page_alias::{name}", lambda x: x[:2], lib=library)
    target = getattr(torch.ops.page_alias, name)
    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    name = f"first_{id(library)}"
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x[:2].clone(), "CPU")
    torch.library.register_fake(f"page_alias::{name}", lambda x: x[:2].clone(), lib=library)
    target = getattr(torch.ops.page_alias, name)
    ```

    ## Cannot see
    An output that shares memory only for other values or sizes.
    """

    code = "PB591"
    name = "output-aliases-input"
    help = "return a clone, or declare it in the schema: Tensor(a) x -> Tensor(a)"
    needs = "forward"
    explains = frozenset({"traced", "second", "tangent", "transform"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the memory of the outputs with that of the inputs."""
        overload = call.target.overload
        if overload is None:
            raise NotApplicable("it is not a registered operator")
        if is_implicit(call):
            raise NotApplicable("it is made of other operators")
        if any(own.alias_info is not None for own in overload._schema.returns):
            raise NotApplicable("its schema says that outputs share memory")
        with torch.no_grad():
            given = [copy_of(leaf.value) for leaf in call.leaves]
            outputs = tensors_in(call.on(given))
        for index, output in enumerate(outputs):
            for leaf, own in zip(call.leaves, given, strict=True):
                if output.numel() and is_shared(output, own):
                    what = "the input" if output is own else "a view of the input"
                    yield self.breach(
                        f"{call.target.name}: output {index} is {what} `{leaf.name}` (they share "
                        "memory), and the schema does not say so",
                        schema=overload._schema,
                    )
                    return


def is_shared(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two tensors share memory."""
    try:
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # no plain memory
        return False
