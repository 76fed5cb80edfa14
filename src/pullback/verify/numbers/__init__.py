"""Derivatives compared with differences of forward: of every order, in every precision."""
