"""Reflection: from a function's source to the Python code model."""

from ziggurat.frontends.reflection.functions import function, reader, reflect

__all__ = ["function", "reader", "reflect"]
