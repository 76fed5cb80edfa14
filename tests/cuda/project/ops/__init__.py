"""A package whose extension its setup.py builds."""
