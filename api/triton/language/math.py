"""`triton.language.math`: functions of numbers; those of libdevice besides, which older releases have here."""

from __future__ import annotations

from ziggurat.frontends.triton.libdevice import LIBDEVICE
from ziggurat.frontends.triton.library import SPELLED

_NAMES = (
    "abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "max", "min", "rsqrt",
    "sin", "sqrt", "sqrt_rn", "umulhi",
)  # fmt: skip
globals().update(LIBDEVICE)
globals().update({name: SPELLED[name] for name in _NAMES})
