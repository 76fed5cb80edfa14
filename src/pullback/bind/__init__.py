"""Compiled code and Python functions -> PyTorch's dispatcher."""
