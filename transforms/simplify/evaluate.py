"""Evaluation of one op on constants, where the result is certain at compile time.

`codemodel/numbers.py` computes the result. An op is not folded

* where it is undefined: a division by zero, a shift by the width or more, a float that does not fit an integer;
* where the result depends on the library that computes it: exp, sin and the like are folded only at the points where
  they are exact;
* where a constant cannot hold the bits of the result, as of a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.numbers import ELEMENTWISE, Number, on_numbers, rounded_number
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, element_of


def evaluate(op: Op, numbers: tuple[Number, ...]) -> Number | None:
    """The result of an elementwise op whose operands are these numbers (of tensors: each element is), or None.

    >>> from ziggurat.codemodel.types import i8
    >>> a = arith.ConstantOp(100, type=i8)
    >>> evaluate(arith.AddI(a.result, a.result), (100, 100))
    -56
    """
    target = element_of(op.result.type)
    if not isinstance(op, ELEMENTWISE) or not isinstance(target, ScalarType):
        return None
    given: list[Number] = []
    for value, number in zip(op.operands, numbers, strict=True):
        type_ = element_of(value.type)
        if not isinstance(type_, ScalarType):
            return None
        given.append(rounded_number(number, type_) if type_.is_float else number)
    if not _is_certain(op, given, target):
        return None
    result: Number = on_numbers(op, given)
    if target.is_float and isinstance(op, arith.Bitcast | arith.NegF | maths.AbsF):
        # The sign and the bits of a NaN count here; and an infinity of a type that saturates is no constant.
        return result if math.isfinite(result) or (math.isinf(result) and not target.saturates) else None
    return result


def _is_certain(op: Op, numbers: list[Number], target: ScalarType) -> bool:
    """Whether the op is defined on these numbers, and exact."""
    match op:
        case arith.DivSI() | arith.DivUI():
            return numbers[1] != 0 and (numbers[1] != -1 or numbers[0] != target.limits[0])
        case arith.RemSI() | arith.RemUI():
            return numbers[1] != 0
        case arith.ShlI() | arith.ShrSI() | arith.ShrUI():
            return 0 <= numbers[1] < target.bits
        case arith.FPToSI() | arith.FPToUI():
            low, high = target.limits
            return math.isfinite(numbers[0]) and low <= math.trunc(numbers[0]) <= high
        case arith.Bitcast():
            return not math.isnan(numbers[0])
        case _:
            return type(op) not in _EXACT_AT or _EXACT_AT[type(op)](float(numbers[0]))


def _is_even_power_of_two(x: float) -> bool:
    return 0.0 < x < math.inf and math.frexp(x)[0] == 0.5 and math.frexp(x)[1] % 2 == 1


# The points at which a function whose last digits differ from target to target is exact on all of them.
_EXACT_AT: dict[type[Op], Callable[[float], bool]] = {
    maths.Exp: lambda x: x == 0.0,
    maths.Exp2: lambda x: -126 <= x <= 127 and x == int(x),
    maths.Log: lambda x: x == 1.0,
    maths.Log2: lambda x: 0.0 < x < math.inf and math.frexp(x)[0] == 0.5,
    maths.Rsqrt: _is_even_power_of_two,
    maths.Cos: lambda x: x == 0.0,
    maths.Sin: lambda x: False,
    maths.Tanh: lambda x: False,
    maths.Erf: lambda x: False,
}
