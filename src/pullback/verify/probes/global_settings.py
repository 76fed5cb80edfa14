"""Process-wide settings that a call leaves changed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import require_own
from pullback.verify.probe import Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.tracing.fresh import set_deterministic


@dataclass(frozen=True)
class GlobalSetting:
    """A setting: what it is now, how to set it, and two values to begin a call with."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]
    values: tuple[Any, Any]


# Two values each: a setting that an earlier call has changed would not change again.
SETTINGS: dict[str, GlobalSetting] = {
    "default dtype": GlobalSetting(
        torch.get_default_dtype, torch.set_default_dtype, (torch.float32, torch.float64)
    ),
    "deterministic algorithms": GlobalSetting(
        torch.are_deterministic_algorithms_enabled,
        lambda on: set_deterministic(on, warn_only=True),
        (False, True),
    ),
    # Not two: OpenMP's threads do not survive the fork that this may run in.
    "number of threads": GlobalSetting(torch.get_num_threads, torch.set_num_threads, (1, 1)),
    "autocast on the CPU": GlobalSetting(
        lambda: torch.is_autocast_enabled("cpu"),
        lambda on: torch.set_autocast_enabled("cpu", on),
        (False, False),
    ),
    "anomaly detection": GlobalSetting(
        torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, (False, False)
    ),
    "precision of float32 products": GlobalSetting(
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        ("highest", "medium"),
    ),
    "NumPy's treatment of floating-point errors": GlobalSetting(
        np.geterr, lambda how: np.seterr(**how), (np.geterr(), {**np.geterr(), "under": "warn"})
    ),
}
SETTERS = (
    *("set_grad_enabled", "set_default_dtype", "set_default_device", "set_num_threads", "seterr"),
    *("use_deterministic_algorithms", "set_autocast_enabled", "set_float32_matmul_precision"),
    "set_detect_anomaly",
)


class GlobalSettings(Probe):
    """A call leaves the settings of the process as they were.

    ## Why
    Later code computes in another precision, or without a graph, and nobody looks for the cause
    here.

    ## Fails
    ```python
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x / 2

        @staticmethod
        def backward(ctx, grad):
            torch.set_default_dtype(torch.float64)
            return grad / 2


    inputs = (torch.randn(4),)
    ```

    ## Passes
    ```python
    class HalfAlone(Half):
        @staticmethod
        def backward(ctx, grad):
            return grad / 2
    ```

    ## Cannot see
    Settings of other libraries, and environment variables.
    """

    code = "PB522"
    name = "global-settings"
    help = "restore it, or use the context manager of the same name"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the settings before and after forward, and after backward."""
        require_own(call)
        kept = {name: setting.read() for name, setting in SETTINGS.items()}
        try:
            for choice in (0, 1):
                for setting in SETTINGS.values():
                    setting.write(setting.values[choice])
                if found := next(self.changed(call), None):
                    yield found
                    return
        finally:
            for name, value in kept.items():
                SETTINGS[name].write(value)

    def changed(self, call: Call) -> Iterator[Finding]:
        """Yield a finding for each setting that is changed."""
        states = [settings()]
        run = call.forward()
        states.append(settings())
        run.backward(run.random_grads())
        states.append(settings())
        for part, old, new in zip(("forward", "backward"), states, states[1:], strict=False):
            for name in [name for name in old if old[name] != new[name]]:
                yield self.breach(
                    f"{call.target.name}: {part} changes a setting of the whole process: {name}",
                    where=line_of(call),
                    before=old[name],
                    after=new[name],
                )


def settings() -> dict[str, Any]:
    """Return what is set now."""
    return {name: setting.read() for name, setting in SETTINGS.items()}


def line_of(call: Call) -> SourcePlace | None:
    """Return the line that sets something."""
    texts = [Text(own) for own in call.target.parts.values()]
    return next((place for text in texts if (place := text.calls(*SETTERS))), None)
