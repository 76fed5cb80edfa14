"""What a newcomer is told to write in place of PyTorch's functions is what these compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from dense import Dense
from torch import Tensor
from torch.nn import functional

from pullback.define import parse as lines
from pullback.define.math import notation
from pullback.define.math.functions import known_names
from pullback.define.math.other_words import LINES, REASONS, SAME
from pullback.define.math.ranges import Ranges

EPS = 0.1
THEIRS: dict[str, Callable[..., Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "softmin": lambda x: functional.softmin(x, -1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "cross_entropy": functional.cross_entropy,
    "nll_loss": functional.nll_loss,
    "mse_loss": functional.mse_loss,
    "l1_loss": functional.l1_loss,
    "huber_loss": functional.huber_loss,
    "norm": lambda x: x.norm(dim=-1),
    "normalize": lambda x: functional.normalize(x, dim=-1),
    "rms_norm": lambda x, w: functional.rms_norm(x, w.shape, w, EPS),
    "layer_norm": lambda x, w, b: functional.layer_norm(x, w.shape, w, b, EPS),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "cosine_similarity": lambda x, y: functional.cosine_similarity(x, y, -1),
    "cdist": torch.cdist,
    "dot": torch.dot,
    "outer": torch.outer,
    "mv": torch.mv,
    "matmul": torch.matmul,
    "bmm": torch.bmm,
    "linear": functional.linear,
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.cumprod(-1),
    "cummax": lambda x: x.cummax(-1).values,
    "cummin": lambda x: x.cummin(-1).values,
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "trace": torch.trace,
    "diagonal": torch.diagonal,
    "transpose": torch.t,
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1),
    "diff": torch.diff,
    "gather": lambda x, index: x.gather(1, index[:, None])[:, 0],
    "embedding": lambda table, index: functional.embedding(index, table),
    "one_hot": lambda index, like: functional.one_hot(index, like.numel()).double(),
    "conv1d": lambda x, k: functional.conv1d(x[None], k)[0],
    "conv2d": lambda x, k: functional.conv2d(x[None], k)[0],
    "max_pool1d": lambda x: functional.max_pool1d(x, 2),
    "avg_pool1d": lambda x: functional.avg_pool1d(x, 2),
    "tril": torch.tril,
    "triu": torch.triu,
    "masked_fill": lambda x, mask: x.masked_fill(mask, 0),
    "argmin": torch.argmin,
    "any": torch.any,
    "all": torch.all,
    "prod": torch.prod,
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "argmax": lambda x: x.argmax(-1),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(-1),
    "nan_to_num": torch.nan_to_num,
    "swish": functional.silu,
    "ln": torch.log,
    "cbrt": lambda x: x.sign() * x.abs() ** (1 / 3),
    "glu": lambda a, b: functional.glu(torch.cat([a, b], -1)),
}
# The first dimension that stands for an index is the larger one, as a table's is.
SIZES = {"v": 5, "c": 4, "h": 6, "w": 5, "p": 2, "q": 3, "...": 2}


@pytest.mark.parametrize("name", LINES)
def test_the_line_that_is_named_instead_computes_the_same(name: str, seed: int) -> None:
    text = LINES[name].replace(", eps: float", "").replace("eps", str(EPS))
    line = lines.parse(f"other::words{text}")
    made = notation.parse(line)
    generator = torch.Generator().manual_seed(seed)
    sizes = {label: SIZES.get(label, 3) for tensor in line.tensors for label in tensor.labels}
    tensors: dict[str, Tensor] = {}
    for tensor in line.tensors:
        shape = [sizes[label] for label in tensor.labels]
        value = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1
        dtypes = {"int64": torch.int64, "bool": torch.bool}
        tensors[tensor.name] = (2 * value).to(dtypes.get(tensor.dtype or "", torch.float64))
    for state in (state for group in made.groups for state in group.states):
        tensors[state.name] = torch.zeros([sizes[label] for label in state.indices]).double()
        # A step is right where all that it reads is.
        for _ in range(sizes["n"]):
            step = Dense(tensors, sizes, Ranges(made.sizes))
            tensors[state.name] = step(state.node, state.indices)
    evaluate = Dense(tensors, sizes, Ranges(made.sizes))
    found = evaluate(made.nodes[0], line.outputs[0].labels)
    torch.testing.assert_close(
        found, THEIRS[name](*(tensors[tensor.name] for tensor in line.tensors)), check_dtype=False
    )


def test_words_of_other_libraries_are_none_of_ours() -> None:
    assert set(SAME.values()) <= set(LINES)
    assert {*LINES, *SAME, *REASONS} & set(known_names()) == {"max", "min"}
    assert len({*LINES, *SAME, *REASONS}) == len(LINES) + len(SAME) + len(REASONS)
