"""Triton's Python: its names for the calls of the language, its dtypes and its constants.

Functions under `@triton.jit` are reflected as those of the explicit calls are, with the policy `TRITON`.
"""

from ziggurat.frontends.triton import calls as calls
from ziggurat.frontends.triton.constexpr import constexpr
from ziggurat.frontends.triton.spelling import METHODS, SPELLED, Spelling

__all__ = ["METHODS", "SPELLED", "Spelling", "constexpr"]
