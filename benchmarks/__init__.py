"""Figures with their peers, measured in the same run: `python -m benchmarks`."""
