"""Makes PyTorch's own operators that add one by one add in float32.

`index_put_(accumulate=True)` and the like add in the dtype of their result on the CPU. The digits
that this loses are PyTorch's fault, not the author's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

LOW = (torch.bfloat16, torch.float16)
ADDING = frozenset(
    {"index_put", "index_put_", "_index_put_impl_", "index_add", "index_add_", "scatter_add"}
    | {"scatter_add_", "scatter_reduce", "scatter_reduce_", "embedding_dense_backward"}
    | {"segment_reduce", "_segment_reduce_backward", "index_select_backward", "put_"}
)


class AddingInFloat32(TorchDispatchMode):
    """A mode in which these operators compute in float32, and round once."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Call an operator; one that adds in float32."""
        kwargs = kwargs or {}
        first = args[0] if args else None
        if (
            func._schema.name.removeprefix("aten::") not in ADDING
            or not isinstance(first, Tensor)
            or first.dtype not in LOW
        ):
            return func(*args, **kwargs)
        wide = tree_map_only(Tensor, widen, (args, kwargs))
        result = func(*wide[0], **wide[1])
        if func._schema.is_mutable:
            return first.copy_(result)
        return result.to(first.dtype)


def widen(tensor: Tensor) -> Tensor:
    """Return a tensor in float32, if it is of a lower precision."""
    return tensor.float() if tensor.dtype in LOW else tensor
