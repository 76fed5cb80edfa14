"""Derivatives beside differences of forward: of every order, in every precision."""
