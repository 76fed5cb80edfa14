"""Gated linear attention: a matrix S of keys × values that decays, and is asked by queries.

Source: S. Yang et al., "Gated linear attention transformers with hardware-efficient training"
(2024), whose recurrent form `loop` is.
"""

import torch
from against import compare, minimise
from torch import Tensor

import pullback as pb

attention = pb.operator(
    "recurrences::linear_attention(q[b, t, i], k[b, t, i], v[b, t, j], gate[b, t, i])"
    " -> o[b, t, j] = S[b, t, i, j] = gate[b, t, i]*pad(S[b, t - 1, i, j]) + k[b, t, i]*v[b, t, j];"
    " o = sum[i](q[b, t, i]*S[b, t, i, j])"
)


def loop(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    """The recurrent form."""
    state, found = torch.zeros_like(k[:, 0, :, None] * v[:, 0, None]), list[Tensor]()
    for t in range(q.shape[1]):
        state = gate[:, t, :, None] * state + k[:, t, :, None] * v[:, t, None]
        found.append(torch.einsum("bi,bij->bj", q[:, t], state))
    return torch.stack(found, 1)


def main() -> dict[str, float]:
    """Compare with the loop; learn embeddings by which a query finds the value of its key."""
    torch.manual_seed(0)
    shapes = {"q": (2, 8, 3), "k": (2, 8, 3), "v": (2, 8, 4), "gate": (2, 8, 3)}
    tensors = {n: torch.randn(s, dtype=torch.float64) for n, s in shapes.items()}
    tensors["gate"] = tensors["gate"].sigmoid()
    apart = compare(attention, loop, tensors)
    # 32 lists of 6 of 8 words, each with a value; the last word of a list asks for that of another.
    words = torch.stack([torch.randperm(8)[:6] for _ in range(32)])
    values, asked = torch.randn(32, 6, 1), torch.randint(0, 6, (32,))
    rows = torch.arange(32)
    words = torch.cat([words, words[rows, asked, None]], 1)
    given = torch.cat([values, torch.zeros(32, 1, 1)], 1)
    queries, keys = ((torch.randn(8, 8) / 3).requires_grad_() for _ in range(2))
    gates = torch.zeros(8, requires_grad=True)

    def loss() -> Tensor:
        gate = torch.sigmoid(2 + gates).expand(32, 7, 8)
        found = attention(queries[words], keys[words], given, gate)[:, -1, 0]
        return (found - values[rows, asked, 0]).square().mean()

    return {"apart": apart, **minimise(loss, [queries, keys, gates], steps=120, lr=0.05)}


if __name__ == "__main__":
    main()
