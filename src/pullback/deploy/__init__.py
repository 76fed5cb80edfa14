"""Operators leave the author's machine: libraries, wheels, projects, other programs."""
