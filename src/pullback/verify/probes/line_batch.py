"""An operator mixes what its line says is independent."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.lines import compare_batch, line_of
from pullback.verify.probe import NotApplicable, Probe


class LineBatch(Probe):
    """Along `...` each element is computed independently: a batch is a loop.

    ## Why
    vmap, `pb.graph` and batched calls rely on the promise of `...` and pass the operator larger
    batches, or parts of them. An operator that sums or normalises over the batch is then silently
    wrong.

    ## Fails
    ```python
    target = pb.operator(
        "page::centred(x[...]) -> y[...]",
        python=lambda x: x - x.mean(),
        backward=lambda grad: grad - grad.mean(),
    )
    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    target = pb.operator(
        "page::centred_row(x[..., n]) -> y[..., n]",
        python=lambda x: x - x.mean(-1, keepdim=True),
        backward=lambda grad: grad - grad.mean(-1, keepdim=True),
    )
    ```

    ## Cannot see
    Elements that are mixed only in large batches.
    """

    code = "PB574"
    name = "batch-not-independent"
    needs = "forward"
    help = "name the dimension that is mixed in the line, x[..., n], or take '...' out of it"
    about = frozenset({"numbers"})
    explains = frozenset({"transform", "values"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare a batch of three with three calls."""
        line = line_of(call)
        if call.random or not call.repeatable or line.changed:
            raise NotApplicable("it is random, or writes into its inputs")
        if difference := compare_batch(call):
            yield self.breach(
                f"{call.target.name}: '...' promises that each element of the batch is computed "
                "for itself, but a batch gives other numbers than its elements do alone",
                line=line,
                difference=difference,
            )
