"""Formulas by PyTorch's operations, on every device."""
