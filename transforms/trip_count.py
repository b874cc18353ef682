"""The number of iterations of a loop, computed before it."""

from __future__ import annotations

from collections.abc import Callable

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import Op, Value, constant_of
from ziggurat.codemodel.types import ScalarType


def trip_count(emit: Callable[[Op], Value], start: Value, stop: Value, step: Value) -> Value:
    """The number of iterations. It is right wherever `stop - start` fits the type, however large the step is."""
    type_ = start.type
    assert isinstance(type_, ScalarType)

    def number(value: int) -> Value:
        return emit(arith.ConstantOp(value, type=type_))

    def compared(a: Value, b: Value) -> Value:
        return emit(arith.CmpI(a, b, IntPredicate.SLT if type_.signed else IntPredicate.ULT))

    known = constant_of(step) if type_.signed else 1
    zero, one = number(0), number(1)
    if known is not None:
        runs = compared(start, stop) if known > 0 else compared(stop, start)
        least = one if known > 0 else number(-1)
    else:
        rising = compared(zero, step)
        runs = emit(arith.Select(rising, compared(start, stop), compared(stop, start)))
        least = emit(arith.Select(rising, one, number(-1)))
    distance = emit(arith.SubI(emit(arith.SubI(stop, start)), least))
    steps = emit((arith.DivSI if type_.signed else arith.DivUI)(distance, step))
    return emit(arith.Select(runs, emit(arith.AddI(steps, one)), zero))
