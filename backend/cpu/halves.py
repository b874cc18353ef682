"""Conversions between f16 and f32 for processors of x86-64 without F16C, as LLVM text.

There, LLVM calls functions of the compiler's own library, which Python's process does not have.
"""

from __future__ import annotations

from typing import Final

TEXT: Final = """
define weak float @__extendhfsf2(half %x) nounwind {
  %bits.16 = bitcast half %x to i16
  %bits = zext i16 %bits.16 to i32
  %magnitude = and i32 %bits, 32767
  %high = and i32 %bits, 32768
  %sign = shl i32 %high, 16
  %moved = shl i32 %magnitude, 13
  %is.special = icmp uge i32 %magnitude, 31744
  %bias = select i1 %is.special, i32 1879048192, i32 939524096
  %normal = add i32 %moved, %bias
  %count = uitofp i32 %magnitude to float
  %small = fmul float %count, 0x3E70000000000000
  %subnormal = bitcast float %small to i32
  %is.small = icmp ult i32 %magnitude, 1024
  %found = select i1 %is.small, i32 %subnormal, i32 %normal
  %signed = or i32 %found, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}

define weak half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %last = lshr i32 %magnitude, 13
  %odd = and i32 %last, 1
  %biased = sub i32 %magnitude, 939520001
  %rounded = add i32 %biased, %odd
  %normal = lshr i32 %rounded, 13
  %positive = bitcast i32 %magnitude to float
  %sum = fadd float %positive, 5.0e-01
  %sum.bits = bitcast float %sum to i32
  %subnormal = sub i32 %sum.bits, 1056964608
  %is.small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is.small, i32 %subnormal, i32 %normal
  %is.large = icmp uge i32 %magnitude, 1199570944
  %bounded = select i1 %is.large, i32 31744, i32 %finite
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %found = select i1 %is.nan, i32 32256, i32 %bounded
  %signed = or i32 %found, %sign
  %result.16 = trunc i32 %signed to i16
  %result = bitcast i16 %result.16 to half
  ret half %result
}
"""
