"""The functions of CUDA's libdevice by their names there, written in the language: `FUNCTIONS`, and as attributes.

A kernel calls one as it calls a function of its own: `libdevice.erfinv(x)`. They take the dtypes that Triton's table
declares, f32 and f64 for most; `docs/reference/accuracy.md` has their errors. This package is imported only where it
is used.
"""

from __future__ import annotations

from ziggurat.frontends.language.function import Function
from ziggurat.frontends.library.libdevice import bessel, error_functions, exponential, floats, gamma, integers, rounding
from ziggurat.frontends.library.libdevice.table import FUNCTIONS

__all__ = ["FUNCTIONS", "bessel", "error_functions", "exponential", "floats", "gamma", "integers", "rounding"]


def __getattr__(name: str) -> Function:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"libdevice has no function '{name}'")
