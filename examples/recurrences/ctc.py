"""Connectionist temporal classification, in log space, against torch's own.

`a[t, s]` is the probability of having read the first s of the labels, with blanks between them, by
time t. Source: A. Graves et al., "Connectionist temporal classification" (2006).
"""

import torch
from against import compare, minimise
from torch import Tensor
from torch.nn import functional

import pullback as pb

table = pb.operator(
    "recurrences::ctc(p[b, t, v], label[b, s]: int64, skips[b, s]: bool) -> a[b, t, s] ="
    " p[b, t, label[b, s]] + where(t == 0, where(s < 2, 0.0, -inf), logaddexp(a[b, t - 1, s],"
    " logaddexp(pad(a[b, t - 1, s - 1], -inf),"
    " where(skips, pad(a[b, t - 1, s - 2], -inf), -inf))))"
)


def ctc(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each row; label 0 is the blank."""
    label = torch.zeros(len(targets), 2 * targets.shape[1] + 1, dtype=torch.int64)
    label[:, 1::2] = targets
    skips = (label != 0) & (label != label.roll(2, 1))
    skips[:, :2] = False
    a = table(logits.log_softmax(-1), label, skips)
    return -torch.logaddexp(a[:, -1, -1], a[:, -1, -2])


def theirs(logits: Tensor, targets: Tensor) -> Tensor:
    """The same by torch.nn.functional.ctc_loss."""
    rows, steps, _ = logits.shape
    lengths = torch.full((rows,), steps), torch.full((rows,), targets.shape[1])
    p = logits.log_softmax(-1).transpose(0, 1)
    return functional.ctc_loss(p, targets, *lengths, reduction="none")


def main() -> dict[str, float]:
    """Compare with torch's; learn to write two words."""
    torch.manual_seed(0)
    targets = torch.tensor([[1, 2, 2], [3, 1, 2]])
    logits = torch.randn(2, 9, 4, dtype=torch.float64)
    apart = compare(ctc, theirs, {"logits": logits, "targets": targets})
    trained = logits.clone().requires_grad_()
    losses = minimise(lambda: ctc(trained, targets).mean(), [trained], steps=60, lr=0.2)
    for row, target in zip(trained.argmax(-1), targets, strict=True):
        shown = "".join("-abc"[int(k)] for k in row)
        print(f"  {shown} for {''.join('-abc'[int(k)] for k in target)}")
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
