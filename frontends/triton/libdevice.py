"""CUDA's functions of numbers by their names in libdevice, as `tl.extra.libdevice` has them."""

from __future__ import annotations

import inspect
from typing import Any, Final

from ziggurat.frontends.language.signature import REQUIRED, SIGNATURES
from ziggurat.frontends.triton.spelling import Spelling, spells

# The call of ours by the name in libdevice. The parameters stand in the same order.
_CALLS: Final[dict[str, str]] = {
    **{
        name: name
        for name in (
            "abs", "acos", "asin", "atan", "atan2", "brev", "ceil", "clz", "cos", "cosh", "div_rn", "erf", "exp",
            "exp2", "expm1", "floor", "fma", "log", "log1p", "log2", "popc", "pow", "rint", "round", "rsqrt", "sin",
            "sinh", "sqrt", "sqrt_rn", "tan", "tanh", "trunc",
        )
        if name in SIGNATURES
    },
    "fma_rn": "fma", "fast_dividef": "div", "fast_expf": "exp", "fast_logf": "log", "fast_log2f": "log2",
    "fast_sinf": "sin", "fast_cosf": "cos", "fast_tanf": "tan", "nearbyint": "rint", "rsqrt_rn": "rsqrt",
}  # fmt: skip


def _spelled(name: str, call: str) -> Spelling:
    """The spelling of a call whose parameters are `arg0`, `arg1`, …"""
    ours = [parameter.name for parameter in SIGNATURES[call].parameters if parameter.default is REQUIRED]
    named = {f"arg{index}": parameter for index, parameter in enumerate(ours)}

    def stub() -> Any: ...

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    stub.__signature__ = inspect.Signature([inspect.Parameter(arg, kind, annotation="Value") for arg in named])
    stub.__name__ = f"libdevice.{name}"
    return spells(call, adapt=lambda bound: {named[arg]: value for arg, value in bound.items()})(stub)


LIBDEVICE: Final = {name: _spelled(name, call) for name, call in _CALLS.items()}
