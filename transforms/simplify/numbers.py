"""Numbers of each scalar type, exactly: what a Python number becomes in a type, and what its bits are.

Everything is in Python's integers and floats, so that no array library is needed to fold constants. Python's floats
hold the exact value of each number of each float type, and the sum, difference, product, quotient or square root of two
numbers of a narrower type, computed in f64 and then rounded to that type, is the right one: f64 has more than twice its
bits, and two more (Figueroa, "When is double rounding innocuous?", 1995).
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from ziggurat.codemodel.types import ScalarType, bf16, f8e4m3, f8e5m2, f16, f32, f64


class FloatFormat(NamedTuple):
    """Bits of precision (with the leading one), the exponent of the smallest normal number, and the largest number.

    Where a format `saturates`, what is too large becomes the largest number, infinities too (PTX's `cvt.satfinite`).
    """

    precision: int
    smallest_exponent: int
    largest: float
    saturates: bool = False


FORMATS: dict[ScalarType, FloatFormat] = {
    f64: FloatFormat(53, -1022, float.fromhex("0x1.fffffffffffffp1023")),
    f32: FloatFormat(24, -126, float.fromhex("0x1.fffffep127")),
    bf16: FloatFormat(8, -126, float.fromhex("0x1.fep127")),
    f16: FloatFormat(11, -14, 65504.0),
    f8e5m2: FloatFormat(3, -14, 57344.0, saturates=True),
    f8e4m3: FloatFormat(4, -6, 448.0, saturates=True),
}


def rounded(value: float, type_: ScalarType) -> float:
    """The number of the float type that is nearest, ties to even. Too large ones become infinite, or saturate.

    >>> rounded(0.1, f16)
    0.0999755859375
    >>> rounded(1e6, f16)
    inf
    """
    form = FORMATS[type_]
    if value == 0.0 or math.isnan(value):
        return value
    if math.isinf(value):
        return math.copysign(form.largest, value) if form.saturates else value
    if type_ == f64:
        return value
    quantum = _quantum(math.frexp(value)[1], form)
    return _bounded(round(math.ldexp(value, -quantum)), quantum, value, form)


def truncated(value: float, type_: ScalarType) -> float:
    """The number of the float type next to `value` toward zero. Infinities stay so where the type does not saturate."""
    form = FORMATS[type_]
    if value == 0.0 or math.isnan(value) or type_ == f64:
        return value
    if abs(value) > form.largest:
        return value if math.isinf(value) and not form.saturates else math.copysign(form.largest, value)
    quantum = _quantum(math.frexp(value)[1], form)
    return math.copysign(math.ldexp(math.trunc(math.ldexp(value, -quantum)), quantum), value)


def rounded_integer(value: int, type_: ScalarType) -> float:
    """The number of the float type that is nearest to an integer of any size, ties to even."""
    form = FORMATS[type_]
    if value == 0:
        return 0.0
    quantum = _quantum(value.bit_length(), form)
    if quantum <= 0:
        return rounded(float(value), type_)
    count, rest = divmod(abs(value), 1 << quantum)
    half = 1 << (quantum - 1)
    if rest > half or (rest == half and count & 1):
        count += 1
    return _bounded(count if value > 0 else -count, quantum, float(value), form)


def _quantum(exponent: int, form: FloatFormat) -> int:
    """The exponent of the last bit of a number below 2 to the power of `exponent`."""
    return max(exponent, form.smallest_exponent + 1) - form.precision


def _bounded(count: int, quantum: int, value: float, form: FloatFormat) -> float:
    try:
        result = math.ldexp(count, quantum)
    except OverflowError:
        result = math.inf
    if abs(result) > form.largest:
        return math.copysign(form.largest if form.saturates else math.inf, value)
    return math.copysign(result, value)


def wrapped(value: int, type_: ScalarType) -> int:
    """The number of the integer type with these low bits; a bool for i1.

    >>> from ziggurat.codemodel.types import i8
    >>> wrapped(200, i8)
    -56
    """
    bits = value & ((1 << type_.bits) - 1)
    if type_.kind == "bool":
        return bool(bits)
    return bits - (1 << type_.bits) if type_.signed and bits >> (type_.bits - 1) else bits


def unsigned_of(value: int, type_: ScalarType) -> int:
    """The bits of an integer, read without sign."""
    return int(value) & ((1 << type_.bits) - 1)


def signed_of(value: int, type_: ScalarType) -> int:
    """The bits of an integer, read with a sign bit."""
    bits = unsigned_of(value, type_)
    return bits - (1 << type_.bits) if bits >> (type_.bits - 1) else bits


_LAYOUTS = {f64: ("<d", "<Q"), f32: ("<f", "<I"), f16: ("<e", "<H")}


def bits_of(value: float, type_: ScalarType) -> int | None:
    """The bits of a float; None where they are not ours to say (NaN, and types that Python cannot pack)."""
    if math.isnan(value):
        return None
    value = rounded(value, type_)
    if type_ == bf16:
        return struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    if type_ not in _LAYOUTS:
        return None
    pack, unpack = _LAYOUTS[type_]
    return struct.unpack(unpack, struct.pack(pack, value))[0]


def from_bits(bits: int, type_: ScalarType) -> float | None:
    """The float with these bits; None as in `bits_of`."""
    if type_ == bf16:
        value = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    elif type_ in _LAYOUTS:
        pack, unpack = _LAYOUTS[type_]
        value = struct.unpack(pack, struct.pack(unpack, bits))[0]
    else:
        return None
    return None if math.isnan(value) else value
