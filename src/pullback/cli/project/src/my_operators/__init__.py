"""The operators of this package: import it, and `torch.ops.my_operators` has them too."""

from my_operators.operators import softplus, swish

__all__ = ["softplus", "swish"]
