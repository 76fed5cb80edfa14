"""pullback: write your own differentiable PyTorch operators; one line, one operator."""

from pullback.bind.operator import Operator
from pullback.bind.register import operator
from pullback.define.source import source
from pullback.diagnostic import Finding, PullbackError, Rule

__all__ = ["Finding", "Operator", "PullbackError", "Rule", "operator", "source"]
