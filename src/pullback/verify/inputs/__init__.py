"""Inputs that a target takes, if its user gave none."""
