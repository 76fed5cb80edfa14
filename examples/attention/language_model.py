"""A small language model, whose attention and whose loss are a line each.

It learns to write the reference of Python's language, which comes with Python, one character after
another. Beside it trains the same model, from the same weights and on the same text, with PyTorch's
`scaled_dot_product_attention` and `cross_entropy`: both losses are the same.
"""

import copy
import random
from collections.abc import Callable, Iterator
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional

import pullback as pb

causal = pb.operator(
    "language::causal(q[b, h, n, d], k[b, h, m, d], v[b, h, m, d]) -> o[b, h, n, d] ="
    " s[b, h, n, m] = where(m <= n, sum[d](q[b, h, n, d]*k[b, h, m, d])/sqrt(size(d)), -inf);"
    " p[b, h, n, m] = exp(s[b, h, n, m] - max[r](s[b, h, n, r]));"
    " o = sum[m](p[b, h, n, m]*v[b, h, m, d])/sum[m](p[b, h, n, m])"
)
# The last layer is in it: the scores of all words are no tensor. It is a mean: with many words the
# forward computes the gradients too, from scores that it has at hand.
cross_entropy = pb.operator(
    "language::cross_entropy(x[n, d], w[v, d], t[n]: int64) -> l[] ="
    " s[n, v] = sum[d](x[n, d]*w[v, d]); z[n] = max[v](s[n, v]);"
    " l = mean[n](z[n] + log(sum[v](exp(s[n, v] - z[n]))) - sum[d](x[n, d]*w[t[n], d]))"
)


def their_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same attention, by PyTorch's own."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def their_cross_entropy(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
    """The same loss, by PyTorch's own."""
    return functional.cross_entropy(functional.linear(x, w), t)


class Layer(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int, heads: int, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        qkv = self.qkv(self.first(x)).view(b, n, 3 * self.heads, -1).transpose(1, 2)
        o = self.attend(*qkv.chunk(3, 1))
        x = x + self.out(o.transpose(1, 2).reshape(x.shape))
        return x + self.inner(self.second(x))


class Model(nn.Module):
    """A transformer that says what comes next."""

    def __init__(self, *, words: int, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.layers = nn.Sequential(*(Layer(width, 2, causal) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.weight = nn.Parameter(torch.randn(words, width) / width**0.5)
        self.loss: Callable[..., Tensor] = cross_entropy

    def by_pytorch(self) -> "Model":
        """Return a copy, with the same weights, that has PyTorch's own attention and loss."""
        other = copy.deepcopy(self)
        other.loss = their_cross_entropy
        for layer in other.layers:
            assert isinstance(layer, Layer)
            layer.attend = their_causal
        return other

    def states(self, text: Tensor) -> Tensor:
        """Return a vector for each character, of what has been read up to it."""
        x = self.words(text) + self.places.weight[: text.shape[1]]
        return self.norm(self.layers(x))

    def forward(self, text: Tensor, wanted: Tensor) -> Tensor:
        """Return the mean loss of what comes next."""
        return self.loss(self.states(text).flatten(0, 1), self.weight, wanted.flatten())


def read(limit: int | None = None) -> tuple[Tensor, list[str]]:
    """Return the text as numbers, and the characters that they stand for."""
    text = "\n".join(topics[name] for name in sorted(topics))[:limit]
    known = sorted(set(text))
    number = {character: k for k, character in enumerate(known)}
    return torch.tensor([number[character] for character in text]), known


def batches(
    text: Tensor, *, many: int, context: int, seed: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pieces of a text, each with the same one character later, without an end."""
    choose = random.Random(seed)
    while True:
        starts = [choose.randrange(len(text) - context) for _ in range(many)]
        pieces = torch.stack([text[start : start + context + 1] for start in starts])
        yield pieces[:, :-1], pieces[:, 1:]


@torch.no_grad()
def write(model: Model, start: str, known: list[str], *, many: int) -> str:
    """Return a text that a model continues."""
    context = model.places.num_embeddings
    written = [known.index(character) for character in start]
    generator = torch.Generator().manual_seed(0)
    for _ in range(many):
        seen = written[-context:]
        text = functional.pad(torch.tensor([seen]), (0, context - len(seen)))
        scores = model.states(text)[0, len(seen) - 1] @ model.weight.mT
        written.append(int(torch.multinomial(scores.softmax(0), 1, generator=generator)))
    return "".join(known[number] for number in written)


def main(  # noqa: PLR0913  (all of a small model)
    *,
    steps: int = 600,
    many: int = 16,
    context: int = 64,
    width: int = 64,
    layers: int = 2,
    limit: int | None = None,
) -> dict[str, list[float]]:
    """Train both models, print their losses and what the first one writes; return the losses."""
    torch.manual_seed(0)
    text, known = read(limit)
    ours = Model(words=len(known), context=context, width=width, layers=layers)
    models = {"a line each": ours, "PyTorch's own": ours.by_pytorch()}
    optimizers = [torch.optim.Adam(model.parameters(), lr=3e-3) for model in models.values()]
    losses: dict[str, list[float]] = {name: [] for name in models}
    print(f"{sum(p.numel() for p in ours.parameters())} parameters, {len(text)} characters")
    print("step  " + "".join(f"{name:>16}" for name in models))
    pieces = batches(text, many=many, context=context)
    for step in range(steps):
        seen, wanted = next(pieces)
        for (name, model), optimizer in zip(models.items(), optimizers, strict=True):
            optimizer.zero_grad()
            loss = model(seen, wanted)
            loss.backward()
            optimizer.step()
            losses[name].append(loss.item())
        if step % max(steps // 10, 1) == 0 or step == steps - 1:
            print(f"{step:4}  " + "".join(f"{each[-1]:16.6f}" for each in losses.values()))
    apart = max(abs(a - b) for a, b in zip(*losses.values(), strict=True))
    print(f"at most {apart:.1e} apart in {steps} steps")
    assert apart < 1e-4, apart
    print(write(ours, "The ", known, many=200))
    return losses


if __name__ == "__main__":
    main()
