"""Any Python function as a code model: every statement and expression, with names from outside as names."""

from ziggurat.frontends.python.quote import Quoted, quote
from ziggurat.frontends.python.reflect import reflect

__all__ = ["Quoted", "quote", "reflect"]
