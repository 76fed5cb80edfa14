"""ONNX: an operator becomes one node, and what it computes a function beside it in the file."""
