"""Every line of the gallery of attentions is what it is compared to."""

from __future__ import annotations

import pytest
from loading import example

pytestmark = pytest.mark.compiler


@pytest.mark.thorough
def test_every_line_of_the_gallery_is_its_reference() -> None:
    for name, apart in example("attention/gallery").main().items():
        assert apart < 1e-12, name
