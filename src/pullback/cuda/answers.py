"""The answers of `torch.cuda` where there is no GPU but one is asked for.

The pretended device is the one that the headers describe: compute capability 8.0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch
from torch._guards import CompileContext

VERSION = "12.4"
CAPABILITY = (8, 0)
NAME = "pullback CUDA on CPU"
SEEN = torch.device("cuda", 0)


class Stream:
    """A stream: a kernel has run when its launch returns."""

    cuda_stream = 0
    device = SEEN
    device_index = 0
    priority = 0
    stream_id = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_stream(self, stream: object) -> None:
        """Wait for nothing."""

    def wait_event(self, event: object) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        """Tell that everything has run."""
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one if none is given."""
        event = event or Event()
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class Event:
    """An event: the time between two events is real."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs
        self._at = time.perf_counter()

    def record(self, stream: object = None) -> None:
        """Note the time."""
        del stream
        self._at = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to a later one."""
        return 1000.0 * (end_event._at - self._at)

    def query(self) -> bool:
        """Tell that everything has run."""
        return True

    def wait(self, stream: object = None) -> None:
        """Wait for nothing."""

    def synchronize(self) -> None:
        """Wait for nothing."""


class NothingToSwitch:
    """`torch.cuda.device`, `device_of` and `stream`: there is nothing to switch."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs

    def __enter__(self) -> NothingToSwitch:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def always(value: object) -> Callable[..., Any]:
    """Return a function that takes anything and returns one value."""

    def answer(*args: object, **kwargs: object) -> object:
        del args, kwargs
        return value

    return answer


def has_accelerator() -> bool:
    """Say that there is a GPU, but not to `torch.compile`, which asks for its streams."""
    return CompileContext.try_get() is None


def current_accelerator(check_available: bool = False) -> torch.device:
    """Return the pretended device."""
    del check_available
    return torch.device("cuda")


def _properties(device: object = None) -> SimpleNamespace:
    del device
    return SimpleNamespace(
        name=NAME,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=_memory()[1],
        multi_processor_count=108,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=227 * 1024,
        shared_memory_per_multiprocessor=228 * 1024,
        regs_per_multiprocessor=65536,
        L2_cache_size=40 * 1024 * 1024,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
    )


def _memory(device: object = None) -> tuple[int, int]:
    del device
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def _state(device: object = None) -> torch.Tensor:
    del device
    return torch.get_rng_state()


def _set_state(new_state: torch.Tensor, device: object = None) -> None:
    del device
    torch.set_rng_state(new_state)


def _set_states(new_states: Iterable[torch.Tensor]) -> None:
    for state in new_states:
        torch.set_rng_state(state)


NOTHING = """
    init _lazy_init set_device set_stream synchronize ipc_collect empty_cache set_sync_debug_mode
    reset_peak_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated
    reset_max_memory_cached set_per_process_memory_fraction _sleep
"""
ZERO = """
    current_device memory_allocated max_memory_allocated memory_reserved max_memory_reserved
    memory_cached max_memory_cached get_sync_debug_mode utilization memory_usage
"""
TRUE = "is_available is_initialized is_bf16_supported is_tf32_supported"

# What the memory of CUDA graphs is asked for, when `torch.compile` begins anew.
OF_COMPILE = {
    "_cuda_CUDAAllocator_AllocatorState": object,
    "_set_cached_tensors_enabled": always(None),
}
CUDA: dict[str, object] = {
    **{name: always(None) for name in NOTHING.split()},
    **{name: always(0) for name in ZERO.split()},
    **{name: always(True) for name in TRUE.split()},
    "is_current_stream_capturing": always(False),
    "device_count": always(1),
    "get_device_capability": always(CAPABILITY),
    "get_device_name": always(NAME),
    "get_device_properties": _properties,
    "get_arch_list": always(["sm_80"]),
    "can_device_access_peer": always(False),
    "mem_get_info": _memory,
    "memory_stats": always({}),
    "memory_summary": always(""),
    "manual_seed": _seed_all,
    "manual_seed_all": _seed_all,
    "seed": always(None),
    "seed_all": always(None),
    "initial_seed": torch.initial_seed,
    "get_rng_state": _state,
    "get_rng_state_all": lambda: [_state()],
    "set_rng_state": _set_state,
    "set_rng_state_all": _set_states,
    "Stream": Stream,
    "ExternalStream": Stream,
    "Event": Event,
    "device": NothingToSwitch,
    "device_of": NothingToSwitch,
    "stream": NothingToSwitch,
    "StreamContext": NothingToSwitch,
    "current_stream": lambda device=None: Stream(),  # pyright: ignore
    "default_stream": lambda device=None: Stream(),  # pyright: ignore
}
