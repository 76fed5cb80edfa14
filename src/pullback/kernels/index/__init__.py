"""Loops for formulas in index notation: from the graph to the text of C++."""
