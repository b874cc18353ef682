"""Functions of the bits of integers, written in the language: of neighbours, twice as many at each step.

Integers of fewer than 32 bits are computed with in 32, as unsigned numbers.
"""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import i8, i16, i32, i64, u8, u16, u32, u64
from ziggurat.frontends.language.arithmetic import add, and_, mul, or_, shl, shr, sub
from ziggurat.frontends.language.conversion import bitcast, cast
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.reflection import function

# By how much neighbours are apart, and where the lower ones of each two are, in 64 bits.
STEPS: Final = (
    (1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F), (8, 0x00FF00FF00FF00FF),
    (16, 0x0000FFFF0000FFFF),
)  # fmt: skip
ALL_32: Final = 0xFFFFFFFF
ALL_64: Final = 0xFFFFFFFFFFFFFFFF


@function
def as_unsigned(x: Any) -> Any:
    """The bits of an integer, as an unsigned one of its width."""
    kind = x.dtype
    width = u8 if kind == i8 else u16 if kind == i16 else u32 if kind == i32 else u64 if kind == i64 else kind
    return bitcast(x, width)


@function
def popc(x: Any) -> Any:
    """Sums of 2, 4 and 8 bits in their own places; the product has the sum of these in its upper byte."""
    wide = x.dtype == i64 or x.dtype == u64
    keep = ALL_64 if wide else ALL_32
    bits = cast(as_unsigned(x), u64 if wide else u32)
    twos = sub(bits, and_(shr(bits, 1), STEPS[0][1] & keep))
    fours = add(and_(twos, STEPS[1][1] & keep), and_(shr(twos, 2), STEPS[1][1] & keep))
    bytes_ = and_(add(fours, shr(fours, 4)), STEPS[2][1] & keep)
    return cast(shr(mul(bytes_, 0x0101010101010101 & keep), 56 if wide else 24), i32)


@function
def clz(x: Any) -> Any:
    """All bits behind the first one are set; those that are left are counted."""
    wide = x.dtype == i64 or x.dtype == u64
    bits = cast(as_unsigned(x), u64 if wide else u32)
    for distance in (1, 2, 4, 8, 16):
        bits = or_(bits, shr(bits, distance))
    if wide:
        bits = or_(bits, shr(bits, 32))
    return sub(x.dtype.bits, popc(bits))


@function
def brev(x: Any) -> Any:
    """Neighbours change places: bits, pairs of bits, and so on."""
    wide = x.dtype == i64 or x.dtype == u64
    keep = ALL_64 if wide else ALL_32
    bits = cast(as_unsigned(x), u64 if wide else u32)
    for distance, lower in STEPS:
        bits = or_(and_(shr(bits, distance), lower & keep), shl(and_(bits, lower & keep), distance))
    if wide:
        bits = or_(shr(bits, 32), shl(bits, 32))
    if x.dtype.bits < 32:
        bits = shr(bits, 32 - x.dtype.bits)
    return bitcast(cast(bits, as_unsigned(x).dtype), x.dtype)


BITS: Final[dict[str, Function]] = {made.name: made for made in (popc, clz, brev)}
