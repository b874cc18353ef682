"""8-bit floats by integer arithmetic, for targets and roundings without an instruction; and rounding to odd.

Each is a routine of the module, plain LLVM that any machine can run.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import Emitter
from ziggurat.backend.ptx.routines import Routine, f32_bits
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.scalars import bits_of_number
from ziggurat.codemodel.types import ScalarType

ZERO = "0x0000000000000000"


def widen_e4m3(emitter: Emitter, value: str) -> str:
    """An f8e4m3 as f16."""
    emitter.define("zg.f8e4m3.to.f16", _widen_e4m3)
    return emitter.emit(f"call half @zg.f8e4m3.to.f16(i8 {value})")


def _widen_e4m3() -> Routine:
    """The fields moved to their places in an f16 make 1/256 of the number, subnormals too."""
    r = Routine("zg.f8e4m3.to.f16", "half", ("i8",))
    wide = r.emit("zext i8 %a0 to i16")
    magnitude = r.emit(f"and i16 {wide}, 127")
    sign = r.emit(f"and i16 {wide}, 128")
    sign = r.emit(f"shl i16 {sign}, 8")
    fields = r.emit(f"shl i16 {magnitude}, 7")
    fields = r.emit(f"or i16 {fields}, {sign}")
    number = r.emit(f"bitcast i16 {fields} to half")
    number = r.emit(f"fmul half {number}, 0xH5C00")
    nan = r.emit(f"icmp eq i16 {magnitude}, 127")
    return r.done(r.emit(f"select i1 {nan}, half 0xH7E00, half {number}"))


def narrow(emitter: Emitter, value: str, target: ScalarType, rounding: Rounding) -> str:
    """An f32 as an 8-bit float, saturating."""
    name = f"zg.f32.to.{target.name}.{rounding.value}"
    emitter.define(name, lambda: _narrow(name, target, rounding))
    return emitter.emit(f"call i8 @{name}(float {value})")


def _narrow(name: str, target: ScalarType, rounding: Rounding) -> Routine:
    """Above the smallest normal number, the bits are shifted into place and rounded as an integer, so that a carry
    moves on to the exponent; below it, the last place has a fixed weight."""
    digits, bias, nan = target.format.mantissa_bits, target.format.bias, 0x7F
    largest = bits_of_number(target.format.largest, target)
    shift = 23 - digits
    smallest = 127 - bias + 1  # The exponent field, in an f32, of the smallest normal number.
    r = Routine(name, "i8", ("float",))
    bits = r.emit("bitcast float %a0 to i32")
    magnitude = r.emit(f"and i32 {bits}, {0x7FFFFFFF}")
    number = r.emit(f"bitcast i32 {magnitude} to float")
    sign = r.emit(f"lshr i32 {bits}, 24")
    sign = r.emit(f"and i32 {sign}, 128")
    if rounding is Rounding.NEAREST:
        last = r.emit(f"lshr i32 {magnitude}, {shift}")
        last = r.emit(f"and i32 {last}, 1")
        normal = r.emit(f"add i32 {magnitude}, {(1 << shift - 1) - 1}")
        normal = r.emit(f"add i32 {normal}, {last}")
        # Added to a number whose last place weighs as much as this float's, the sum is rounded there.
        anchor = (smallest - digits + 23) << 23
        low = r.emit(f"fadd float {number}, {f32_bits(anchor)}")
        low = r.emit(f"bitcast float {low} to i32")
        low = r.emit(f"sub i32 {low}, {anchor}")
    else:
        normal = magnitude
        scaled = r.emit(f"fmul float {number}, {f32_bits((127 + 127 + digits - smallest) << 23)}")
        below = r.emit(f"icmp ult i32 {magnitude}, {smallest << 23}")
        scaled = r.emit(f"select i1 {below}, float {scaled}, float {ZERO}")
        low = r.emit(f"fptoui float {scaled} to i32")
    normal = r.emit(f"lshr i32 {normal}, {shift}")
    normal = r.emit(f"sub i32 {normal}, {(smallest - 1) << digits}")
    small = r.emit(f"icmp ult i32 {magnitude}, {smallest << 23}")
    code = r.emit(f"select i1 {small}, i32 {low}, i32 {normal}")
    over = r.emit(f"icmp ugt i32 {code}, {largest}")
    code = r.emit(f"select i1 {over}, i32 {largest}, i32 {code}")
    unknown = r.emit(f"icmp ugt i32 {magnitude}, {0x7F800000}")
    code = r.emit(f"select i1 {unknown}, i32 {nan}, i32 {code}")
    code = r.emit(f"or i32 {code}, {sign}")
    return r.done(r.emit(f"trunc i32 {code} to i8"))


def to_odd(emitter: Emitter, value: str) -> str:
    """An f64 as f32 such that rounding the result to fewer digits gives what rounding the f64 would."""
    emitter.define("zg.f64.to.odd", _to_odd)
    return emitter.emit(f"call float @zg.f64.to.odd(double {value})")


def _to_odd() -> Routine:
    """What is not exact becomes the neighbour with an odd last bit (Boldo and Melquiond, 2008)."""
    r = Routine("zg.f64.to.odd", "float", ("double",))
    near = r.emit("fptrunc double %a0 to float")
    back = r.emit(f"fpext float {near} to double")
    bits = r.emit(f"bitcast float {near} to i32")
    size = r.call("double", "llvm.fabs.f64", ("double", "%a0"))
    made = r.call("double", "llvm.fabs.f64", ("double", back))
    above = r.emit(f"fcmp ogt double {made}, {size}")
    step = r.emit(f"sext i1 {above} to i32")
    cut = r.emit(f"add i32 {bits}, {step}")
    odd = r.emit(f"or i32 {cut}, 1")
    finite = r.emit(f"fcmp olt double {size}, 0x7FF0000000000000")
    inexact = r.emit(f"fcmp one double {back}, %a0")
    both = r.emit(f"and i1 {finite}, {inexact}")
    odd = r.emit(f"select i1 {both}, i32 {odd}, i32 {bits}")
    return r.done(r.emit(f"bitcast i32 {odd} to float"))
