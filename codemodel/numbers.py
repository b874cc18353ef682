"""Python numbers held in the scalar types: rounding, bits, and the ops that need no NumPy.

Compiling a kernel needs this module only: importing NumPy takes longer than compiling a small kernel. `scalars.py`
applies the same functions of integers and comparisons to arrays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, f64, scalar_element

Number = int | float  # bool, which is an int in Python, is the number of an i1.
Binary = Callable[[Any, Any], Any]


# Floats.


def rounded_number(number: Number, scalar: ScalarType) -> float:
    """A number rounded once to a float type, to nearest, ties to even.

    A number that is too large becomes an infinity, or the largest number of a type that saturates.

    >>> from ziggurat.codemodel.types import f16
    >>> rounded_number(0.1, f16), rounded_number(1e6, f16)
    (0.0999755859375, inf)
    """
    if scalar == f64 and isinstance(number, float):
        return number
    return number_of_bits(bits_of_number(number, scalar), scalar)


def number_of_bits(bits: int, scalar: ScalarType) -> float:
    """The number of a float type that has these bits.

    >>> from ziggurat.codemodel.types import f16
    >>> number_of_bits(0xFC00, f16)
    -inf
    """
    layout = scalar.format
    sign = -1.0 if bits >> (scalar.bits - 1) else 1.0
    code = bits & ((1 << scalar.bits - 1) - 1)
    if code >= layout.codes:
        return math.copysign(math.inf if layout.has_infinity and code == layout.codes else math.nan, sign)
    field = max(code >> layout.mantissa_bits, 1)  # Subnormal numbers have the exponent of the smallest normal one.
    places = code - (field - 1 << layout.mantissa_bits)
    return sign * math.ldexp(places, field - layout.bias - layout.mantissa_bits)


def bits_of_number(number: Number, scalar: ScalarType) -> int:
    """The bits of a number rounded to a float type, as an unsigned integer."""
    layout = scalar.format
    value = _rounded_to_odd(number) if isinstance(number, int) and scalar != f64 else float(number)
    sign = (math.copysign(1.0, value) < 0) << scalar.bits - 1
    value = abs(value)
    if math.isnan(value):
        return sign | layout.codes | (1 << layout.mantissa_bits - 1 if layout.has_infinity else 0)
    if math.isinf(value):
        code = layout.codes
    else:
        exponent = max(math.frexp(value or layout.smallest_normal)[1] - 1, layout.smallest_exponent)
        # The places include the leading bit, so that it, or a carry, adds one to the exponent field.
        places = round(math.ldexp(value, layout.mantissa_bits - exponent))
        code = (exponent - layout.smallest_exponent << layout.mantissa_bits) + places
    return sign | min(code, layout.codes - 1 if scalar.saturates else layout.codes)


def _rounded_to_odd(number: int) -> float:
    """An integer in f64 such that rounding the result to fewer digits gives what rounding the integer would."""
    extra = max(abs(number).bit_length() - f64.format.precision, 0)
    significand = abs(number) >> extra
    significand |= abs(number) != significand << extra
    return math.copysign(math.ldexp(significand, extra), number)


# Integers.


def wrapped(number: int, scalar: ScalarType) -> int:
    """The integer of the type whose bits are the low bits of a number; a bool for i1."""
    if scalar.bits == 1:
        return bool(number & 1)
    return _read(number, scalar.bits, signed=scalar.signed)


def quotient(a: Any, b: Any) -> Any:
    """The quotient rounded toward zero, as in C."""
    floor = a // b
    return floor + ((floor * b != a) & ((a < 0) != (b < 0)))


def remainder(a: Any, b: Any) -> Any:
    """The remainder with the sign of the dividend, as in C."""
    rest = a % b
    return rest - b * ((rest != 0) & ((a < 0) != (b < 0)))


_OPERATOR: Any = operator  # The stubs of `operator` leave types unknown.

# By op class: a function of Python's integers, or of arrays of integers, which wrap by themselves.
INTEGERS: dict[type[Op], Binary] = {
    arith.AddI: operator.add, arith.SubI: operator.sub, arith.MulI: operator.mul,
    arith.AndI: _OPERATOR.and_, arith.OrI: _OPERATOR.or_, arith.XOrI: _OPERATOR.xor,
    arith.ShlI: _OPERATOR.lshift, arith.ShrSI: _OPERATOR.rshift, arith.ShrUI: _OPERATOR.rshift,
    arith.DivSI: quotient, arith.DivUI: quotient, arith.RemSI: remainder, arith.RemUI: remainder,
}  # fmt: skip
# By the last two letters of a predicate. Comparisons of floats are ordered (false with a NaN), but for UNE.
COMPARISONS: dict[str, Binary] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def _chosen(condition: Any, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


# By op class: the function of numbers, where NumPy is not needed. Sums and products in f64 are exact, or have so many
# digits that rounding them again gives what rounding once would.
FUNCTIONS: dict[type[Op], Callable[..., Any]] = {
    **INTEGERS,
    arith.MaxSI: max, arith.MaxUI: max, arith.MinSI: min, arith.MinUI: min, arith.AddF: operator.add,
    arith.SubF: operator.sub, arith.MulF: operator.mul, arith.NegF: operator.neg, maths.AbsF: math.fabs,
    arith.Select: _chosen, arith.ExtF: float, arith.TruncI: int,
}  # fmt: skip
# Casts of integers, and whether they read the bits of the operand as signed.
_READS_SIGNED: dict[type[Op], bool] = {
    arith.ExtSI: True, arith.ExtUI: False, arith.SIToFP: True, arith.UIToFP: False
}  # fmt: skip
# The ops that have a meaning on numbers.
ELEMENTWISE = (arith.Elementwise, arith.CmpI, arith.CmpF, arith.Select, arith.Cast)


def on_numbers(op: Op, numbers: Sequence[Number]) -> Any:
    """The result of an elementwise op whose operands are these numbers.

    >>> from ziggurat.codemodel.types import i8
    >>> a = arith.ConstantOp(100, type=i8)
    >>> on_numbers(arith.AddI(a.result, a.result), (100, 100))
    -56
    """
    if isinstance(op, arith.CmpI | arith.CmpF):
        return COMPARISONS[op.predicate.value[-2:]](*numbers)
    target = scalar_element(op.result.type)
    compute = FUNCTIONS.get(type(op))
    shift = isinstance(op, arith.ShlI | arith.ShrSI | arith.ShrUI)
    if type(op) in _READS_SIGNED:
        result = _read(int(numbers[0]), scalar_element(op.operands[0].type).bits, signed=_READS_SIGNED[type(op)])
    elif isinstance(op, tt.MulHiUI):
        a, b = (_read(int(number), target.bits, signed=False) for number in numbers)
        result = a * b >> target.bits
    elif isinstance(op, arith.TruncF) and op.rounding is arith.Rounding.NEAREST:
        result = numbers[0]
    elif compute is None or (shift and not 0 <= numbers[1] < target.bits):
        from ziggurat.codemodel.scalars import on_arrays  # It imports NumPy.

        return on_arrays(op, numbers)
    else:
        result = compute(*numbers)
    return rounded_number(result, target) if target.is_float else wrapped(int(result), target)


def _read(number: int, bits: int, *, signed: bool) -> int:
    """The integer that the low bits of a number are."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> bits - 1 else number
