"""What ops of arith, math and tt give on constants, exactly.

`evaluate(op, numbers)` is None where an op is not to be folded:

* where it is undefined (a division by zero, a shift by the width, a float that does not fit an integer);
* where the result depends on the library that computes it: exp, sin and their like are folded only at the points where
  they are exact, and a fused multiply-add only where one rounding is certain;
* where the sign of a zero or the bits of a NaN are left open by the op.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dialects.arith import FloatPredicate, IntPredicate
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, element_of
from ziggurat.transforms.simplify.numbers import (
    bits_of,
    from_bits,
    rounded,
    rounded_integer,
    signed_of,
    truncated,
    unsigned_of,
    wrapped,
)

Number = int | float  # And bool, of type i1.


def evaluate(op: Op, numbers: tuple[Number, ...]) -> Number | None:
    """The result of an elementwise op whose operands are these numbers (of tensors: each element is), or None.

    >>> from ziggurat.codemodel.types import i8
    >>> a = arith.ConstantOp(100, type=i8)
    >>> evaluate(arith.AddI(a.result, a.result), (100, 100))
    -56
    """
    source = element_of(op.operands[0].type) if op.operands else None
    target = element_of(op.result.type)
    if not isinstance(source, ScalarType) or not isinstance(target, ScalarType):
        return None
    cls = type(op)
    if source.is_float:
        numbers = tuple([rounded(float(number), source) for number in numbers])
    if (integer := _INTEGER.get(cls)) is not None:
        value = integer(int(numbers[0]), int(numbers[1]), source)
        return None if value is None else wrapped(value, target)
    if (real := _FLOAT.get(cls)) is not None:
        value = real(float(numbers[0]), float(numbers[1]))
        return None if value is None else rounded(value, target)
    if (function := _FUNCTION.get(cls)) is not None:
        value = function(float(numbers[0]))
        return None if value is None else rounded(value, target)
    if (cast := _CAST.get(cls)) is not None:
        return cast(op, numbers[0], source, target)
    if isinstance(op, arith.CmpI):
        return _compare_integers(op.predicate, int(numbers[0]), int(numbers[1]))
    if isinstance(op, arith.CmpF):
        return _compare_floats(op.predicate, float(numbers[0]), float(numbers[1]))
    if isinstance(op, arith.Select):
        return numbers[1] if numbers[0] else numbers[2]
    if isinstance(op, maths.AbsI):
        return wrapped(abs(int(numbers[0])), target)
    if isinstance(op, maths.Fma):
        return _fused(float(numbers[0]), float(numbers[1]), float(numbers[2]), target)
    return None


def _divide(a: int, b: int, source: ScalarType) -> int | None:
    """The quotient rounded toward zero."""
    if b == 0:
        return None
    quotient = abs(a) // abs(b)
    quotient = quotient if (a < 0) == (b < 0) else -quotient
    low, high = source.limits
    return quotient if low <= quotient <= high else None


def _remainder(a: int, b: int, _: ScalarType) -> int | None:
    """The remainder with the sign of the dividend."""
    if b == 0:
        return None
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _shift(a: int, b: int, source: ScalarType, left: bool) -> int | None:
    if not 0 <= b < source.bits:
        return None
    return a << b if left else a >> b


_INTEGER: dict[type[Op], Callable[[int, int, ScalarType], int | None]] = {
    arith.AddI: lambda a, b, t: a + b,
    arith.SubI: lambda a, b, t: a - b,
    arith.MulI: lambda a, b, t: a * b,
    arith.AndI: lambda a, b, t: a & b,
    arith.OrI: lambda a, b, t: a | b,
    arith.XOrI: lambda a, b, t: a ^ b,
    arith.ShlI: lambda a, b, t: _shift(a, b, t, True),
    arith.ShrSI: lambda a, b, t: _shift(a, b, t, False),
    arith.ShrUI: lambda a, b, t: _shift(unsigned_of(a, t), b, t, False),
    arith.DivSI: _divide,
    arith.DivUI: _divide,
    arith.RemSI: _remainder,
    arith.RemUI: _remainder,
    arith.MaxSI: lambda a, b, t: max(a, b),
    arith.MaxUI: lambda a, b, t: max(a, b),
    arith.MinSI: lambda a, b, t: min(a, b),
    arith.MinUI: lambda a, b, t: min(a, b),
    tt.MulHiUI: lambda a, b, t: unsigned_of(a, t) * unsigned_of(b, t) >> t.bits,
}


def _float_divide(a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    if a == 0.0 or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.copysign(math.inf, math.copysign(1.0, a) * math.copysign(1.0, b))


def _float_remainder(a: float, b: float) -> float:
    if b == 0.0 or math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.fmod(a, b)


def _extreme(choose: Callable[[float, float], float], propagate: bool) -> Callable[[float, float], float | None]:
    def fold(a: float, b: float) -> float | None:
        if math.isnan(a) or math.isnan(b):
            if propagate:
                return math.nan
            return b if math.isnan(a) else a
        if a == b == 0.0 and math.copysign(1.0, a) != math.copysign(1.0, b):
            # Which zero is the larger one: only maximumf and minimumf say so.
            return choose(math.copysign(1.0, a), math.copysign(1.0, b)) * 0.0 if propagate else None
        return choose(a, b)

    return fold


_FLOAT: dict[type[Op], Callable[[float, float], float | None]] = {
    arith.AddF: lambda a, b: a + b,
    arith.SubF: lambda a, b: a - b,
    arith.MulF: lambda a, b: a * b,
    arith.DivF: _float_divide,
    arith.RemF: _float_remainder,
    arith.MaximumF: _extreme(max, True),
    arith.MinimumF: _extreme(min, True),
    arith.MaxNumF: _extreme(max, False),
    arith.MinNumF: _extreme(min, False),
}


def _square_root(a: float) -> float:
    return math.nan if a < 0.0 else math.sqrt(a)


def _only(points: dict[float, float]) -> Callable[[float], float | None]:
    """A function that is folded at these points alone."""
    return points.get


def _power_of_two(a: float) -> float | None:
    return math.ldexp(1.0, int(a)) if -126 <= a <= 127 and a == int(a) else None


def _binary_logarithm(a: float) -> float | None:
    if not (0.0 < a < math.inf):
        return None
    fraction, exponent = math.frexp(a)
    return float(exponent - 1) if fraction == 0.5 else None


def _reciprocal_root(a: float) -> float | None:
    if not (0.0 < a < math.inf):
        return None
    fraction, exponent = math.frexp(a)
    return math.ldexp(1.0, -((exponent - 1) // 2)) if fraction == 0.5 and exponent % 2 else None


def _whole(step: Callable[[float], int]) -> Callable[[float], float]:
    return lambda a: math.copysign(float(step(a)), a) if math.isfinite(a) else a


_FUNCTION: dict[type[Op], Callable[[float], float | None]] = {
    arith.NegF: lambda a: -a,
    maths.AbsF: abs,
    maths.Floor: _whole(math.floor),
    maths.Ceil: _whole(math.ceil),
    maths.Sqrt: _square_root,
    maths.Rsqrt: _reciprocal_root,
    maths.Exp: _only({0.0: 1.0}),
    maths.Exp2: _power_of_two,
    maths.Log: _only({1.0: 0.0}),
    maths.Log2: _binary_logarithm,
    maths.Cos: _only({0.0: 1.0}),
}


def _fused(a: float, b: float, c: float, target: ScalarType) -> float | None:
    """a · b + c, where it is a number that f64 holds; then it is rounded once."""
    from fractions import Fraction

    if not all(map(math.isfinite, (a, b, c))):
        return None
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        value = float(exact)
    except OverflowError:
        return None
    return rounded(value, target) if value != 0.0 and Fraction(value) == exact else None


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _compare_integers(predicate: IntPredicate, a: int, b: int) -> bool:
    return _ORDER[predicate.value[-2:]](a, b)


def _compare_floats(predicate: FloatPredicate, a: float, b: float) -> bool:
    # Python's comparisons are the ordered ones, but for !=, which is une.
    return _ORDER[predicate.value[-2:]](a, b)


def _to_integer(value: float, target: ScalarType) -> int | None:
    if not math.isfinite(value):
        return None
    whole = math.trunc(value)
    low, high = target.limits
    return wrapped(whole, target) if low <= whole <= high else None


def _truncate_float(op: Any, value: float, target: ScalarType) -> float:
    if op.rounding is arith.Rounding.ZERO:
        return truncated(value, target)
    return rounded(value, target)


def _bitcast(value: Any, source: ScalarType, target: ScalarType) -> Number | None:
    bits = bits_of(value, source) if source.is_float else unsigned_of(value, source)
    if bits is None:
        return None
    return from_bits(bits, target) if target.is_float else wrapped(bits, target)


_CAST: dict[type[Op], Callable[[Any, Any, ScalarType, ScalarType], Number | None]] = {
    arith.ExtF: lambda op, value, source, target: rounded(value, target),
    arith.TruncF: lambda op, value, source, target: _truncate_float(op, value, target),
    arith.ExtSI: lambda op, value, source, target: wrapped(signed_of(value, source), target),
    arith.ExtUI: lambda op, value, source, target: wrapped(unsigned_of(value, source), target),
    arith.TruncI: lambda op, value, source, target: wrapped(value, target),
    arith.SIToFP: lambda op, value, source, target: rounded_integer(signed_of(value, source), target),
    arith.UIToFP: lambda op, value, source, target: rounded_integer(unsigned_of(value, source), target),
    arith.FPToSI: lambda op, value, source, target: _to_integer(value, target),
    arith.FPToUI: lambda op, value, source, target: _to_integer(value, target),
    arith.Bitcast: lambda op, value, source, target: _bitcast(value, source, target),
}
