"""Loops of formulas: from the graph to the text of C++ and CUDA."""
