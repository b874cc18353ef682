"""`triton.language.random`: random numbers by Philox."""

from __future__ import annotations

from ziggurat.frontends.language.constants import constexpr
from ziggurat.frontends.triton.triton_library import SPELLED

N_ROUNDS_DEFAULT: constexpr = constexpr(10)

_NAMES = (
    "pair_uniform_to_normal", "philox", "philox_impl", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x",
    "uint_to_uniform_float",
)  # fmt: skip
globals().update({name: SPELLED[name] for name in _NAMES})
uint32_to_uniform_float = SPELLED["uint_to_uniform_float"]  # The name in Triton 2.1.
