"""Inputs that a target takes, where its user gave none."""
