"""Random numbers: the Philox generator, and uniform, normal and integer numbers from its words."""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import f32, i32, i64, u32, u64
from ziggurat.frontends import language as zg
from ziggurat.frontends.reflection import function

WIDE: Final = (i64, u64)

# The multipliers and key increments of Philox 4x32 and 4x64: Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
# as easy as 1, 2, 3" (SC 2011).
MULTIPLIERS_32: Final = (0xD2511F53, 0xCD9E8D57)
MULTIPLIERS_64: Final = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
INCREMENTS_32: Final = (0x9E3779B9, 0xBB67AE85)
INCREMENTS_64: Final = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
# The largest f32 whose product with 2³¹ (2³¹ - 1 in f32) is below 1; and the same for 2⁶³.
UNIT_32: Final = 4.6566127342e-10
UNIT_64: Final = 1.0842020432385337e-19
# Replaces a uniform number of 0, whose logarithm is infinite.
TINY: Final = 1.0e-7
TURN: Final = 6.283185307179586


@function
def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: zg.constexpr = 10) -> Any:
    """The key of words of 64 bits is the seed and a zero."""
    wide = c0.dtype in WIDE
    word = u64 if wide else u32
    key = zg.cast(seed, u64)
    k0 = zg.cast(key, word)
    k1 = zg.mul(k0, 0) if wide else zg.cast(zg.shr(key, 32), word)
    x0, x1, x2, x3 = zg.cast(c0, word), zg.cast(c1, word), zg.cast(c2, word), zg.cast(c3, word)
    return philox_rounds(x0, x1, x2, x3, k0, k1, n_rounds)


@function
def philox_rounds(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: zg.constexpr = 10) -> Any:
    """The rounds, for words and keys that are all u32 or all u64.

    The words are broadcast to the shape of the result first, because a variable keeps its shape.
    """
    wide = c0.dtype == u64
    multipliers = MULTIPLIERS_64 if wide else MULTIPLIERS_32
    increments = INCREMENTS_64 if wide else INCREMENTS_32
    like = zg.or_(zg.or_(zg.or_(c0, c1), zg.or_(c2, c3)), zg.or_(k0, k1))
    x0 = zg.broadcast(c0, like)
    x1 = zg.broadcast(c1, like)
    x2 = zg.broadcast(c2, like)
    x3 = zg.broadcast(c3, like)
    for _ in zg.static_range(n_rounds):
        high0 = zg.umulhi(x0, multipliers[0])
        low0 = zg.mul(x0, multipliers[0])
        high1 = zg.umulhi(x2, multipliers[1])
        low1 = zg.mul(x2, multipliers[1])
        x0 = zg.xor(zg.xor(high1, x1), k0)
        x1 = low1
        x2 = zg.xor(zg.xor(high0, x3), k1)
        x3 = low0
        k0 = zg.add(k0, increments[0])
        k1 = zg.add(k1, increments[1])
    return x0, x1, x2, x3


@function
def randint4x(seed: Any, offset: Any, n_rounds: zg.constexpr = 10) -> Any:
    """The offset is the low half of the counter. A 32-bit offset is taken by its bits."""
    high = zg.shr(offset, 32) if offset.dtype in WIDE else 0
    return philox(seed, zg.cast(offset, u32), high, 0, 0, n_rounds)


@function
def randint(seed: Any, offset: Any, n_rounds: zg.constexpr = 10) -> Any:
    """The first of four words."""
    word, _, _, _ = randint4x(seed, offset, n_rounds)
    return word


@function
def uint_to_uniform_float(x: Any) -> Any:
    """A word of 32 or 64 bits as an f32 from 0 up to but not including 1, by all but one of its bits."""
    wide = x.dtype in WIDE
    signed = zg.bitcast(x, i64 if wide else i32)
    folded = zg.where(zg.less(signed, 0), zg.sub(-1, signed), signed)
    return zg.mul(zg.cast(folded, f32), UNIT_64 if wide else UNIT_32)


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
