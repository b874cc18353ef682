"""Assertions that integer results fit their types, which Triton's option `sanitize_overflow` adds for debugging.

    z = x + y          # i32 in Triton's Python

becomes, besides the sum, the same sum in i64, which must be within the limits of an i32:

    %3 : i64 = arith.extsi %x;
    …
    %5 : i64 = arith.addi %3 %4;
    %8 : i1 = arith.andi %6 %7;
    tt.assert %8 @"int32 overflow detected for operation add";

Sums, differences and products of i64 are not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ziggurat.codemodel.dialects import arith, py, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, Type, element_of, i64, with_element
from ziggurat.transforms.calls.emit import Emitter, Operand

_CHECKED: Final[dict[type[Op], tuple[str, type[arith.IntBinary]]]] = {
    py.Add: ("add", arith.AddI), py.Sub: ("sub", arith.SubI), py.Mul: ("mul", arith.MulI),
}  # fmt: skip


def assert_fits(emit: Emitter, op: Op, result: Type, operands: Sequence[Operand]) -> None:
    """Add the assertion for an operator of the Python model whose result has this type, if it is one that may
    overflow."""
    scalar = element_of(result)
    if type(op) not in _CHECKED or not isinstance(scalar, ScalarType) or not scalar.is_int or not 1 < scalar.bits < 64:
        return
    name, binary = _CHECKED[type(op)]
    wide = with_element(result, i64)
    exact = emit.add(binary(*(emit.cast(emit.convert(operand, result), i64) for operand in operands)))
    low, high = (emit.constant(limit, wide) for limit in scalar.limits)
    above = emit.add(arith.CmpI(exact, low, arith.IntPredicate.SGE))
    below = emit.add(arith.CmpI(exact, high, arith.IntPredicate.SLE))
    message = f"int{scalar.bits} overflow detected for operation {name}"
    emit.add(tt.Assert(emit.add(arith.AndI(above, below)), message=message))
