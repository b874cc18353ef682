"""Python code models as Python again: syntax trees, source text, and functions."""
