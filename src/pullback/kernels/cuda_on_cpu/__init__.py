"""Translates CUDA C++ into C++ that a plain compiler takes and a CPU runs."""
