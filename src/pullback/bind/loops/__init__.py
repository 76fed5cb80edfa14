"""Compiled loops of formulas: asked for when they are needed, and called."""
