"""A tensor is made on a fixed device."""

import ast
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify import forks, isolation
from pullback.verify.call import Call
from pullback.verify.composition.devices import ELSEWHERE, NOWHERE, run_elsewhere
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, Text, last_name, place_of_error
from pullback.verify.target import shorten

# Functions that make a tensor on the default device if no device is given.
MAKERS = (
    *("zeros", "ones", "empty", "full", "arange", "linspace", "eye", "tensor", "rand", "randn"),
    *("randint", "randperm", "scalar_tensor", "logspace", "Tensor", "FloatTensor", "empty_strided"),
)
NUMPY = ("numpy", "from_numpy", "__array__", "from_dlpack")
TWO_DEVICES = ("same device", "two devices", "different devices", "on the expected device")


class FixedDevice(Probe):
    """New tensors are made where the inputs are: `device=x.device`, `torch.zeros_like(x)`.

    ## Why
    The machine where it was written has one device. On another machine, or on a second GPU, a
    buffer that is made on "cpu", on "cuda:0", or on the default device meets tensors elsewhere.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.full(grad.shape, 2.0, dtype=grad.dtype, device="cpu")


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleAnywhere(Double):
        @staticmethod
        def backward(ctx, grad):
            return grad * torch.full_like(grad, 2.0)
    ```

    ## Cannot see
    A kernel for one device only, such as one that goes through NumPy: it has no other to run on.
    A tensor that is made without a device is advice: it is on the default device, which a user of
    another device can set.
    """

    code = "PB590"
    name = "fixed-device"
    milder = True
    about = frozenset({"traced"})
    help = "make it where the input is: device=grad.device, torch.zeros_like(x), x.new_empty(...)"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Run forward and backward on fake tensors of a GPU that need not exist."""
        if call.target.kind not in ("function", "library") or "backward" not in call.target.parts:
            raise NotApplicable("no backward of an author's is known")
        if any(leaf.value.layout != torch.strided for leaf in call.leaves) or not call.leaves:
            raise NotApplicable("it has no plain tensors")
        texts = [Text(own) for own in call.target.parts.values()]
        if any(text.calls(*NUMPY) or text.find(is_numpy) for text in texts):
            raise NotApplicable("it goes through NumPy, which is on the CPU alone")
        if not forks.can_fork():
            raise NotApplicable("PyTorch without CUDA may end the process, and none can be forked")
        # Autograd on a fake CUDA tensor ends a PyTorch that was built without CUDA.
        seen: list[tuple[SourcePlace | None, str | None]] = []
        for device in (ELSEWHERE, NOWHERE):
            seen = seen or list(
                isolation.run_forked(partial(look_on_device, call, device), seconds=20)
            )
        if not seen:
            raise NotApplicable("it does not run on fake tensors")
        place, said = seen[0]
        if said is not None:
            yield self.found(call, texts, place, said)

    def found(
        self, call: Call, texts: Sequence[Text], place: SourcePlace | None, said: str
    ) -> Finding:
        """Return the finding: a fault where the text names a device, else advice."""
        named = [line for text in texts if (line := text.find(partial(names_device, text)))]
        made = [line for text in texts if (line := text.find(is_default))]
        where = "a fixed device" if named else "the default device"
        return self.breach(
            f"{call.target.name}: a tensor is made on {where}: with the inputs "
            "elsewhere it meets tensors of another device",
            where=next(iter([*named, *made]), place),
            level="fault" if named else "advice",
            seen=said,
        )


def look_on_device(
    call: Call, device: torch.device
) -> Iterator[tuple[SourcePlace | None, str | None]]:
    """Yield once what was seen on a device: the line and the words, None if nothing is wrong."""
    try:
        arguments, gave = run_elsewhere(call, device)
    except Exception as error:
        if any(words in str(error) for words in TWO_DEVICES):
            yield place_of_error(error), shorten(str(error))
        return
    gradients = gave if isinstance(gave, tuple | list) else (gave,)
    for argument, gradient in zip(arguments, gradients, strict=False):
        both = isinstance(argument, Tensor) and isinstance(gradient, Tensor)
        if both and gradient.device != device:
            said = f"the gradient is on {gradient.device}, the input on {device}"
            yield Text(call.target.parts["backward"]).place, said
            return
    yield None, None


def names_device(text: Text, node: ast.AST) -> bool:
    """Tell whether a part of a text names a device: device="cuda", .cpu(), .to("cpu:0")."""
    if not isinstance(node, ast.Call):
        return False
    if last_name(node.func) in ("cpu", "cuda"):
        return True
    given = [word.value for word in node.keywords if word.arg == "device"]
    if last_name(node.func) in ("to", "device"):
        given += node.args[:1]
    return any(is_device(text, value) for value in given)


def is_device(text: Text, value: ast.expr) -> bool:
    """Tell whether an expression is one device: a literal, or the name of a constant."""
    known: object = None
    if isinstance(value, ast.Constant):
        known = value.value
    elif isinstance(value, ast.Name):
        known = getattr(text.function, "__globals__", {}).get(value.id)
    return isinstance(known, torch.device | str)


def is_default(node: ast.AST) -> bool:
    """Tell whether a part of a text makes a tensor and says no device."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in MAKERS:
        return False
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return getattr(owner, "id", "") == "torch" and all(w.arg != "device" for w in node.keywords)


def is_numpy(node: ast.AST) -> bool:
    """Tell whether a part of a text is NumPy's."""
    return isinstance(node, ast.Name) and node.id in ("np", "numpy")
