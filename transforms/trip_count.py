"""The number of iterations of a loop, computed before it."""

from __future__ import annotations

from collections.abc import Callable

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import Op, Value, constant_of
from ziggurat.codemodel.types import ScalarType


def trip_count(emit: Callable[[Op], Value], start: Value, stop: Value, step: Value) -> Value:
    """The number of iterations; zero or negative for a loop that runs none."""
    type_ = start.type
    assert isinstance(type_, ScalarType)
    one = emit(arith.ConstantOp(1, type=type_))
    if type_.signed:
        known = constant_of(step)
        if known is not None:
            least = emit(arith.ConstantOp(1 if known > 0 else -1, type=type_))
        else:
            rising = emit(arith.CmpI(step, emit(arith.ConstantOp(0, type=type_)), IntPredicate.SGT))
            least = emit(arith.Select(rising, one, emit(arith.ConstantOp(-1, type=type_))))
        distance = emit(arith.AddI(emit(arith.SubI(stop, start)), emit(arith.SubI(step, least))))
        return emit(arith.DivSI(distance, step))
    rest = emit(arith.SubI(emit(arith.SubI(stop, start)), one))
    count = emit(arith.AddI(emit(arith.DivUI(rest, step)), one))
    runs = emit(arith.CmpI(start, stop, IntPredicate.ULT))
    return emit(arith.Select(runs, count, emit(arith.ConstantOp(0, type=type_))))
