"""Numbers from one type to another, exactly as the target does it.

Floats of 16 and 8 bits are computed with in f32 (`widened`) and rounded after each op (`rounded`). f32 has more than
twice their digits, so rounding twice gives what rounding once would, for + - * / and the square root.

Conversions to the 8-bit floats saturate, infinities too, as PTX's `cvt.rn.satfinite` (PTX ISA, "cvt"); NaN stays NaN.
"""

from __future__ import annotations

import numpy as np

from ziggurat.backend.reference.values import DTYPES, Array
from ziggurat.codemodel.types import ScalarType, bf16, f8e4m3, f8e5m2, f16, f32, f64

_F8_MAX = {f8e4m3: 448.0, f8e5m2: 57344.0}
_UINTS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def widened(array: Array) -> Array:
    """Floats of fewer than 32 bits as f32, exactly; others as they are."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


def to_odd_f32(array: Array) -> Array:
    """f64 to f32 such that rounding the result to fewer digits gives what rounding the operand would.

    What is not exact becomes the neighbour with an odd last bit (Boldo and Melquiond, "Emulation of FMA and correctly
    rounded sums", 2008).
    """
    near = array.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32).copy()
    bits -= np.abs(back) > np.abs(array)
    bits |= (back != array) & np.isfinite(array)
    return bits.view(np.float32)


def rounded(array: Array, scalar: ScalarType) -> Array:
    """Floats in f32 or f64 as this type, to nearest, ties to even."""
    if scalar in (f32, f64, f16):
        return array.astype(DTYPES[scalar], copy=False)
    if array.dtype == np.float64:
        array = to_odd_f32(array)
    if scalar in _F8_MAX:
        limit = np.float32(_F8_MAX[scalar])
        array = np.clip(array, -limit, limit)  # NaN passes.
    return array.astype(DTYPES[scalar])


def _toward_zero(array: Array, scalar: ScalarType) -> Array:
    """Floats as this narrower type, cut off."""
    if scalar.is_fp8:
        dtype = DTYPES[scalar]
        codes = np.arange(0x7F if scalar == f8e4m3 else 0x7C, dtype=np.uint8)
        magnitudes = codes.view(dtype).astype(np.float64)
        code = np.searchsorted(magnitudes, np.abs(array).astype(np.float64), side="right") - 1
        sign = np.where(np.signbit(array), 0x80, 0)
        cut = (code | sign).astype(np.uint8).view(dtype)
        return np.where(np.isnan(array), rounded(array, scalar), cut)
    if scalar == bf16 and array.dtype == np.float64:
        array = _toward_zero(array, f32)
    if scalar == bf16:
        cut = (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isnan(array), array, cut).astype(DTYPES[bf16])
    near = array.astype(DTYPES[scalar])
    bits = near.view(_UINTS[scalar.bits]).copy()
    bits -= np.abs(near.astype(array.dtype)) > np.abs(array)
    return bits.view(near.dtype)


def converted(array: Array, source: ScalarType, target: ScalarType, *, toward_zero: bool = False) -> Array:
    """Floats of one type as floats of another."""
    array = np.ascontiguousarray(widened(array))
    if toward_zero and target.bits < source.bits:
        return _toward_zero(array, target)
    return rounded(array, target)


def int_to_float(array: Array, target: ScalarType) -> Array:
    """Integers as floats, rounded once."""
    if target in (f32, f64):
        return array.astype(DTYPES[target])
    if array.dtype.itemsize == 8:
        # Below 2**53 in magnitude f64 is exact; above, the bits that do not fit only count as "there is more".
        low = array & array.dtype.type(0x7FF)
        sticky = (array - low) | ((low != 0).astype(array.dtype) << array.dtype.type(11))
        large = (array >= 1 << 53) | (array <= -(1 << 53)) if array.dtype.kind == "i" else array >= 1 << 53
        array = np.where(large, sticky, array)
    return rounded(array.astype(np.float64), target)


def float_to_int(array: Array, target: ScalarType) -> Array:
    """Floats as integers, rounded toward zero; what does not fit becomes the nearest that does, and NaN 0.

    So does PTX's `cvt.rzi`.
    """
    wide = np.trunc(widened(array).astype(np.float64))
    low, high = target.limits
    dtype = DTYPES[target]
    above, below = wide >= float(high + 1), wide < float(low)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide).astype(np.uint64 if low == 0 else np.int64)
    result = np.where(above, dtype.type(high), inside.astype(dtype))
    return np.where(below, dtype.type(low), result)


def bits_of(array: Array) -> Array:
    """The bits of numbers or addresses, as unsigned integers."""
    array = np.ascontiguousarray(array)
    return array.view(_UINTS[array.dtype.itemsize * 8])


def reinterpreted(array: Array, target: ScalarType) -> Array:
    """The bits of numbers as another type of the same width."""
    return np.ascontiguousarray(array).view(DTYPES[target])


def tf32(array: Array) -> Array:
    """f32 with 10 digits after the point: to nearest, ties away from zero, as PTX's `cvt.rna.tf32.f32`."""
    array = np.ascontiguousarray(array)
    bits = (array.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(array), bits.view(np.float32), array)
