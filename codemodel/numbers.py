"""Python numbers held in the scalar types: rounding, bits, and the ops that need no NumPy.

Compiling a kernel needs this module only: importing NumPy takes longer than compiling a small kernel.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel import elementwise
from ziggurat.codemodel.dialects import arith
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


# By the last two letters of a predicate. Comparisons of floats are ordered (false with a NaN), but for UNE.
COMPARISONS: dict[str, Binary] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


_OPERATOR: Any = operator  # The stubs of `operator` leave types unknown.

# By op class: the function of floats, where NumPy is not needed. Sums and products in f64 are exact, or have so many
# digits that rounding them again gives what rounding once would.
FLOATS: dict[type[Op], Callable[..., float]] = {
    arith.AddF: operator.add, arith.SubF: operator.sub, arith.MulF: operator.mul, arith.NegF: _OPERATOR.neg,
    maths.AbsF: math.fabs,
}  # fmt: skip
# The ops that have a meaning on numbers.
ELEMENTWISE = (arith.Elementwise, arith.CmpI, arith.CmpF, arith.Select, arith.Cast)


class Numbers(elementwise.Domain):
    """The domain of Python's numbers: integers of a type, or of any size without one. Floats are computed in f64, and
    rounded."""

    def __init__(self, scalar: ScalarType | None = None) -> None:
        self.scalar = scalar

    def integers(self, function: Callable[..., Any], scalar: ScalarType, *values: Any) -> int:
        return wrapped(function(*map(int, values)), scalar)

    def constant(self, number: int, scalar: ScalarType) -> int:
        return number

    def choose(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return then if condition else otherwise

    def compare(self, relation: str, a: Any, b: Any, *, signed: bool) -> bool:
        return COMPARISONS[relation](a, b)

    def shift(self, a: Any, b: Any, *, upward: bool, signed: bool) -> int:
        if self.scalar is not None and not 0 <= b < self.scalar.bits:
            b = self.scalar.bits
        return a << b if upward else a >> b

    def quotient(self, a: Any, b: Any, *, signed: bool) -> int:
        return quotient(a, b)

    def remainder(self, a: Any, b: Any, *, signed: bool) -> int:
        return remainder(a, b)

    def high_product(self, a: Any, b: Any, scalar: ScalarType) -> int:
        return wrapped(a * b >> scalar.bits, scalar)

    def resize(self, a: Any, source: ScalarType, target: ScalarType, *, signed: bool) -> int:
        return wrapped(_read(int(a), source.bits, signed=signed), target)

    def reinterpret(self, a: Any, source: ScalarType, target: ScalarType) -> Any:
        bits = bits_of_number(a, source) if source.is_float else _read(int(a), source.bits, signed=False)
        return number_of_bits(bits, target) if target.is_float else wrapped(bits, target)

    def floats(self, op: Op, *values: Any) -> Any:
        if isinstance(op, arith.CmpF):
            return COMPARISONS[op.predicate.value[-2:]](*values)
        target = scalar_element(op.result.type)
        match op:
            case arith.SIToFP() | arith.UIToFP():
                bits = scalar_element(op.operand.type).bits
                return rounded_number(_read(int(values[0]), bits, signed=isinstance(op, arith.SIToFP)), target)
            case arith.ExtF() | arith.TruncF(rounding=arith.Rounding.NEAREST):
                return rounded_number(values[0], target)
            case _ if type(op) in FLOATS:
                return rounded_number(FLOATS[type(op)](*values), target)
            case _:
                return _on_arrays(op, values)


def integer(cls: type[Op], a: int, b: int) -> int:
    """Two integers without a width combined by an op.

    >>> integer(arith.RemSI, -7, 2)
    -1
    """
    return elementwise.INTEGERS[cls](Numbers(), a, b)


def on_numbers(op: Op, numbers: Sequence[Number]) -> Any:
    """The result of an elementwise op whose operands are these numbers.

    >>> from ziggurat.codemodel.types import i8
    >>> a = arith.ConstantOp(100, type=i8)
    >>> on_numbers(arith.AddI(a.result, a.result), (100, 100))
    -56
    """
    meaning = elementwise.MEANINGS.get(type(op))
    if meaning is None:
        return _on_arrays(op, numbers)
    return meaning(Numbers(scalar_element(op.result.type)), op, *numbers)


def _on_arrays(op: Op, numbers: Sequence[Number]) -> Any:
    from ziggurat.codemodel.scalars import on_arrays  # It imports NumPy.

    return on_arrays(op, numbers)


def _read(number: int, bits: int, *, signed: bool) -> int:
    """The integer that the low bits of a number are."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> bits - 1 else number
