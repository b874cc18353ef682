"""Reflection: from a function's source to the Python code model."""

from ziggurat.frontends.reflection.functions import reflect

__all__ = ["reflect"]
