"""Operators with kernels in C++ and CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from pullback.bind import kernel
from pullback.bind.kinds.declared import Declared
from pullback.bind.validate import NoKernel
from pullback.kernels.cuda_on_cpu import mode


class Native(Declared):
    """One operator with `cpu=` or `cuda=`."""

    def described(self) -> list[str]:
        """Return the languages of its kernels."""
        names = {"cpu": "C++", "cuda": "CUDA"}
        return [names[device] for device in self.definition.sources]

    @property
    def runs_on_a_gpu(self) -> bool:
        """Whether CUDA is all it has."""
        return bool(self.definition.cuda and not self.definition.cpu)

    def reload(self) -> None:
        """Compile the kernels whose files have changed; the dispatcher calls them from now on."""
        fresh = Native(self.definition)
        fresh.prepare()
        fresh.install()

    def kernel(self) -> Callable[..., object]:
        """Return the kernel for devices that have none, which raises an error that says so."""
        definition = self.definition
        line, have = definition.line, list(definition.sources)

        def refuse(*arguments: object, output_mask: list[bool] | None = None) -> object:
            # A wrong input is reported first: a sparse tensor on the CPU comes here as well.
            given = kernel.fill_defaults(definition, arguments, output_mask)
            if any(isinstance(value, torch.Tensor) for value in given):
                kernel.outputs_of(definition, given)
            devices = {str(a.device) for a in arguments if isinstance(a, torch.Tensor)}
            if not devices:
                raise NoKernel.error(
                    f"{line.qualname}: every tensor is None, so PyTorch cannot tell the device",
                    help="pass at least one tensor",
                )
            raise NoKernel.error(
                f"{line.qualname} has no kernel for {', '.join(sorted(devices))}",
                have=", ".join(have),
                help=f"{way_to_a_kernel(have)}, or give the operator another kernel",
            )

        return refuse


def way_to_a_kernel(have: Sequence[str]) -> str:
    """Return the cure for a device without a kernel; tensors cannot move to a pretended GPU."""
    if list(have) == ["cuda"] and mode.is_chosen():
        return (
            "the GPU here is only pretended, and to run on the CPU a CUDA kernel needs its source: "
            "install the package's project with pip install -e"
        )
    return f"move the tensors to {have[0]}"
