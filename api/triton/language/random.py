"""`triton.language.random`: random numbers by Philox."""

from __future__ import annotations

from ziggurat.frontends.triton.library import SPELLED

_NAMES = (
    "pair_uniform_to_normal", "philox", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x",
    "uint_to_uniform_float",
)  # fmt: skip
globals().update({name: SPELLED[name] for name in _NAMES})
