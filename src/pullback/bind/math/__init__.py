"""Formulas as operators of PyTorch: derivatives when they are needed, and who computes a call."""
