"""The axes along which pointers mostly step from an element to its neighbour, as their arithmetic shows.

    %4 = arith.remsi %pixel %width;    along the pixels, a column steps by 1, but at the ends of rows
    %5 = arith.divsi %pixel %width;    and a row seldom steps
    %6 = arith.muli %5 %stride;
    %7 = arith.addi %4 %6;             so the offset mostly steps by 1

This is a guess, for choices that are right either way, such as layouts. `axis_info` has what is certain.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import BlockParameter, OpResult, Value
from ziggurat.codemodel.types import TensorType, shape_of
from ziggurat.transforms.analysis.axis_info import AxisInfo
from ziggurat.transforms.analysis.queries import constant_of

_ADDS = arith.AddI | arith.SubI | tt.AddPtr
_CLAMPS = arith.MinSI | arith.MaxSI | arith.MinUI | arith.MaxUI
_QUOTIENTS = arith.DivSI | arith.DivUI | arith.ShrSI | arith.ShrUI
_LESS = (IntPredicate.SLT, IntPredicate.SLE, IntPredicate.ULT, IntPredicate.ULE)
_GREATER = (IntPredicate.SGT, IntPredicate.SGE, IntPredicate.UGT, IntPredicate.UGE)
_CASTS = arith.ExtSI | arith.ExtUI | arith.TruncI | tt.Broadcast


class Step(IntEnum):
    """The difference of the elements of a tensor along an axis: none, seldom one, mostly 1, or another."""

    NONE = 0
    SELDOM = 1
    UNIT = 2
    OTHER = 3


def steps_by_one(pointers: Value, axis: int) -> bool:
    """Whether a tensor of pointers mostly steps by one element along an axis."""
    return _Steps().of(pointers, axis) is Step.UNIT


def true_first(mask: Value, axis: int, facts: Callable[[Value], AxisInfo]) -> int:
    """The length of the aligned runs of a mask along an axis whose true elements come before the false ones.

    Unlike the guesses of this file, this is certain. A comparison of consecutive numbers with one bound is such a mask,
    and so are conjunctions and disjunctions of such masks.
    """
    op, equal = mask.op, facts(mask).constancy[axis]
    if isinstance(op, arith.AndI | arith.OrI):
        return max(equal, min(true_first(operand, axis, facts) for operand in op.operands))
    if isinstance(op, tt.Broadcast):
        return equal if shape_of(op.value.type)[axis] == 1 else true_first(op.value, axis, facts)
    if isinstance(op, tt.ExpandDims):
        return equal if axis == op.axis else true_first(op.value, axis - (axis > op.axis), facts)
    if isinstance(op, tt.Trans):
        return true_first(op.value, op.order[axis], facts)
    if isinstance(op, arith.CmpI) and op.predicate in (*_LESS, *_GREATER) and isinstance(op.lhs.type, TensorType):
        numbers, bound = op.operands if op.predicate in _LESS else reversed(op.operands)
        if facts(numbers).unit == 1:
            return max(equal, min(facts(numbers).aligned(axis), facts(bound).constancy[axis]))
    return equal


def divisor_of_steps(pointers: Value, axis: int, divisor: Callable[[Value], int]) -> int:
    """A power of two that divides the steps of a tensor along an axis, in elements; 0 if it does not step.

    `divisor` gives one that divides all elements of a value. In an array, the step along an outer axis is a multiple of
    that along an inner one: so of two axes, that with the smaller divisor has the nearer neighbours, as a rule.
    """
    type_ = pointers.type
    if not isinstance(type_, TensorType) or type_.shape[axis] == 1:
        return 0
    op = pointers.op
    if isinstance(op, tt.Splat | arith.Constant):
        return 0
    if isinstance(op, tt.ExpandDims):
        return divisor_of_steps(op.value, axis - (axis > op.axis), divisor)
    if isinstance(op, tt.Trans):
        return divisor_of_steps(op.value, op.order[axis], divisor)
    if isinstance(op, _CASTS):
        return divisor_of_steps(op.operands[0], axis, divisor)
    if op is None or not isinstance(op, arith.AddI | arith.SubI | tt.AddPtr | arith.MulI):
        return 1
    steps = [divisor_of_steps(operand, axis, divisor) for operand in op.operands]
    if not isinstance(op, arith.MulI):
        return min(filter(None, steps), default=0)
    if all(steps):
        return 1
    return max(step * divisor(other) for step, other in zip(steps, reversed(op.operands), strict=True))


class _Steps:
    """The steps of values along their axes."""

    def __init__(self) -> None:
        self.steps: dict[tuple[Value, int], Step] = {}

    def of(self, value: Value, axis: int) -> Step:
        """The step of a value along one of its axes."""
        if not isinstance(value.type, TensorType) or value.type.shape[axis] == 1:
            return Step.NONE
        key = value, axis
        if key not in self.steps:
            self.steps[key] = Step.OTHER  # Of a value that is computed from itself.
            self.steps[key] = self._of(value, axis)
        return self.steps[key]

    def _of(self, value: Value, axis: int) -> Step:
        if isinstance(value, BlockParameter):
            loop = value.owner
            if not isinstance(loop, scf.For):
                return Step.OTHER
            return self.of(loop.initial[value.index - 1], axis)  # The index is no tensor.
        assert isinstance(value, OpResult)
        op = value.op
        if isinstance(op, tt.MakeRange):
            return Step.UNIT
        if isinstance(op, tt.Splat | arith.Constant):
            return Step.NONE
        if isinstance(op, tt.ExpandDims):
            return self.of(op.value, axis - (axis > op.axis))
        if isinstance(op, tt.Trans):
            return self.of(op.value, op.order[axis])
        if isinstance(op, _CASTS):
            return self.of(op.operands[0], axis)
        if isinstance(op, arith.MulI | arith.ShlI):
            return self._product(op, axis)
        if not isinstance(op, _ADDS | _CLAMPS | _QUOTIENTS | arith.OrI | arith.Select | arith.RemSI | arith.RemUI):
            return Step.OTHER  # Of a reshape, for example, whose operand has other axes.
        steps = [self.of(operand, axis) for operand in op.operands]
        if isinstance(op, _ADDS | _CLAMPS | arith.OrI):
            return self._sum(*steps)
        if isinstance(op, arith.Select):
            return self._sum(*steps[1:])
        if isinstance(op, _QUOTIENTS) and not steps[1] and steps[0] is not Step.OTHER:
            return min(steps[0], Step.SELDOM)
        return steps[0] if isinstance(op, arith.RemSI | arith.RemUI) and not steps[1] else Step.OTHER

    def _product(self, op: arith.MulI | arith.ShlI, axis: int) -> Step:
        first, second = (self.of(operand, axis) for operand in op.operands)
        least, most = sorted((first, second))
        is_one = any(constant_of(operand) == (0 if isinstance(op, arith.ShlI) else 1) for operand in op.operands)
        return most if least is Step.NONE and (most is not Step.UNIT or is_one) else Step.OTHER

    @staticmethod
    def _sum(*steps: Step) -> Step:
        """The step of a sum, or of a choice: one part at most steps by 1, and the others seldom do."""
        most = max(steps)
        return Step.OTHER if most is Step.UNIT and sorted(steps)[-2] is Step.UNIT else most
