"""Formulas as PyTorch operators: loops asked for when they are needed, derivatives likewise."""
