"""Whether there is a GPU: in truth, whatever `pullback.cuda` makes PyTorch say."""

from __future__ import annotations

import torch


def there_is() -> bool:
    """Tell whether PyTorch can use a GPU."""
    asked = torch.cuda.is_available
    # `pullback.cuda.pretend` leaves what it replaces here.
    return bool(getattr(asked, "__wrapped__", asked)())
