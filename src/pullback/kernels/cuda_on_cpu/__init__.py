"""CUDA C++ made into C++ that a plain compiler takes and a CPU runs."""
