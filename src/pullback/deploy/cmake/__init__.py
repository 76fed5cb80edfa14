"""`pullback build --as cmake`: a shared library that registers operators without Python.

What an author wrote and what was derived from it becomes C++ data (`definitions`). The runtime that
Python loads too (csrc/runtime) reads it as it reads Python's. csrc/library adds what only such a
library needs: registration when it is loaded, a kernel for tensors without memory, autocast.
"""
