"""Tests and figures of a GPU, within a given time: `python -m benchmarks.gpu --minutes 8`."""
