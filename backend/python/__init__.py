"""Python code models as Python again: syntax trees, source text, and functions."""

from ziggurat.backend.python.to_function import to_function
from ziggurat.backend.python.to_python import to_python

__all__ = ["to_function", "to_python"]
