"""Factors that are often 1: the accumulator of attention is multiplied only in the rows whose maximum has changed.

    %s = arith.subf %top %higher;
    %f = math.exp2 %s;
    …
    %b = tt.broadcast %e;
    %c = arith.mulf %acc %b;              becomes        %c = gpu.rescale %acc %b;

After the first blocks of keys, few maxima change. A multiplication that is not executed saves no time by itself, but
power, which limits the clock of a GPU whose matrix units are busy. Multiplying by 1 changes no number.

TMA must load the operands. In a loop whose threads copy, ptxas multiplies in any case and then selects, which takes up
to an eighth more instructions.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith, math, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultWait
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import f32, scalar_element

_MAXIMA = (arith.MaxNumF, arith.MaximumF)


def rescale(module: Op) -> Op:
    """The GPU model that multiplies accumulators of wgmma only by factors that are not 1, where TMA loads."""

    def rescaled(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, arith.MulF) or scalar_element(op.result.type) != f32:
            return None
        for at, value in enumerate(op.operands):
            waits = isinstance(_op(value), ResultWait)
            if waits and _is_often_one(op.operands[1 - at]) and not _copies_by_threads(op):
                return builder.add(gpu.Rescale(operands[at], operands[1 - at]))
        return None

    if not module.holds(gpu.TmaLoad | tt.DescriptorLoad):
        return module
    return transform(module, rescaled, pass_name="rescale")


def _op(value: Value) -> Op | None:
    return value.op


def _copies_by_threads(op: Op) -> bool:
    """Whether threads copy to shared memory in a loop around an op."""
    loops = (owner for owner in op.path() if isinstance(owner, scf.For))
    return any(isinstance(inner, gpu.AsyncCopy) for loop in loops for inner in loop.walk())


def _is_often_one(value: Value) -> bool:
    """Whether a value is the power of the difference of a maximum so far and the next one, along rows."""
    op = _op(value)
    while isinstance(op, tt.Broadcast | tt.ExpandDims | gpu.ConvertLayout):
        op = _op(op.operands[0])
    difference = _op(op.operands[0]) if isinstance(op, math.Exp | math.Exp2) else None
    if not isinstance(difference, arith.SubF):
        return False
    higher = _op(difference.rhs)
    return isinstance(higher, _MAXIMA) and difference.lhs in higher.operands
