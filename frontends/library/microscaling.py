"""Products of matrices in microscaling formats, written in the language (OCP MX specification, version 1.0)."""

# ruff: noqa: RUF005 (the language has no starred items)

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import bf16, f8e4m3, f8e5m2, f16, f32, u8, u16, u32
from ziggurat.frontends import language as zg
from ziggurat.frontends.reflection import function

NAN: Final = float("nan")
NOT_A_SCALE: Final = 255
# The power of two between f16 and a number whose bits are the 4 of e2m1 below the same exponent: 2 to 15 - 1.
FP4_SCALE: Final = 16384.0


@function
def dot_scaled(
    lhs: Any,
    lhs_scale: Any,
    lhs_format: zg.constexpr,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: zg.constexpr,
    acc: Any = None,
    fast_math: zg.constexpr = False,
    lhs_k_pack: zg.constexpr = True,
    rhs_k_pack: zg.constexpr = True,
    out_dtype: zg.constexpr = None,
) -> Any:
    """The products are exact in bf16 and f16 but for overflow and underflow, because scales are powers of two."""
    element = f16 if lhs_format == "fp16" or rhs_format == "fp16" else bf16
    a = upcast(lhs, lhs_scale, lhs_format, fast_math, lhs_k_pack, element)
    b = upcast(transposed(rhs), rhs_scale, rhs_format, fast_math, rhs_k_pack, element)
    return zg.dot(a, transposed(b), acc, out_dtype=out_dtype)


@function
def transposed(x: Any) -> Any:
    """The last two axes exchanged."""
    return zg.trans(x) if len(x.shape) == 2 else zg.permute(x, (0, 2, 1))


@function
def upcast(
    x: Any,
    scale: Any,
    format: zg.constexpr,
    fast_math: zg.constexpr,
    k_pack: zg.constexpr,
    element: zg.constexpr,
) -> Any:
    """An operand whose last axis is k, as numbers of this element type."""
    if format == "e2m1":
        wide = fp4_values(x) if k_pack else transposed(fp4_values(transposed(x)))
    elif format == "e4m3":
        wide = zg.cast(zg.bitcast(x, f8e4m3), f32)
    elif format == "e5m2":
        wide = zg.cast(zg.bitcast(x, f8e5m2), f32)
    else:
        wide = zg.cast(zg.bitcast(x, bf16 if format == "bf16" else f16), f32)
    if scale is None:
        return zg.cast(wide, element)
    return zg.cast(zg.mul(wide, along_k(scale_values(scale, fast_math), wide.shape)), element)


@function
def fp4_values(x: Any) -> Any:
    """Bytes with two e2m1 each, the first in the low bits, as twice as many f32 along the last axis."""
    codes = zg.cast(zg.interleave(zg.and_(x, 15), zg.shr(x, 4)), u16)
    bits = zg.or_(zg.shl(zg.and_(codes, 7), 9), zg.shl(zg.and_(codes, 8), 12))
    return zg.mul(zg.cast(zg.bitcast(bits, f16), f32), FP4_SCALE)


@function
def scale_values(scale: Any, fast_math: zg.constexpr) -> Any:
    """Scales as f32. The exponent of the smallest scale gives 0, as the subnormal would in most products."""
    if scale.dtype == f8e4m3:
        return zg.cast(scale, f32)
    exponents = zg.bitcast(scale, u8)
    powers = zg.bitcast(zg.shl(zg.cast(exponents, u32), 23), f32)
    return powers if fast_math else zg.where(zg.equal(exponents, NOT_A_SCALE), NAN, powers)


@function
def along_k(scale: Any, shape: zg.constexpr) -> Any:
    """Each scale repeated for the elements along k that share it."""
    count = shape[-1] // scale.shape[-1]
    groups = zg.expand(scale, len(scale.shape))
    return zg.reshape(zg.broadcast(groups, scale.shape + (count,)), shape)
