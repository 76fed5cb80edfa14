"""An operator fails for a dtype that it declares."""

from collections.abc import Iterator

import torch

from pullback.bind.check import dtype_named
from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.composed import describe_tensors
from pullback.verify.composition.lines import line_of
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.target import shorten


class LineDtypes(Probe):
    """A kernel computes the same in every dtype that it declares, up to that dtype's rounding.

    ## Why
    `dtypes=[...]` says for which dtypes a template is instantiated. An instance that is never tried
    may not compile, may overflow, or may lose digits in a cast.

    ## Fails
    ```python
    target = pb.operator(
        "page::thirds(x[...]) -> y[...]",
        cpu=pb.source(
            '''template <class T> void thirds(T* y, const T* x, long n) {
                T third = sizeof(T) == 4 ? 1 / 3 : 1 / T(3);
                for (long i = 0; i < n; ++i) y[i] = x[i] * third;
            }''',
            call="thirds(y, x, numel(x))",
            dtypes=["float32", "float64"],
        ),
        backward={"x": "grad / 3"},
    )
    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    target = pb.operator(
        "page::thirds_of_all(x[...]) -> y[...]",
        cpu=pb.source(
            '''template <class T> void thirds(T* y, const T* x, long n) {
                for (long i = 0; i < n; ++i) y[i] = x[i] / T(3);
            }''',
            call="thirds(y, x, numel(x))",
            dtypes=["float32", "float64"],
        ),
        backward={"x": "grad / 3"},
    )
    ```

    ## Cannot see
    A loss of less than half of the digits.
    """

    code = "PB596"
    name = "declared-dtype-fails"
    help = "leave the dtype out of dtypes=[...], or mend the kernel for it"
    about = frozenset({"numbers", "values"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Call the operator in each declared dtype, beside float64."""
        line_of(call)
        assert call.target.operator is not None
        source = call.target.operator.definition.cpu
        if source is None or source.dtypes is None or call.random:
            raise NotApplicable("it declares no dtypes, or is random")
        if not any(leaf.value.is_floating_point() for leaf in call.leaves):
            raise NotApplicable("no input is a real floating-point tensor")
        dtypes = [own for name in source.dtypes if (own := dtype_named(name)).is_floating_point]
        for dtype in dtypes:
            if torch.float64 not in dtypes or dtype is torch.float64:
                continue
            # Inputs are rounded first, so that both get the same numbers.
            single = call.to(dtype)
            wanted = single.to(torch.float64)
            try:
                exact = wanted.values([leaf.value for leaf in wanted.leaves])
                found = single.values([leaf.value for leaf in single.leaves])
            except Exception as error:
                yield self.breach(
                    f"{call.target.name}: fails for {dtype}, which it declares",
                    raised=f"{type(error).__name__}: {shorten(str(error))}",
                )
                return
            names = [f"output {i}" for i in range(len(exact))]
            if difference := describe_tensors(found, exact, names):
                yield self.breach(
                    f"{call.target.name}: gives other numbers for {dtype}, which it declares",
                    difference=difference,
                )
                return
