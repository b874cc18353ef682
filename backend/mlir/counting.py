"""Trip counts of loops. MLIR's loops count upward only; ours count down too, or by a step of unknown sign."""

from __future__ import annotations

from ziggurat.backend.mlir.arithmetic import choose, compare
from ziggurat.backend.mlir.emitter import Emitter
from ziggurat.backend.mlir.types import mlir_type
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.op import OpResult, Value
from ziggurat.codemodel.types import ScalarType, Type, i1


def step_sign(step: Value) -> int:
    """1 for a step known to be positive, -1 for a negative step, 0 for a step of unknown sign."""
    if isinstance(step.type, ScalarType) and not step.type.signed:
        return 1
    if isinstance(step, OpResult) and isinstance(step.op, arith.ConstantOp) and step.op.value != 0:
        return 1 if step.op.value > 0 else -1
    return 0


def trip_count(e: Emitter, loop: tuple[str, str, str], sign: int, type_: Type) -> str:
    """The number of iterations of a loop, unsigned.

    The distance between start and stop is computed unsigned, so it never overflows. `sign` is the step's: -1, or 0 if
    unknown. A loop with a positive step needs no count: it is written as MLIR's own loop.
    """
    start, stop, step = loop
    text = f" : {mlir_type(type_)}"
    zero, one = e.constant(0, type_), e.constant(1, type_)
    size = e.value(f"arith.subi {zero}, {step}", text)
    low, high = stop, start
    if sign == 0:
        up = compare(e, "sgt", step, zero, type_)
        low, high = choose(e, up, start, stop, type_), choose(e, up, stop, start, type_)
        size = choose(e, up, step, size, type_)
    runs = compare(e, "slt", low, high, type_)
    distance = e.value(f"arith.subi {high}, {low}", text)
    last = e.value(f"arith.subi {distance}, {one}", text)
    whole = e.value(f"arith.divui {last}, {size}", text)
    count = e.value(f"arith.addi {whole}, {one}", text)
    return choose(e, runs, count, zero, type_)


def before_stop(e: Emitter, index: str, stop: str, step: Value, type_: ScalarType) -> str:
    """The condition that the index is below the stop; for a negative step, above it."""
    sign = step_sign(step)
    if sign:
        return compare(e, ("slt" if type_.signed else "ult") if sign > 0 else "sgt", index, stop, type_)
    below, above = compare(e, "slt", index, stop, type_), compare(e, "sgt", index, stop, type_)
    up = compare(e, "sgt", e.name(step), e.constant(0, type_), type_)
    return choose(e, up, below, above, i1)
