"""Functions of packages on PyPI, adopted as they are: `python -m benchmarks.packages`."""
