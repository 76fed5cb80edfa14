"""An existing `torch.autograd.Function`, as it is -> an operator.

`adopted` reads the class; `operator` calls and registers it; `recorded` is a call in plain eager
mode; `hidden` and `nested` are the way of transforms and tracers.
"""
