"""Wrong gradients, and the words by which their causes are named; the right ones beside them."""

from __future__ import annotations

import torch

from tests.verify.case import d
from tests.verify.numbers.made import (
    Wrong,
    c,
    convolve,
    convolve_back,
    first,
    layer_norm,
    normalised,
    positive,
    softmax_mean,
)

WRONG = [
    Wrong(
        name="sin",
        forward=torch.sin,
        inputs=lambda: (d(3, 4),),
        right=lambda g, x, y: g * x.cos(),
        wrong=(
            (lambda g, x, y: -g * x.cos(), ("wrong sign",)),
            (lambda g, x, y: 2 * g * x.cos(), ("2 x the true",)),
            (lambda g, x, y: g * x.sin(), ("factor", "cos", "operand")),
            (lambda g, x, y: g * y.cos(), ("instead of the output",)),
            (lambda g, x, y: g, ("factor", "as if")),
            (lambda g, x, y: None, ("none",)),
            (lambda g, x, y: torch.zeros_like(g), ("zeros",)),
            (lambda g, x, y: (g * x.cos()).flip(0), ("reversed along axis 0",)),
            (lambda g, x, y: (g * x.cos()).roll(1, 1), ("rolled along axis 1",)),
            (lambda g, x, y: (g * x.cos()).roll(1), ("wrong", "elements")),
            (lambda g, x, y: g.flip(1) * x.cos(), ("arrives", "reversed")),
            (lambda g, x, y: g.flatten()[0] * x.cos(), ("only element",)),
            (lambda g, x, y: g.sum() * x.cos(), ("sum or the mean",)),
            (lambda g, x, y: first(2, g * x.cos()), ("from index 2", "tail")),
            (lambda g, x, y: torch.where(x > 0.3, g, g * x.cos()), ("right for",)),
        ),
    ),
    Wrong(
        name="square matrix",
        forward=lambda x: x**3,
        inputs=lambda: (d(4, 4),),
        right=lambda g, x, y: 3 * g * x**2,
        wrong=(
            (lambda g, x, y: (3 * g * x**2).t(), ("transposed",)),
            (lambda g, x, y: 3 * g.t() * x**2, ("transposed", "arrives")),
            (lambda g, x, y: 3 * g * x.t() ** 2, ("transpose",)),
            (lambda g, x, y: 3 * g * x, ("factor",)),
            (lambda g, x, y: g * x**2, ("factor is missing (3",)),
        ),
    ),
    Wrong(
        name="linear",
        forward=lambda x, w, b: x @ w.t() + b,
        inputs=lambda: (d(3, 4), d(4, 4), d(4)),
        right=lambda g, x, w, b, y: (g @ w, g.t() @ x, g.sum(0)),
        wrong=(
            (lambda g, x, w, b, y: (g @ w.t(), g.t() @ x, g.sum(0)), ("transpose",)),
            (lambda g, x, w, b, y: (g @ w, x.t() @ g, g.sum(0)), ("transposed",)),
            (lambda g, x, w, b, y: (g @ w, g.t() @ x, g.mean(0)), ("1/3", "3", "factor")),
            (lambda g, x, w, b, y: (g @ w, g.t() @ x, g[0]), ("index 0", "only", "wrong")),
            (lambda g, x, w, b, y: (g @ w, g.t() @ x, None), ("none",)),
            (lambda g, x, w, b, y: (g @ w, g.t() @ x, g.sum().expand(4)), ("sum or the mean",)),
        ),
    ),
    Wrong(
        name="product",
        forward=lambda a, b: a * b,
        inputs=lambda: (d(5), d(5)),
        right=lambda g, a, b, y: (g * b, g * a),
        wrong=(
            (lambda g, a, b, y: (g * a, g * b), ("exchanged",)),
            (lambda g, a, b, y: (g, g * a), ("as if",)),
            (lambda g, a, b, y: (g * b + g * a, g * a), ("as well", "term")),
            (lambda g, a, b, y: (g * b.abs(), g * a), ("absolute", "right for")),
            (lambda g, a, b, y: (g * b, -g * a), ("wrong sign",)),
        ),
    ),
    Wrong(
        name="division",
        forward=lambda a, b: a / b,
        inputs=lambda: (d(6), positive(6)),
        right=lambda g, a, b, y: (g / b, -g * a / b**2),
        wrong=(
            (lambda g, a, b, y: (g / b, g * a / b**2), ("wrong sign",)),
            (lambda g, a, b, y: (g / b, -g * a / b), ("instead of", "factor")),
            (lambda g, a, b, y: (g * b, -g * a / b**2), ("factor",)),
            (lambda g, a, b, y: (g / b, -g * b / a**2), ("wrong",)),
        ),
    ),
    Wrong(
        name="tanh",
        forward=torch.tanh,
        inputs=lambda: (d(3, 3),),
        right=lambda g, x, y: g * (1 - y**2),
        wrong=(
            (lambda g, x, y: g * (1 - x**2), ("output instead of",)),
            (lambda g, x, y: g * (1 + y**2), ("factor", "term")),
            (lambda g, x, y: g * (1 - y), ("factor",)),
        ),
    ),
    Wrong(
        name="sigmoid",
        forward=torch.sigmoid,
        inputs=lambda: (d(7),),
        right=lambda g, x, y: g * y * (1 - y),
        wrong=(
            (lambda g, x, y: g * x * (1 - x), ("output instead of",)),
            (lambda g, x, y: g * y, ("factor",)),
            (lambda g, x, y: g * (1 - y), ("factor",)),
        ),
    ),
    Wrong(
        name="softmax",
        forward=lambda x: x.softmax(-1),
        inputs=lambda: (d(3, 5),),
        right=lambda g, x, y: g * y - softmax_mean(g, y),
        wrong=(
            (lambda g, x, y: g * y, ("sum over axis 1",)),
            (lambda g, x, y: g * y - y * (g * y).mean(-1, keepdim=True), ("term",)),
            (lambda g, x, y: g * y - y * g.sum(-1, keepdim=True), ("term", "exchanged")),
            (lambda g, x, y: g * y - y * (g * y).sum(), ("wrong", "depend")),
            (lambda g, x, y: g * y * (1 - y), ("sum over axis 1",)),
            (lambda g, x, y: softmax_mean(g, y) - g * y, ("wrong sign",)),
        ),
    ),
    Wrong(
        name="log_softmax",
        forward=lambda x: x.log_softmax(-1),
        inputs=lambda: (d(2, 6),),
        right=lambda g, x, y: g - y.exp() * g.sum(-1, keepdim=True),
        wrong=(
            (lambda g, x, y: g, ("sum over axis 1",)),
            (lambda g, x, y: g - y.exp(), ("linear", "ignor", "wrong")),
            (lambda g, x, y: g - y * g.sum(-1, keepdim=True), ("exp of", "term")),
            (lambda g, x, y: g - y.exp() * g, ("sum over axis 1",)),
        ),
    ),
    Wrong(
        name="layer norm",
        forward=normalised,
        inputs=lambda: (d(3, 6),),
        right=layer_norm,
        wrong=(
            (lambda g, x, y: layer_norm(g, x, y, mean=False), ("term", "sum")),
            (lambda g, x, y: layer_norm(g, x, y, var=False), ("term", "sum")),
            (lambda g, x, y: layer_norm(g, x, y, mean=False, var=False), ("sum over axis 1",)),
            (lambda g, x, y: layer_norm(g, x, y) / 6, ("1/6", "6")),
        ),
    ),
    Wrong(
        name="correlation",
        forward=convolve,
        inputs=lambda: (d(9), d(3)),
        right=lambda g, x, w, y: (convolve_back(g, w), convolve(x, g)),
        wrong=(
            (lambda g, x, w, y: (convolve_back(g, w.flip(0)), convolve(x, g)), ("flipped",)),
            (lambda g, x, w, y: (convolve_back(g, w), convolve(x, g).flip(0)), ("reversed",)),
            (lambda g, x, w, y: (convolve_back(g, w), convolve(x, g.flip(0))), ("revers",)),
        ),
    ),
    Wrong(
        name="cumsum",
        forward=lambda x: x.cumsum(0),
        inputs=lambda: (d(6),),
        right=lambda g, x, y: g.flip(0).cumsum(0).flip(0),
        wrong=(
            (lambda g, x, y: g.cumsum(0), ("transpose",)),
            (lambda g, x, y: g, ("sum over axis 0",)),
            (lambda g, x, y: g.flip(0).cumsum(0), ("reversed",)),
            (lambda g, x, y: g.flip(0).cumsum(0).flip(0) - g, ("term", "off by one", "diagonal")),
        ),
    ),
    Wrong(
        name="mean",
        forward=lambda x: x.mean(),
        inputs=lambda: (d(3, 4),),
        right=lambda g, x, y: (g / 12).expand(3, 4),
        wrong=(
            (lambda g, x, y: g.expand(3, 4), ("12",)),
            (lambda g, x, y: (g / 4).expand(3, 4), ("3",)),
        ),
    ),
    Wrong(
        name="product rule",
        forward=lambda x: x * x.sin(),
        inputs=lambda: (d(8),),
        right=lambda g, x, y: g * (x.sin() + x * x.cos()),
        wrong=(
            (lambda g, x, y: g * x * x.cos(), ("term", "sin(x)")),
            (lambda g, x, y: g * x.sin(), ("term", "wrong")),
        ),
    ),
    Wrong(
        name="complex product",
        forward=lambda x, y: x * y,
        inputs=lambda: (c(4), c(4)),
        right=lambda g, x, y, z: (g * y.conj(), g * x.conj()),
        wrong=(
            (lambda g, x, y, z: (g * y, g * x), ("conj",)),
            (lambda g, x, y, z: (g.conj() * y, g * x.conj()), ("conj",)),
            (lambda g, x, y, z: (g * y.conj(), (g * x.conj()).real + 0j), ("imaginary",)),
        ),
    ),
    Wrong(
        name="complex square of the size",
        forward=lambda x: (x * x.conj()).real,
        inputs=lambda: (c(5),),
        right=lambda g, x, y: 2 * g * x,
        wrong=(
            (lambda g, x, y: g * x, ("0.5",)),
            (lambda g, x, y: 2 * g * x.conj(), ("conj",)),
        ),
    ),
    Wrong(
        name="attention",
        forward=lambda q, k: (q @ k.mT) * q.shape[-1] ** -0.5,
        inputs=lambda: (d(5, 4), d(6, 4)),
        right=lambda g, q, k, y: (g @ k / 2, g.mT @ q / 2),
        wrong=(
            (lambda g, q, k, y: (g @ k / 2, g.mT @ q), ("2 x the true",)),
            (lambda g, q, k, y: (g @ k / 4, g.mT @ q / 2), ("0.5",)),
        ),
    ),
    Wrong(
        name="two outputs",
        forward=lambda x: (x.sin(), x.cos()),
        inputs=lambda: (d(4),),
        right=lambda g, h, x, y, z: g * z - h * y,
        wrong=(
            (lambda g, h, x, y, z: g * z + h * y, ("wrong sign",)),
            (lambda g, h, x, y, z: h * z - g * y, ("wrong", "factor", "exchang")),
        ),
    ),
    Wrong(
        name="gather",
        forward=lambda x: x[torch.tensor([2, 0, 3, 3])],
        inputs=lambda: (d(5, 2),),
        right=lambda g, x, y: torch.zeros_like(x).index_add(0, torch.tensor([2, 0, 3, 3]), g),
        wrong=(
            (
                lambda g, x, y: torch.zeros_like(x).index_copy(0, torch.tensor([2, 0, 3, 3]), g),
                ("index", "wrong"),
            ),
            (
                lambda g, x, y: torch.zeros_like(x).index_add(0, torch.tensor([3, 1, 4, 4]), g),
                ("off by one", "rolled", "shifted"),
            ),
        ),
    ),
    Wrong(
        name="scale with an argument",
        forward=lambda x, scale: x * x * scale,
        inputs=lambda: (d(2, 3), 0.3),
        right=lambda g, x, scale, y: 2 * g * x * scale,
        wrong=((lambda g, x, scale, y: 2 * g * x, ("args[1]?",)),),
    ),
    Wrong(
        name="a matrix and its transpose",
        forward=lambda a: a + a.t(),
        inputs=lambda: (d(4, 4),),
        right=lambda g, a, y: g + g.t(),
        wrong=(
            (lambda g, a, y: 2 * g, ("transposed as well",)),
            (lambda g, a, y: g, ("transposed as well",)),
        ),
    ),
    Wrong(
        name="a signal and its reverse",
        forward=lambda x: x + x.flip(0),
        inputs=lambda: (d(6),),
        right=lambda g, x, y: g + g.flip(0),
        wrong=((lambda g, x, y: 2 * g, ("reversed along axis 0 as well",)),),
    ),
    Wrong(
        name="norm",
        forward=lambda x: x.square().sum(-1).sqrt(),
        inputs=lambda: (d(3, 4),),
        right=lambda g, x, y: (g / y)[:, None] * x,
        wrong=(
            (lambda g, x, y: g[:, None] * x, ("factor", "y")),
            (lambda g, x, y: (g * y)[:, None] * x, ("factor", "y")),
            (lambda g, x, y: (g / y)[:, None] * x.sign(), ("factor", "wrong")),
        ),
    ),
]
