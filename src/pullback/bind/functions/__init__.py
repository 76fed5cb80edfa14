"""An existing `torch.autograd.Function`, unchanged -> an operator.

`adopted` reads the class, `from_example` works out its line; `operator` calls and registers it.
`eager` is a call in plain eager mode; `opaque` and `transforms` serve transforms and tracers.
"""
