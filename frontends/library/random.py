"""Random numbers: the Philox generator, and uniform, normal and integer numbers from its words."""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import f32, i32, i64, u32, u64
from ziggurat.frontends import language as zg
from ziggurat.frontends.reflection import function

WIDE: Final = (i64, u64)

# The multipliers and key increments of Philox 4x32: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
# 1, 2, 3" (SC 2011).
MULTIPLIER_0: Final = 0xD2511F53
MULTIPLIER_1: Final = 0xCD9E8D57
INCREMENT_0: Final = 0x9E3779B9
INCREMENT_1: Final = 0xBB67AE85
# The largest f32 whose product with 2³¹ (2³¹ - 1 in f32) is below 1.
UNIT: Final = 4.6566127342e-10
# Replaces a uniform number of 0, whose logarithm is infinite.
TINY: Final = 1.0e-7
TURN: Final = 6.283185307179586


@function
def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: zg.constexpr = 10) -> Any:
    """The four words are broadcast to the shape of the result first, because a variable keeps its shape."""
    key = zg.cast(seed, u64)
    k0 = zg.cast(key, u32)
    k1 = zg.cast(zg.shr(key, 32), u32)
    like = zg.or_(zg.or_(zg.cast(c0, u32), zg.cast(c1, u32)), zg.or_(zg.cast(c2, u32), zg.cast(c3, u32)))
    x0 = zg.broadcast(zg.cast(c0, u32), like)
    x1 = zg.broadcast(zg.cast(c1, u32), like)
    x2 = zg.broadcast(zg.cast(c2, u32), like)
    x3 = zg.broadcast(zg.cast(c3, u32), like)
    for _ in zg.static_range(n_rounds):
        high0 = zg.umulhi(x0, MULTIPLIER_0)
        low0 = zg.mul(x0, MULTIPLIER_0)
        high1 = zg.umulhi(x2, MULTIPLIER_1)
        low1 = zg.mul(x2, MULTIPLIER_1)
        x0 = zg.xor(zg.xor(high1, x1), k0)
        x1 = low1
        x2 = zg.xor(zg.xor(high0, x3), k1)
        x3 = low0
        k0 = zg.add(k0, INCREMENT_0)
        k1 = zg.add(k1, INCREMENT_1)
    return x0, x1, x2, x3


@function
def randint4x(seed: Any, offset: Any, n_rounds: zg.constexpr = 10) -> Any:
    """The offset is the low half of the counter. A 32-bit offset is taken by its bits."""
    return philox(seed, offset, zg.shr(offset, 32) if offset.dtype in WIDE else 0, 0, 0, n_rounds)


@function
def randint(seed: Any, offset: Any, n_rounds: zg.constexpr = 10) -> Any:
    """The first of four words."""
    word, _, _, _ = randint4x(seed, offset, n_rounds)
    return word


@function
def uint_to_uniform_float(word: Any) -> Any:
    """A word as a float from 0 up to but not including 1, by 31 of its bits."""
    signed = zg.bitcast(word, i32)
    folded = zg.where(zg.less(signed, 0), zg.sub(-1, signed), signed)
    return zg.mul(zg.cast(folded, f32), UNIT)


@function
def rand(seed: Any, offset: Any, n_rounds: zg.constexpr = 10) -> Any:
    """One uniform number."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@function
def rand4x(seed: Any, offset: Any, n_rounds: zg.constexpr = 10) -> Any:
    """Four uniform numbers."""
    w0, w1, w2, w3 = randint4x(seed, offset, n_rounds)
    return uint_to_uniform_float(w0), uint_to_uniform_float(w1), uint_to_uniform_float(w2), uint_to_uniform_float(w3)


@function
def pair_uniform_to_normal(u1: Any, u2: Any) -> Any:
    """The Box-Muller transform: two uniform numbers give the radius and the angle of two normal ones."""
    radius = zg.sqrt(zg.mul(-2.0, zg.log(zg.maximum(u1, TINY))))
    angle = zg.mul(TURN, u2)
    return zg.mul(radius, zg.cos(angle)), zg.mul(radius, zg.sin(angle))


@function
def randn(seed: Any, offset: Any, n_rounds: zg.constexpr = 10) -> Any:
    """One normal number."""
    w0, w1, _, _ = randint4x(seed, offset, n_rounds)
    normal, _ = pair_uniform_to_normal(uint_to_uniform_float(w0), uint_to_uniform_float(w1))
    return normal


@function
def randn4x(seed: Any, offset: Any, n_rounds: zg.constexpr = 10) -> Any:
    """Four normal numbers."""
    u0, u1, u2, u3 = rand4x(seed, offset, n_rounds)
    n0, n1 = pair_uniform_to_normal(u0, u1)
    n2, n3 = pair_uniform_to_normal(u2, u3)
    return n0, n1, n2, n3
