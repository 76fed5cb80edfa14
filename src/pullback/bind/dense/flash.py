"""PyTorch's fused attention of each device: outputs with the log-sum-exp of rows, and gradients.

The public `scaled_dot_product_attention` returns no log-sum-exp, and may put the scores into memory
where none of these takes its tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.backends import cuda
from torch.nn.functional import pad

# Of the rows whose log-sum-exps CUDA's memory-efficient gradient reads at once; those that are
# missing have infinite ones.
ROWS = 32
# Of the features of a head, as CUDA's operations load them.
BYTES = 16
# No GPU refuses the gradient of FlashAttention for heads of so many features.
LONGEST = 192
# The first GPUs for which cuDNN has an attention that is faster.
HOPPER = (9, 0)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Heads of one batch, and what their scores are.

    Attributes:
        tensors: queries, keys and values, each (1, heads, rows, features).
        is_causal: whether a row sees the columns up to its own place alone.
        scale: what products are multiplied by.
    """

    tensors: tuple[Tensor, Tensor, Tensor]
    is_causal: bool
    scale: float


@dataclass(frozen=True)
class Operation:
    """One of PyTorch's operations.

    Attributes:
        attend: returns the output and the log-sum-exp of each row.
        pull: given what arrives, the output and the log-sum-exps, returns the three gradients.
    """

    attend: Callable[[Scores], tuple[Tensor, Tensor]]
    pull: Callable[[Scores, Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def find_operation(of: Scores) -> Operation | None:
    """Return the operation for some tensors; None if there is none that holds no scores."""
    query, key, value = of.tensors
    is_one = query.dtype == key.dtype == value.dtype in DTYPES
    if query.shape[-1] != value.shape[-1] or not is_one:
        return None
    if query.device.type == "cpu":
        return Operation(attend_on_cpu, pull_on_cpu)
    is_aligned = query.shape[-1] * query.element_size() % BYTES == 0
    # Where they differ, PyTorch's operations number the rows of a causal one from different ends.
    is_square = query.shape[-2] == key.shape[-2]
    if not is_aligned or (of.is_causal and not is_square) or query.device.type != "cuda":
        return None
    params = cuda.SDPAParams(query, key, value, None, 0.0, of.is_causal, False)
    if query.shape[-1] <= LONGEST and cuda.can_use_flash_attention(params):
        is_new = cuda.can_use_cudnn_attention(params) and is_hopper(query.device)
        ways = (attend_by_cudnn, pull_by_cudnn) if is_new else (attend_flash, pull_flash)
        return Operation(*ways)
    if cuda.can_use_efficient_attention(params):
        return Operation(attend_efficiently, pull_efficiently)
    return None


def is_hopper(device: torch.device) -> bool:
    """Return whether a GPU is one of those for which cuDNN's attention is the faster one."""
    return torch.cuda.get_device_capability(device) >= HOPPER


def attend_on_cpu(of: Scores) -> tuple[Tensor, Tensor]:
    """Compute an attention on a CPU."""
    run = operation("flash_attention_for_cpu")
    return run(*of.tensors, 0.0, of.is_causal, scale=of.scale)


def pull_on_cpu(of: Scores, grad: Tensor, output: Tensor, logs: Tensor) -> tuple[Tensor, ...]:
    """Compute its gradients on a CPU."""
    run = operation("flash_attention_for_cpu_backward")
    return run(grad, *of.tensors, output, logs, 0.0, of.is_causal, scale=of.scale)


def attend_flash(of: Scores) -> tuple[Tensor, Tensor]:
    """Compute an attention of half precision by FlashAttention, on a GPU."""
    run = operation("flash_attention")
    output, logs, *_ = run(*of.tensors, 0.0, of.is_causal, False, scale=of.scale)
    return output, logs


def pull_flash(of: Scores, grad: Tensor, output: Tensor, logs: Tensor) -> tuple[Tensor, ...]:
    """Compute its gradients by FlashAttention."""
    run, [query, key, _] = operation("flash_attention_backward"), of.tensors
    given = (grad, *of.tensors, output, logs, None, None, query.shape[-2], key.shape[-2])
    return run(*given, 0.0, of.is_causal, *undrawn(query), scale=of.scale)


def attend_by_cudnn(of: Scores) -> tuple[Tensor, Tensor]:
    """Compute an attention of half precision by cuDNN, which has kernels of Hopper's own."""
    run = operation("cudnn_attention")
    try:
        output, logs, *_ = run(*of.tensors, None, True, 0.0, of.is_causal, scale=of.scale)
    except RuntimeError:  # it refuses some sizes that PyTorch takes it to be for
        return attend_flash(of)
    return output, logs.flatten(2)


def pull_by_cudnn(of: Scores, grad: Tensor, output: Tensor, logs: Tensor) -> tuple[Tensor, ...]:
    """Compute its gradients by cuDNN."""
    run, [query, key, _] = operation("cudnn_attention_backward"), of.tensors
    given = (grad, *of.tensors, output, logs.unsqueeze(-1), *undrawn(query), None, None, None)
    sizes = query.shape[-2], key.shape[-2]
    try:
        return run(*given, *sizes, 0.0, of.is_causal, scale=of.scale)
    except RuntimeError:
        return pull_flash(of, grad, output, logs)


def attend_efficiently(of: Scores) -> tuple[Tensor, Tensor]:
    """Compute an attention of any precision by blocks, on a GPU."""
    run = operation("efficient_attention")
    output, logs, *_ = run(*of.tensors, None, True, 0.0, of.is_causal, scale=of.scale)
    return output, logs[..., : of.tensors[0].shape[-2]]


def pull_efficiently(of: Scores, grad: Tensor, output: Tensor, logs: Tensor) -> tuple[Tensor, ...]:
    """Compute its gradients by blocks."""
    run, query = operation("efficient_attention_backward"), of.tensors[0]
    logs = pad(logs, (0, -logs.shape[-1] % ROWS), value=torch.inf)
    given = (grad, *of.tensors, None, output, logs, *undrawn(query), 0.0)
    return run(*given, [True, True, True, False], of.is_causal, scale=of.scale)[:3]


def undrawn(query: Tensor) -> tuple[Tensor, Tensor]:
    """Return seed and offset of a dropout that there is not."""
    nothing = torch.zeros((), dtype=torch.int64, device=query.device)
    return nothing, nothing


def operation(name: str) -> Callable[..., Any]:
    """Return an operation by what its name ends with."""
    return getattr(torch.ops.aten, f"_scaled_dot_product_{name}")
