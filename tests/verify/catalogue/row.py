"""The rows of the catalogue: each file beside this one adds its own."""

from tests.verify.case import Case, into

ROWS: list[Case] = []
row = into(ROWS)
