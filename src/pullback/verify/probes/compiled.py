"""A compiled call gives other numbers."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.composed import (
    changes_inputs,
    describe_difference,
    ordinary_result,
    result_of,
    run_by,
)
from pullback.verify.nodes import require_own
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text, place_of_error
from pullback.verify.target import shorten


class Compiled(Probe):
    """`torch.compile` changes the speed, not the numbers.

    ## Why
    A compiler traces a function once, with fake tensors, and runs the trace. Whatever depends on
    Python state, on a tensor's memory or on whether it is being compiled is recorded as it was
    then; and a path only for the compiler is a path that eager tests never take.

    ## Fails
    ```python
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if torch.compiler.is_compiling():
                return grad * x * x
            return 3 * grad * x * x


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class CubeAlways(Cube):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 3 * grad * x * x
    ```

    ## Cannot see
    Errors of the code generator (Inductor): the graph is run as it was traced. A function that
    draws random numbers. That a program cannot be compiled is advice, not a fault.
    """

    code = "PB583"
    name = "compiled-differs"
    milder = True
    help = "compute the same when compiled: no state outside of ctx, no is_compiling() in formulas"
    about = frozenset({"traced", "random", "numbers"})
    explains = frozenset({"traced"})
    intentions = frozenset({"not_compiled"})
    imports = ("pullback.verify.composition.compiler",)

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare outputs and gradients of the call with those of its traced graphs."""
        require_own(call)
        wanted = ordinary_result(call)
        if call.random or changes_inputs(call):
            raise NotApplicable("it draws random numbers or writes into its inputs")
        from pullback.verify.composition.compiler import compile_traced  # noqa: PLC0415  (it takes two seconds)

        program = compile_traced(lambda *given: call.on(given))
        backward = call.target.parts.get("backward")
        where = Text(backward).place if backward else None
        try:
            found = result_of(run_by(call, lambda given: program(*given)))
        except Exception as error:
            yield self.breach(
                f"{call.target.name}: it cannot be compiled, or its backward cannot",
                level="advice",
                where=place_of_error(error) or where,
                raised=f"{type(error).__name__}: {shorten(str(error).partition(chr(10))[0])}",
                help="an operator of its own hides it from the compiler: pb.operator(line, "
                "function=...)",
            )
            return
        if difference := describe_difference(call, found, wanted):
            yield self.breach(
                f"{call.target.name}: torch.compile gives other numbers than eager mode",
                where=where,
                difference=difference,
            )
