"""What an operator is, as data: no PyTorch, no files, no processes."""
