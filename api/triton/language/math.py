"""`triton.language.math`: functions of numbers; those of libdevice besides, which older releases have here."""

from __future__ import annotations

from ziggurat.frontends.triton.triton_library import SPELLED
from ziggurat.triton.language.extra.libdevice import __getattr__ as __getattr__

_NAMES = (
    "abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "rsqrt", "sin",
    "sqrt", "sqrt_rn", "umulhi",
)  # fmt: skip
globals().update({name: SPELLED[name] for name in _NAMES})
globals().update(max=SPELLED["maximum"], min=SPELLED["minimum"])  # The names in Triton 2.1 and 2.2.
