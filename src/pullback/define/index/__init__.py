"""Formulas in index notation: the language, its ranges, derivatives, costs and sharding."""
