"""How much integers and pointers differ from a lane of a vector to the next one, by the ops that compute them."""

from __future__ import annotations

import attrs

from ziggurat.backend.cpu.emitter import Index
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import TensorType, shape_of

_ADD = arith.AddI | tt.AddPtr
# A quotient of two numbers rises at some lanes alone.
_KEEP = _ADD | arith.SubI | arith.DivSI | arith.DivUI | arith.ExtSI | arith.ExtUI | tt.Hint


def at_lane(index: Index, lane: int) -> Index:
    """The index of a lane."""
    return tuple(attrs.evolve(coord, base=coord.base + lane, run=False) if coord.run else coord for coord in index)


def lane_step(value: Value, index: Index) -> int | None:
    """0 if all lanes have one value, 1 if each is that of the lane before or one more, where no integer wraps around;
    None if neither is known. A wrap is a step back by all numbers of the type."""
    op = value.op
    if not isinstance(value.type, TensorType) or not any(coord.run for coord in index):
        return 0
    match op:
        case tt.MakeRange():
            return 1
        case tt.Splat() | arith.ConstantOp():
            return 0
        case tt.ExpandDims():
            return lane_step(op.value, (*index[: op.axis], *index[op.axis + 1 :]))
        case tt.Broadcast():
            sizes = zip(shape_of(op.value.type), index, strict=True)
            return lane_step(op.value, tuple(attrs.evolve(at, run=at.run and size > 1) for size, at in sizes))
        case arith.Elementwise() | arith.Cast() | tt.AddPtr() | tt.Hint():
            steps = [lane_step(operand, index) for operand in op.operands]
            rises = (steps in ([1], [1, 0]) and isinstance(op, _KEEP)) or (steps == [0, 1] and isinstance(op, _ADD))
            return 0 if not any(steps) and None not in steps else 1 if rises else None
        case _:
            return None
