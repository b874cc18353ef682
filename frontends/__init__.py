"""Frontends: the ways from a Python function to the Python code model."""
