"""An existing `torch.autograd.Function`, unchanged -> an operator.

`adopted` reads the class, `from_example` works out its line; `operator` calls and registers it.
`recorded` is a call in plain eager mode; `hidden` and `nested` serve transforms and tracers.
"""
