"""Values that may be infinite or NaN in lanes whose results are not stored.

Such a lane may compute anything, for example the logarithm of the 0 that a masked load gives. Its adjoint is zero, but
zero times infinity is NaN, and the sum over lanes that is the adjoint of a broadcast operand would be NaN. So rules
take the product of a zero adjoint and a factor that may be infinite to be zero.
"""

from __future__ import annotations

import math
from typing import Final

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value, expect
from ziggurat.codemodel.types import TensorType, element_of

# These give infinities or NaN for some finite operands.
SINGULAR: Final[tuple[type[Op], ...]] = (
    maths.Log, maths.Log2, maths.Sqrt, maths.Rsqrt, tt.PreciseSqrt, arith.RemF, arith.Bitcast, tt.InlineAsm,
    tt.MapElementwise, tt.Call, maths.Directed, maths.Approximate,
    scf.While,
)  # fmt: skip
_EXTREMA: Final = (arith.MaxNumF, arith.MinNumF, arith.MaximumF, arith.MinimumF)


def is_same_in_all_lanes(value: Value) -> bool:
    """Whether a value is a scalar or a splat: if it is infinite, it is so in the lanes that are stored as well."""
    op = value.op
    return not isinstance(value.type, TensorType) or isinstance(op, tt.Splat)


def may_be_infinite(value: Value, component: int = 0, memo: dict[tuple[Value, int], bool] | None = None) -> bool:
    """Whether a component of a value of a kernel may be infinite or NaN in some lanes, and finite in others."""
    memo = {} if memo is None else memo
    node = value, component
    if node not in memo:
        memo[node] = False  # The answer for a value that a loop carries, unless another value makes it infinite.
        memo[node] = _may_be(value, component, memo)
    return memo[node]


def _may_be(value: Value, component: int, memo: dict[tuple[Value, int], bool]) -> bool:
    if isinstance(value, BlockParameter):
        loop = value.owner
        if not isinstance(loop, scf.For) or value.index == 0:
            return isinstance(loop, scf.While)
        (end,) = loop.terminators(loop.body)
        place = value.index - 1
        return may_be_infinite(loop.inits[place], 0, memo) or may_be_infinite(end.handed[place], 0, memo)
    op = expect(value, OpResult).op
    match op:
        case arith.ConstantOp():
            return isinstance(op.value, float) and not math.isfinite(op.value) and not is_same_in_all_lanes(value)
        case core.TupleLoad():
            return may_be_infinite(op.tuple, op.index, memo)
        case core.MakeTuple():
            return may_be_infinite(op.components[component], 0, memo)
        case scf.For() | scf.If():
            return any(may_be_infinite(end.handed[component], 0, memo) for end in op.terminators())
        case tt.Load():
            return op.other is not None and may_be_infinite(op.other, 0, memo)
        case _ if is_same_in_all_lanes(value) and not isinstance(op, scf.While):
            return False
        case arith.DivF() | tt.PreciseDivF():
            return not is_same_in_all_lanes(op.rhs) or may_be_infinite(op.lhs, 0, memo)
        case _ if isinstance(op, SINGULAR):
            return True
        case _ if isinstance(op, _EXTREMA):
            return all(may_be_infinite(operand, 0, memo) for operand in op.operands)
        case _:
            floats = (v for v in op.operands if getattr(element_of(v.type), "is_float", False))
            return any(may_be_infinite(operand, 0, memo) for operand in floats)
