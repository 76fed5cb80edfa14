"""Loops for formulas in index notation: from the graph to C++, as text; nothing is compiled here."""
