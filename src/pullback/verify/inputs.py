"""Inputs that a target takes, where its user gave none."""

from __future__ import annotations
def needs_inputs(target, inputs, keywords): return False
def found_inputs(target, *, seed, isolate): ...
