"""`pullback build --as cmake`: a shared library that registers operators without Python.

What an author wrote and what was derived from it becomes C++ data (`definitions`), which the
runtime that Python loads too (csrc/runtime) takes as it takes Python's. csrc/library adds what only
such a library needs: registration when it is loaded, a kernel for tensors without memory, autocast.
"""
