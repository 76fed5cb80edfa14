"""The forward algorithm of a hidden Markov model, in log space.

Source: L. Rabiner, "A tutorial on hidden Markov models" (1989), section III A.
"""

import itertools

import torch
from against import compare, minimise
from torch import Tensor

import pullback as pb

# The greatest of what is added up only keeps exp from overflowing: its derivative is none.
forward = pb.operator(
    "recurrences::hmm(start[s], move[s, s], emit[..., t, s]) -> a[..., t, s] ="
    " top[..., t, s] = stop(max[r](pad(a[..., t - 1, r]) + move[r, s]));"
    " a = emit + where(t == 0, start[s], top[..., t, s]"
    " + log(sum[r](exp(pad(a[..., t - 1, r]) + move[r, s] - top[..., t, s]))))"
)


def likelihood(start: Tensor, move: Tensor, emit: Tensor) -> Tensor:
    """Return the logarithm of the probability of each observation."""
    return forward(start, move, emit)[..., -1, :].logsumexp(-1)


def every_path(start: Tensor, move: Tensor, emit: Tensor) -> Tensor:
    """The same by adding up all paths, of which there are states**times."""
    times, states = emit.shape[-2:]
    found = list[Tensor]()
    for path in itertools.product(range(states), repeat=times):
        steps = [start[path[0]], *(move[a, b] for a, b in itertools.pairwise(path))]
        seen = (emit[..., t, s] for t, s in enumerate(path))
        found.append(sum(seen, start=torch.stack(steps).sum()))
    return torch.stack(found).logsumexp(0)


def main() -> dict[str, float]:
    """Compare with the sum over all paths; learn how often a coin is swapped for a loaded one."""
    torch.manual_seed(0)
    tensors = {"start": torch.randn(3), "move": torch.randn(3, 3), "emit": torch.randn(2, 5, 3)}
    apart = compare(likelihood, every_path, {n: t.double() for n, t in tensors.items()})
    move, heads = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0.5, 0.95])
    state = torch.randint(0, 2, (48,))
    rows = list[Tensor]()
    for _ in range(32):
        rows.append(torch.bernoulli(heads[state]))
        state = torch.multinomial(move[state], 1)[:, 0]
    seen = torch.stack(rows, 1)
    moves, loaded = torch.zeros(2, 2, requires_grad=True), torch.tensor([0.0, 1.0])
    loaded.requires_grad_()

    def loss() -> Tensor:
        chance = loaded.sigmoid().clamp(1e-4, 1 - 1e-4)
        emit = torch.where(seen[..., None] > 0, chance, 1 - chance).log()
        start = torch.full((2,), 0.5).log()
        return -likelihood(start, moves.log_softmax(-1), emit).mean()

    losses = minimise(loss, [moves, loaded], steps=60, lr=0.1)
    print(f"  heads {[round(v, 2) for v in heads.tolist()]}, learnt", end=" ")
    print([round(v, 2) for v in loaded.sigmoid().tolist()])
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
