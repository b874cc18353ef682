"""Functions of integers, and the bits of numbers as other numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.types import f32, f64, i32, i64, u32, u64
from ziggurat.frontends import language as zg
from ziggurat.frontends.library.libdevice.table import add_function, helper, libdevice


@libdevice
def ffs(x: Any) -> Any:
    """The number of the lowest bit that is set, from 1; 0 for 0."""
    lowest = zg.and_(x, zg.neg(x))
    return zg.where(zg.equal(x, 0), 0, zg.add(zg.popc(zg.sub(lowest, 1)), 1))


@libdevice
def byte_perm(x: Any, y: Any, s: Any) -> Any:
    """Four bytes of the eight of (y, x), by the four lowest digits of `s`.

    A digit of 8 or more takes the sign of byte digit - 8 for all bits, as PTX's `prmt`.
    """
    both = zg.or_(zg.shl(zg.cast(zg.cast(y, u32), u64), 32), zg.cast(zg.cast(x, u32), u64))
    result = zg.cast(zg.mul(zg.or_(x, s), 0), u32)
    for place in zg.static_range(4):
        digit = zg.and_(zg.shr(zg.cast(s, u32), 4 * place), 15)
        byte = zg.and_(zg.cast(zg.shr(both, zg.cast(zg.mul(zg.and_(digit, 7), 8), u64)), u32), 255)
        signs = zg.where(zg.not_equal(zg.and_(byte, 128), 0), 255, 0)
        byte = zg.where(zg.greater_equal(digit, 8), zg.cast(signs, u32), byte)
        result = zg.or_(result, zg.shl(byte, 8 * place))
    return zg.cast(result, i32)


@libdevice
def mulhi(x: Any, y: Any) -> Any:
    """The upper half of a product; a signed one is the unsigned one less the other operand for each negative one."""
    dtype = zg.mul(x, y).dtype
    high = zg.cast(zg.umulhi(x, y), dtype)
    if dtype.signed:
        high = zg.sub(high, zg.where(zg.less(x, 0), y, zg.cast(0, dtype)))
        high = zg.sub(high, zg.where(zg.less(y, 0), x, zg.cast(0, dtype)))
    return high


@libdevice
def mul24(x: Any, y: Any) -> Any:
    """The low 32 bits of the product of the 24 low bits of each."""
    return zg.mul(zg.shr(zg.shl(x, 8), 8), zg.shr(zg.shl(y, 8), 8))


@libdevice
def sad(x: Any, y: Any, z: Any) -> Any:
    """|x - y| + z."""
    size = zg.sub(zg.cast(zg.maximum(x, y), u32), zg.cast(zg.minimum(x, y), u32))
    return zg.cast(zg.add(size, zg.cast(z, u32)), x.dtype)


@libdevice
def hadd(x: Any, y: Any) -> Any:
    """The mean, rounded down, without overflow."""
    return zg.add(zg.and_(x, y), zg.shr(zg.xor(x, y), 1))


@libdevice
def rhadd(x: Any, y: Any) -> Any:
    """The mean, rounded up, without overflow."""
    return zg.sub(zg.or_(x, y), zg.shr(zg.xor(x, y), 1))


# Bits.


def _bits_as(dtype: Any) -> Callable[..., Any]:
    """The function that takes the bits of a number as one of this type."""

    def bits(x: Any) -> Any:
        return zg.bitcast(x, dtype)

    return bits


# Triton declares the bits of a float as an i32, unsigned ones too.
for _dtype, _names in (
    (f32, ("int_as_float", "uint_as_float")),
    (i32, ("float_as_int", "float_as_uint")),
    (f64, ("longlong_as_double",)),
    (i64, ("double_as_longlong",)),
):
    for _name in _names:
        add_function(_name, _bits_as(_dtype))


@helper
def low_word(x: Any) -> Any:
    """The bits of an integer of 32 bits, without its sign, in 64."""
    return zg.cast(zg.cast(x, u32), i64)


@libdevice
def hiloint2double(hi: Any, lo: Any) -> Any:
    """The f64 of two words."""
    return zg.bitcast(zg.or_(zg.shl(low_word(hi), 32), low_word(lo)), f64)


@libdevice
def double2loint(x: Any) -> Any:
    """The low word."""
    return zg.cast(zg.bitcast(x, i64), i32)


@libdevice
def double2hiint(x: Any) -> Any:
    """The high word."""
    return zg.cast(zg.shr(zg.bitcast(x, i64), 32), i32)
