"""The number of iterations of a loop, computed before it."""

from __future__ import annotations

from collections.abc import Callable

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import Op, Value, constant_of, expect
from ziggurat.codemodel.types import ScalarType, i32, i64, u32, u64


def trip_count(emit: Callable[[Op], Value], start: Value, stop: Value, step: Value) -> Value:
    """The number of iterations. It is right wherever it fits the type: `stop - start` may be beyond the signed numbers,
    and is an unsigned one."""
    type_ = expect(start.type, ScalarType)
    unsigned = {i32: u32, i64: u64}.get(type_, type_)

    def number(value: int) -> Value:
        return emit(arith.ConstantOp(value, type=type_))

    def compared(a: Value, b: Value) -> Value:
        return emit(arith.CmpI(a, b, IntPredicate.SLT if type_.signed else IntPredicate.ULT))

    def either(rising: Value | bool, up: Callable[[], Value], down: Callable[[], Value]) -> Value:
        if isinstance(rising, bool):
            return up() if rising else down()
        return emit(arith.Select(rising, up(), down()))

    def as_unsigned(value: Value) -> Value:
        return value if unsigned == type_ else emit(arith.Bitcast(value, unsigned))

    constant_step = constant_of(step) if type_.signed else 1
    zero, unit = number(0), number(1)
    rising = constant_step > 0 if constant_step is not None else compared(zero, step)
    runs = either(rising, lambda: compared(start, stop), lambda: compared(stop, start))
    distance = either(rising, lambda: emit(arith.SubI(stop, start)), lambda: emit(arith.SubI(start, stop)))
    size = either(rising, lambda: step, lambda: emit(arith.SubI(zero, step)))
    steps = emit(arith.DivUI(as_unsigned(emit(arith.SubI(distance, unit))), as_unsigned(size)))
    if unsigned != type_:
        steps = emit(arith.Bitcast(steps, type_))
    return emit(arith.Select(runs, emit(arith.AddI(steps, unit)), zero))
