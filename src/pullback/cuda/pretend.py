"""PyTorch as if there were a GPU: `torch.cuda` answers, and everything is on the CPU."""

from __future__ import annotations

import atexit
import functools
import inspect
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch

from pullback.cuda import answers, gpu_code
from pullback.cuda.devices import Devices, to_cpu_device
from pullback.cuda.patches import Patches

TYPES = ["Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double", "Bool"]
ACCELERATOR = {
    "device_count": 1,
    "current_device_index": 0,
    "current_device_idx": 0,
    "set_device_index": None,
    "set_device_idx": None,
    "synchronize": None,
}


@contextmanager
def pretend_gpu() -> Generator[None]:
    """Let PyTorch say within the block that there is a GPU; a nested block changes nothing."""
    global _depth  # noqa: PLW0603  (of the process, as what it patches is)
    patches = Patches()
    _depth += 1
    try:
        if _depth == 1:
            _patch(patches)
            with Devices():
                yield
        else:
            yield
    finally:
        _depth -= 1
        patches.undo()


def for_good() -> None:
    """Let PyTorch say so until the process ends, in all of its threads."""
    # Left before modules are taken down, or the end of the process would complain.
    stack = ExitStack()
    stack.enter_context(pretend_gpu())
    atexit.register(stack.close)
    start = threading.Thread.start

    def start_in_mode(thread: threading.Thread) -> None:
        run = thread.run

        def in_mode() -> None:
            with Devices():
                run()

        cast("Any", thread).run = in_mode
        start(thread)

    cast("Any", threading.Thread).start = start_in_mode


_depth = 0


def _patch(patches: Patches) -> None:
    for name, value in answers.CUDA.items():
        _replace_everywhere(patches, torch.cuda, name, value)
    for name in TYPES:
        patches.set(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    for name, value in ACCELERATOR.items():
        if hasattr(torch.accelerator, name):
            patches.set(torch.accelerator, name, answers.always(value))
    patches.set(torch.accelerator, "is_available", answers.has_accelerator)
    patches.set(torch.accelerator, "current_accelerator", answers.current_accelerator)
    patches.set(torch.version, "cuda", answers.VERSION)
    patches.set(torch.backends.cuda, "is_built", answers.always(value=True))
    patches.set(torch.backends.cudnn, "is_acceptable", answers.always(value=False))
    _patch_compile(patches)
    _patch_what_takes_a_device(patches)
    _patch_autocast(patches)
    gpu_code.patch(patches)


def _patch_compile(patches: Patches) -> None:
    """Let `torch._dynamo` find what it imports of a PyTorch that is built for GPUs."""
    for name, stand_in in answers.OF_COMPILE.items():
        if not hasattr(torch._C, name):
            patches.set(torch._C, name, stand_in)


def _patch_what_takes_a_device(patches: Patches) -> None:
    """Patch the functions that a mode of PyTorch does not see."""
    import torch.utils._device as utils  # noqa: PLC0415  (private, so as late as can be)

    context: Any = utils.DeviceContext
    begin = context.__init__

    @functools.wraps(begin)
    def begin_on_cpu(self: object, device: object) -> None:
        begin(self, to_cpu_device(device))

    patches.set(context, "__init__", begin_on_cpu)

    patches.set(torch, "Generator", _generator())
    load = torch.load
    signature = inspect.signature(load)

    @functools.wraps(load)
    def load_on_cpu(*args: object, **kwargs: object) -> object:
        given = signature.bind(*args, **kwargs)
        where = given.arguments.get("map_location")
        if isinstance(where, dict):
            places = cast("dict[object, object]", where)
            where = {key: to_cpu_device(value) for key, value in places.items()}
        given.arguments["map_location"] = "cpu" if where is None else to_cpu_device(where)
        return load(*given.args, **given.kwargs)

    patches.set(torch, "load", load_on_cpu)
    set_type: Any = torch.set_default_tensor_type
    patches.set(torch, "set_default_tensor_type", lambda kind: set_type(to_cpu_device(kind)))


def _patch_autocast(patches: Patches) -> None:
    """Let autocast for "cuda" be that for the CPU, with the GPU's dtype."""
    was = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    patches.at_end(lambda: torch.set_autocast_dtype("cpu", was))
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        patches.set(torch, name, _wrap_query(getattr(torch, name)))
    for name in ("set_autocast_enabled", "set_autocast_dtype"):
        patches.set(torch, name, _wrap_setter(getattr(torch, name)))


def _wrap_query(function: Callable[..., object]) -> Callable[..., object]:
    return lambda device="cuda": function(to_cpu_device(device))


def _wrap_setter(function: Callable[..., object]) -> Callable[..., object]:
    def call(*args: object) -> object:
        # The older form takes only the value and is for GPUs.
        return function(*([to_cpu_device(args[0]), *args[1:]] if len(args) > 1 else ["cpu", *args]))

    return call


def _generator() -> type:
    """Return a type whose instances for a GPU are for the CPU."""
    genuine: Any = torch.Generator

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, genuine)

        def __call__(cls, device: object = "cpu") -> object:
            return genuine(to_cpu_device(device))

    return Kind("Generator", (), {})


def _replace_everywhere(patches: Patches, module: Any, name: str, value: object) -> None:  # noqa: ANN401
    """Replace a name also where it is defined, since PyTorch's own files use that one."""
    if not hasattr(module, name):
        return
    home = inspect.getmodule(getattr(module, name))
    patches.set(module, name, value)
    if home is not None and home is not module and vars(home).get(name) is not None:
        patches.set(home, name, value)
