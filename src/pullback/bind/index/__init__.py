"""Operators in index notation: their loops, their PyTorch operations, and which of them runs."""
