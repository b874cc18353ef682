"""Arithmetic and conversions, element by element."""

from __future__ import annotations

from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import ConstBool, ConstDtype, ConstInt, ConstStr, Value
from ziggurat.frontends.language.signature import call

__all__ = [
    "add", "and_", "bitcast", "brev", "cast", "cdiv", "clamp", "clz", "directed", "div", "div_rn", "fdiv", "floordiv",
    "fma", "invert", "maximum", "minimum", "mod", "mul", "neg", "next_power_of_2", "or_", "popc", "shl", "shr", "sub",
    "umulhi", "xor",
]  # fmt: skip


@call("Arithmetic", host=host.add)
def add(a: Value, b: Value) -> Value:
    """Add two values, `a + b`. Pointers and integers give pointers moved by that many elements.

    - `a`, `b`: scalars or tensors of numbers or pointers.

    Result: the broadcast shape, in the promoted dtype; integers wrap around. Where one operand is pointers, the other
    is integers and the result is pointers.
    Errors: shapes that do not broadcast; two pointers; a pointer and a float.
    """


@call("Arithmetic", host=host.sub)
def sub(a: Value, b: Value) -> Value:
    """Subtract two values, `a - b`. Pointers and integers give pointers moved back.

    - `a`, `b`: scalars or tensors of numbers or pointers.

    Result: the broadcast shape, in the promoted dtype; integers wrap around. Pointers, with pointers as `a` and
    integers as `b`.
    Errors: shapes that do not broadcast; pointers as `b`; a pointer and a float.
    """


@call("Arithmetic", host=host.mul)
def mul(a: Value, b: Value) -> Value:
    """The product `a * b`.

    - `a`, `b`: scalars or tensors of numbers.

    Result: the broadcast shape, in the promoted dtype; integers wrap around.
    Errors: shapes that do not broadcast; pointers.
    """


@call("Arithmetic", host=host.div)
def div(a: Value, b: Value) -> Value:
    """The quotient `a / b`.

    - `a`, `b`: scalars or tensors of numbers.

    Result: the broadcast shape, in the promoted dtype where that is a float, and f32 for two integers.
    Errors: shapes that do not broadcast; pointers.
    """


@call("Arithmetic", host=host.div_rn)
def div_rn(a: Value, b: Value) -> Value:
    """The quotient `a / b`, rounded correctly on every target; `div` may be the machine's fast division.

    - `a`, `b`: scalars or tensors of numbers.

    Result: the broadcast shape, in the promoted dtype where that is a float, and f32 for two integers.
    Errors: shapes that do not broadcast; pointers.
    """


@call("Arithmetic", host=host.fdiv)
def fdiv(a: Value, b: Value, ieee_rounding: ConstBool = False) -> Value:
    """The quotient of floats, as `div`; with `ieee_rounding` as `div_rn`.

    - `a`, `b`: scalars or tensors of floats.
    - `ieee_rounding`: round correctly on every target.

    Result: the broadcast shape, in the promoted dtype.
    Errors: shapes that do not broadcast; integers or pointers.
    """


@call("Arithmetic", host=host.floordiv)
def floordiv(a: Value, b: Value) -> Value:
    """The integer quotient, rounded toward zero as in C.

    Python's operator `//` on constants rounds down instead.

    - `a`, `b`: scalars or tensors of integers.

    Result: the broadcast shape, in the promoted dtype; division by zero is undefined, and the smallest integer by -1 is
    itself.
    Errors: shapes that do not broadcast; floats or pointers.
    """


@call("Arithmetic", host=host.mod)
def mod(a: Value, b: Value) -> Value:
    """The remainder `a - b * floordiv(a, b)`, which has the sign of `a`, as in C.

    Python's operator `%` on constants gives the sign of `b` instead.

    - `a`, `b`: scalars or tensors of numbers.

    Result: the broadcast shape, in the promoted dtype; of floats as C's fmod.
    Errors: shapes that do not broadcast; pointers.
    """


@call("Arithmetic", host=host.neg)
def neg(x: Value) -> Value:
    """The negative, `-x`.

    - `x`: a scalar or a tensor of numbers; not i1.

    Result: as `x`; the smallest integer is its own negative.
    Errors: pointers; i1.
    """


@call("Arithmetic", host=host.and_)
def and_(a: Value, b: Value) -> Value:
    """Bitwise and, `a & b`.

    - `a`, `b`: scalars or tensors of integers or i1.

    Result: the broadcast shape, in the promoted dtype.
    Errors: shapes that do not broadcast; floats or pointers.
    """


@call("Arithmetic", host=host.or_)
def or_(a: Value, b: Value) -> Value:
    """Bitwise or, `a | b`.

    - `a`, `b`: scalars or tensors of integers or i1.

    Result: the broadcast shape, in the promoted dtype.
    Errors: shapes that do not broadcast; floats or pointers.
    """


@call("Arithmetic", host=host.xor)
def xor(a: Value, b: Value) -> Value:
    """Bitwise exclusive or, `a ^ b`.

    - `a`, `b`: scalars or tensors of integers or i1.

    Result: the broadcast shape, in the promoted dtype.
    Errors: shapes that do not broadcast; floats or pointers.
    """


@call("Arithmetic", host=host.invert)
def invert(x: Value) -> Value:
    """Invert every bit, `~x`; an i1 is negated.

    - `x`: a scalar or a tensor of integers or i1.

    Result: as `x`.
    Errors: floats or pointers.
    """


@call("Arithmetic", host=host.shl)
def shl(a: Value, b: Value) -> Value:
    """Shift left, `a << b`. Zeros are shifted in.

    - `a`, `b`: scalars or tensors of integers.

    Result: the broadcast shape, in the promoted dtype; undefined for a shift by the width or more.
    Errors: shapes that do not broadcast; floats or pointers.
    """


@call("Arithmetic", host=host.shr)
def shr(a: Value, b: Value) -> Value:
    """Shift right, `a >> b`. Signed integers get copies of the sign bit, unsigned ones zeros.

    - `a`, `b`: scalars or tensors of integers.

    Result: the broadcast shape, in the promoted dtype; undefined for a shift by the width or more.
    Errors: shapes that do not broadcast; floats or pointers.
    """


@call("Arithmetic", host=host.minimum)
def minimum(a: Value, b: Value, propagate_nan: ConstBool = False) -> Value:
    """The smaller of two values. With one NaN, the result is the other operand.

    - `a`, `b`: scalars or tensors of numbers.
    - `propagate_nan`: with one NaN, the result is NaN instead.

    Result: the broadcast shape, in the promoted dtype; NaN where both are.
    Errors: shapes that do not broadcast; pointers.
    """


@call("Arithmetic", host=host.maximum)
def maximum(a: Value, b: Value, propagate_nan: ConstBool = False) -> Value:
    """The larger of two values. With one NaN, the result is the other operand.

    - `a`, `b`: scalars or tensors of numbers.
    - `propagate_nan`: with one NaN, the result is NaN instead.

    Result: the broadcast shape, in the promoted dtype; NaN where both are.
    Errors: shapes that do not broadcast; pointers.
    """


@call("Arithmetic", host=host.clamp)
def clamp(x: Value, min: Value, max: Value, propagate_nan: ConstBool = False) -> Value:
    """Limit a value to the range between two bounds: `minimum(maximum(x, min), max)`.

    - `x`: a scalar or a tensor of numbers. NaN becomes `min`.
    - `min`, `max`: scalars or tensors; where `min` is above `max` the result is `max`.
    - `propagate_nan`: NaN stays NaN.

    Result: the broadcast shape, in the promoted dtype of all three.
    Errors: shapes that do not broadcast; pointers.
    """


@call("Arithmetic", host=host.fma)
def fma(a: Value, b: Value, c: Value) -> Value:
    """`a * b + c`, rounded once.

    - `a`, `b`, `c`: scalars or tensors; the promoted dtype is a float.

    Result: the broadcast shape, in the promoted dtype of all three.
    Errors: shapes that do not broadcast; integers alone (`add(mul(a, b), c)` does them); pointers.
    """


@call("Arithmetic")
def directed(operation: ConstStr, rounding: ConstStr, *operands: Value) -> Value:
    """An operation of floats that is rounded in one direction, in place of to nearest.

    - `operation`: "add", "mul", "div", "sqrt" or "fma".
    - `rounding`: "rz" (toward zero), "rd" (down) or "ru" (up).
    - `operands`: one for "sqrt", three for "fma", two otherwise; scalars or tensors, in the promoted dtype f32 or f64.

    Result: the broadcast shape, in the promoted dtype.
    Errors: shapes that do not broadcast; other dtypes; another number of operands.
    """


@call("Arithmetic")
def umulhi(a: Value, b: Value) -> Value:
    """The upper half of the product of two unsigned integers.

    - `a`, `b`: scalars or tensors of u32 or u64; signed integers of these widths are taken as their bits.

    Result: the broadcast shape, in the unsigned dtype of that width.
    Errors: shapes that do not broadcast; integers narrower than 32 bits; floats or pointers.
    """


@call("Arithmetic")
def popc(x: Value) -> Value:
    """The number of bits that are set.

    - `x`: a scalar or a tensor of integers; not i1.

    Result: i32, in the shape of `x`.
    Errors: floats, i1 or pointers; a constant.
    """


@call("Arithmetic")
def clz(x: Value) -> Value:
    """The number of zero bits above the highest bit that is set; the width for 0.

    - `x`: a scalar or a tensor of integers; not i1.

    Result: i32, in the shape of `x`.
    Errors: floats, i1 or pointers; a constant.
    """


@call("Arithmetic")
def brev(x: Value) -> Value:
    """The bits in the opposite order.

    - `x`: a scalar or a tensor of integers; not i1.

    Result: as `x`.
    Errors: floats, i1 or pointers; a constant.
    """


@call("Arithmetic", in_language=True)
def cdiv(x: Value, div: Value) -> Value:
    """The quotient rounded up: the number of pieces of size `div` that cover `x`. Works outside of kernels.

    - `x`: integers, not negative.
    - `div`: integers, positive.

    Result: `(x + div - 1) // div`; in the promoted dtype.
    Errors: floats or pointers.
    """
    return floordiv(sub(add(x, div), 1), div)


@call("Arithmetic", host=host.next_power_of_2)
def next_power_of_2(n: ConstInt) -> Value:
    """The smallest power of two that is not less than `n`. Works outside of kernels.

    - `n`: an integer known at compile time.

    Result: a constant; 1 for zero and negative numbers.
    Errors: a number that is not known at compile time.
    """


@call("Conversion", host=host.cast)
def cast(
    x: Value, dtype: ConstDtype, fp_downcast_rounding: ConstStr | None = None, bitcast: ConstBool = False
) -> Value:
    """The value as another dtype.

    - `x`: a scalar or a tensor.
    - `dtype`: of the result. To i1: true where not zero. Float to integer: toward zero, undefined out of range. To a
      narrower integer: the low bits. To a wider integer: by the sign of the source. To an 8-bit float: a number that is
      too large, or an infinity, becomes the largest number of the dtype. Pointers go to other pointers, and to and from
      i64.
    - `fp_downcast_rounding`: "rtne" (to nearest, ties to even; the default) or "rtz" (toward zero); only from a float
      to a narrower one.
    - `bitcast`: keep the bits instead of the value; the dtypes have one width.

    Result: the shape of `x`, in `dtype`; `x` itself where it has that dtype.
    Errors: a rounding where nothing is rounded; a bitcast between widths; a pointer to or from a float.
    """


@call("Conversion")
def bitcast(x: Value, dtype: ConstDtype) -> Value:
    """The bits of the value as another dtype of the same width: `cast(x, dtype, bitcast=True)`.

    - `x`: a scalar or a tensor.
    - `dtype`: as wide as that of `x`.

    Result: the shape of `x`, in `dtype`.
    Errors: dtypes of unequal width.
    """
