"""The rules of the axis analysis: facts about the result of an op, from facts about its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as math_dialect
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, element_of, shape_of
from ziggurat.transforms.place.inference import is_elementwise

LIMIT = 1 << 40  # The largest divisor that is counted; that of zero.


@attrs.frozen
class AxisInfo:
    """Facts about a tensor of integers or pointers. Each tuple has a number, a power of two, for each axis.

    * `contiguity`: along the axis, the tensor consists of aligned runs of this length of consecutive numbers (for
      pointers: of pointers to neighbours). A run may wrap around at the end of an integer type, but no part of it does
      that is as long, and as aligned, as `divisibility` says of its beginning.
    * `divisibility`: a divisor of the first number of each of these runs (for pointers: of the address, in bytes).
    * `constancy`: along the axis, the tensor consists of aligned runs of this length of equal values.
    * `constant`: the value of every element, if known.
    * `nonnegative`: no element is negative. This assumes that a sum or product of such numbers does not wrap around,
      and that a divisor is positive. It is not known of a signed argument of a kernel.

    `unit` is the distance of neighbours: 1, or for pointers the bytes of an element. A scalar has one axis of size 1.
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    nonnegative: bool = False
    unit: int = 1

    def divides(self, axis: int, run: int) -> int:
        """A divisor of the first number of each aligned run of this length along the axis."""
        known = self.divisibility[axis]
        return known if run >= self.contiguity[axis] else min(known, run * self.unit)

    @property
    def everywhere(self) -> int:
        """A divisor of every element."""
        return max(self.divides(axis, 1) for axis in range(len(self.divisibility)))

    def aligned(self, axis: int) -> int:
        """The length of the runs of consecutive numbers that begin at a multiple of their length."""
        return min(self.contiguity[axis], max(1, self.divisibility[axis] // self.unit))


def power(number: int) -> int:
    """The largest power of two that divides a number."""
    return min(number & -number, LIMIT) if number else LIMIT


def unit_of(type_: Type) -> int:
    """The distance of neighbours of a type."""
    element = element_of(type_)
    return element.pointee.bytes if isinstance(element, PtrType) else 1


def unknown(type_: Type) -> AxisInfo:
    """The facts about any value of a type: pointers are aligned as the type that they point to."""
    return known(type_)


def known(
    type_: Type,
    contiguity: Sequence[int] = (),
    divisibility: Sequence[int] = (),
    constancy: Sequence[int] = (),
    constant: int | None = None,
    nonnegative: bool = False,
) -> AxisInfo:
    """Facts about a value of this type; a number that is not given is 1."""
    shape = shape_of(type_) or (1,)
    unit = unit_of(type_)
    ones = (1,) * len(shape)
    runs = tuple(min(a, b) for a, b in zip(contiguity or ones, shape, strict=True))
    same = tuple(min(a, b) for a, b in zip(constancy or ones, shape, strict=True))
    element = element_of(type_)
    nonnegative |= isinstance(element, ScalarType) and not element.signed
    if constant is not None:
        divisibility, same, nonnegative = (power(constant),) * len(shape), tuple(shape), constant >= 0
    base = AxisInfo(runs, tuple(max(unit, min(d, LIMIT)) for d in divisibility or ones), same)
    base = attrs.evolve(base, constant=constant, nonnegative=nonnegative, unit=unit)
    # A divisor of every element divides the first of any run.
    return attrs.evolve(base, divisibility=tuple(max(d, base.everywhere) for d in base.divisibility))


def meet(type_: Type, first: AxisInfo, second: AxisInfo) -> AxisInfo:
    """The facts about a value that is one or the other."""
    runs = list(map(min, first.contiguity, second.contiguity))
    divided = [min(first.divides(a, run), second.divides(a, run)) for a, run in enumerate(runs)]
    same = list(map(min, first.constancy, second.constancy))
    constant = first.constant if first.constant == second.constant else None
    return known(type_, runs, divided, same, constant, first.nonnegative and second.nonnegative)


Rule = Callable[[Any, Sequence[AxisInfo]], AxisInfo]
RULES: OpTable[Rule] = OpTable("axis rule")
_rule = RULES.of


def infer(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    """The facts about the result of an op that gives one value."""
    rule = RULES.get(type(op))
    if rule is not None:
        return rule(op, operands)
    if is_elementwise(op):
        return known(op.result.type, constancy=_constancy(op, operands))
    return unknown(op.result.type)


def _constancy(op: Op, operands: Sequence[AxisInfo]) -> list[int]:
    """Equal operands give equal results. A scalar among tensors is equal everywhere."""
    shape = shape_of(op.result.type) or (1,)
    same = list(shape)
    for value, info in zip(op.operands, operands, strict=True):
        if isinstance(value.type, TensorType):
            same = list(map(min, same, info.constancy))
    return same


# Tensors from scalars.


@_rule(arith.ConstantOp)
def _constant(op: arith.ConstantOp, operands: Sequence[AxisInfo]) -> AxisInfo:
    if isinstance(op.value, int):
        return known(op.type, constant=int(op.value))
    return known(op.type, constancy=shape_of(op.type))


@_rule(tt.MakeRange)
def _make_range(op: tt.MakeRange, operands: Sequence[AxisInfo]) -> AxisInfo:
    count = op.end - op.start
    return known(op.result.type, (count,), (power(op.start),), nonnegative=op.start >= 0)


@_rule(tt.GetProgramId, tt.GetNumPrograms, tt.SmId)
def _grid(op: tt.Grid | tt.SmId, operands: Sequence[AxisInfo]) -> AxisInfo:
    return known(op.result.type, nonnegative=True)


@_rule(tt.Splat)
def _splat(op: tt.Splat, operands: Sequence[AxisInfo]) -> AxisInfo:
    (info,) = operands
    shape = shape_of(op.type)
    return known(op.type, (), [info.everywhere] * len(shape), shape, info.constant, info.nonnegative)


# Moves of elements.


@_rule(tt.Broadcast)
def _broadcast(op: tt.Broadcast, operands: Sequence[AxisInfo]) -> AxisInfo:
    (info,) = operands
    wide, narrow = shape_of(op.type), shape_of(op.value.type)
    same = [k if a == b else a for k, a, b in zip(info.constancy, wide, narrow, strict=True)]
    return known(op.type, info.contiguity, info.divisibility, same, info.constant, info.nonnegative)


@_rule(tt.ExpandDims)
def _expand_dims(op: tt.ExpandDims, operands: Sequence[AxisInfo]) -> AxisInfo:
    (info,) = operands
    lists = ((info.contiguity, 1), (info.divisibility, info.everywhere), (info.constancy, 1))
    runs, divided, same = ([*numbers[: op.axis], new, *numbers[op.axis :]] for numbers, new in lists)
    return known(op.result.type, runs, divided, same, info.constant, info.nonnegative)


@_rule(tt.Trans)
def _trans(op: tt.Trans, operands: Sequence[AxisInfo]) -> AxisInfo:
    (info,) = operands
    lists = (info.contiguity, info.divisibility, info.constancy)
    runs, divided, same = ([numbers[axis] for axis in op.order] for numbers in lists)
    return known(op.result.type, runs, divided, same, info.constant, info.nonnegative)


@_rule(tt.Reshape)
def _reshape(op: tt.Reshape, operands: Sequence[AxisInfo]) -> AxisInfo:
    """An axis keeps its facts, up to its new size, if as many elements as before come after it."""
    (info,) = operands
    if op.allow_reorder:
        return known(op.type, divisibility=[info.everywhere] * len(shape_of(op.type)), nonnegative=info.nonnegative)
    source, target = shape_of(op.value.type), shape_of(op.type)
    inner = {math.prod(source[axis + 1 :]): axis for axis in range(len(source)) if source[axis] > 1}
    runs: list[int] = []
    divided: list[int] = []
    same: list[int] = []
    for axis, size in enumerate(target):
        old = inner.get(math.prod(target[axis + 1 :])) if size > 1 else None
        run = 1 if old is None else min(info.contiguity[old], size)
        runs.append(run)
        divided.append(info.everywhere if old is None else info.divides(old, run))
        same.append(1 if old is None else info.constancy[old])
    return known(op.type, runs, divided, same, info.constant, info.nonnegative)


# Arithmetic.


def _sum(op: Op, x: AxisInfo, y: AxisInfo, *, minus: bool = False, nonnegative: bool = False) -> AxisInfo:
    """A run of one operand moved by a constant of the other. Offsets of pointers count in the pointers' unit."""
    runs: list[int] = []
    divided: list[int] = []
    for axis in range(len(x.contiguity)):
        run = min(x.contiguity[axis], y.constancy[axis])
        if not minus:
            run = max(run, min(x.constancy[axis], y.contiguity[axis]))
        runs.append(run)
        divided.append(min(x.divides(axis, run), y.divides(axis, run) * (x.unit // y.unit)))
    same = list(map(min, x.constancy, y.constancy))
    return known(op.result.type, runs, divided, same, nonnegative=nonnegative)


@_rule(arith.AddI, tt.AddPtr)
def _add(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    x, y = operands
    return _sum(op, x, y, nonnegative=x.nonnegative and y.nonnegative)


@_rule(arith.SubI)
def _sub(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    return _sum(op, *operands, minus=True)


@_rule(arith.MulI)
def _mul(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    x, y = operands
    for one, other in ((x, y), (y, x)):
        if one.constant == 1:
            return other
    return _scaled(op, operands, x.everywhere * y.everywhere, x.nonnegative and y.nonnegative)


@_rule(arith.ShlI)
def _shl(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    x, y = operands
    if y.constant == 0:
        return x
    by = y.constant if y.constant is not None and 0 < y.constant < 64 else 0
    return _scaled(op, operands, x.everywhere << by, x.nonnegative)


def _scaled(op: Op, operands: Sequence[AxisInfo], divisor: int, nonnegative: bool) -> AxisInfo:
    """A result without runs, but with a known divisor of every element."""
    rank = len(shape_of(op.result.type) or (1,))
    return known(op.result.type, (), [divisor] * rank, _constancy(op, operands), nonnegative=nonnegative)


def _blocks(x: AxisInfo, y: AxisInfo, axis: int) -> int:
    """The length of the aligned runs of consecutive x that pass no multiple of y, which is constant in them."""
    return min(x.aligned(axis), y.constancy[axis], y.everywhere)


@_rule(arith.DivSI, arith.DivUI)
def _div(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    x, y = operands
    if y.constant == 1:
        return x
    same = _constancy(op, operands)
    # A quotient of negative numbers is rounded toward zero, which breaks runs.
    if x.nonnegative:
        same = [max(k, _blocks(x, y, axis)) for axis, k in enumerate(same)]
    divisor = max(1, x.everywhere // y.constant) if y.constant is not None and y.constant == power(y.constant) else 1
    return known(op.result.type, (), [divisor] * len(same), same, nonnegative=x.nonnegative)


@_rule(arith.RemSI, arith.RemUI)
def _rem(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    x, y = operands
    runs: list[int] = []
    divided: list[int] = []
    for axis in range(len(x.contiguity)):
        run = _blocks(x, y, axis) if x.nonnegative else 1
        runs.append(run)
        divided.append(min(x.divides(axis, run), y.everywhere))
    return known(op.result.type, runs, divided, _constancy(op, operands), nonnegative=x.nonnegative)


@_rule(arith.ShrSI, arith.ShrUI)
def _shr(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    """A division that rounds down, so that the sign does not matter."""
    x, y = operands
    if y.constant is None or not 0 <= y.constant < 64:
        return known(op.result.type, constancy=_constancy(op, operands), nonnegative=x.nonnegative)
    if y.constant == 0:
        return x
    by = 1 << y.constant
    same = [max(k, min(x.aligned(axis), by)) for axis, k in enumerate(_constancy(op, operands))]
    divisor = max(1, x.everywhere // by)
    return known(op.result.type, (), [divisor] * len(same), same, nonnegative=x.nonnegative)


@_rule(arith.AndI)
def _and(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    """A remainder with a mask of low bits, a rounding down with one of high bits."""
    x, y = operands if operands[0].constant is None else tuple(reversed(operands))
    divisor = max(x.everywhere, y.everywhere)
    same = [max(k, _blocks(x, y, axis)) for axis, k in enumerate(_constancy(op, operands))]
    runs: list[int] = []
    divided: list[int] = []
    for axis in range(len(same)):
        run = 1
        if y.constant is not None and y.constant > 0 and power(y.constant + 1) == y.constant + 1:
            run = min(x.aligned(axis), y.constant + 1)
        runs.append(run)
        divided.append(max(divisor, x.divides(axis, run)) if run > 1 else divisor)
    return known(op.result.type, runs, divided, same, nonnegative=x.nonnegative or y.nonnegative)


@_rule(arith.OrI, arith.XOrI)
def _or(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    """The low bits of a run stay if the other operand has none of them."""
    runs: list[int] = []
    divided: list[int] = []
    for axis in range(len(operands[0].contiguity)):
        run = max(_blocks(x, y, axis) for x, y in (operands, tuple(reversed(operands))))
        runs.append(run)
        divided.append(min(info.divides(axis, run) for info in operands))
    nonnegative = all(info.nonnegative for info in operands)
    return known(op.result.type, runs, divided, _constancy(op, operands), nonnegative=nonnegative)


@_rule(arith.MaxSI, arith.MinSI, arith.MaxUI, arith.MinUI)
def _extreme(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    x, y = operands
    either = isinstance(op, arith.MaxSI) and (x.nonnegative or y.nonnegative)
    both = x.nonnegative and y.nonnegative
    return _scaled(op, operands, min(x.everywhere, y.everywhere), either or both)


@_rule(math_dialect.AbsI)
def _abs(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    return _scaled(op, operands, operands[0].everywhere, True)


_BELOW = (IntPredicate.SLT, IntPredicate.SGE, IntPredicate.ULT, IntPredicate.UGE)
_ABOVE = (IntPredicate.SGT, IntPredicate.SLE, IntPredicate.UGT, IntPredicate.ULE)


@_rule(arith.CmpI)
def _cmpi(op: arith.CmpI, operands: Sequence[AxisInfo]) -> AxisInfo:
    """Consecutive numbers that pass no multiple of the bound are all below it, or none of them is."""
    x, y = operands
    same = _constancy(op, operands)
    if x.unit == y.unit == 1:
        for axis in range(len(same)):
            if op.predicate in _BELOW:
                same[axis] = max(same[axis], _blocks(x, y, axis))
            elif op.predicate in _ABOVE:
                same[axis] = max(same[axis], _blocks(y, x, axis))
    return known(op.result.type, constancy=same)


@_rule(arith.Select)
def _select(op: arith.Select, operands: Sequence[AxisInfo]) -> AxisInfo:
    condition, x, y = operands
    shape = shape_of(op.result.type) or (1,)
    chosen = condition.constancy if isinstance(op.condition.type, TensorType) else shape
    runs = list(map(min, x.contiguity, y.contiguity, chosen))
    divided = [min(x.divides(axis, run), y.divides(axis, run)) for axis, run in enumerate(runs)]
    return known(op.result.type, runs, divided, _constancy(op, operands), nonnegative=x.nonnegative and y.nonnegative)


@_rule(arith.ExtSI, arith.ExtUI, arith.TruncI, arith.Bitcast, tt.Bitcast)
def _cast(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    (info,) = operands
    target, source = element_of(op.result.type), element_of(op.operands[0].type)
    if isinstance(target, PtrType):
        return attrs.evolve(info) if unit_of(op.result.type) == info.unit else unknown(op.result.type)
    assert isinstance(target, ScalarType) and isinstance(source, ScalarType)
    if target.is_float or source.is_float or source.bits == 1 or target.bits == 1:
        return known(op.result.type, constancy=info.constancy, nonnegative=source.bits == 1)
    wider = isinstance(op, arith.ExtSI | arith.ExtUI)
    runs = [min(run, 1 << (target.bits - 1)) for run in info.contiguity]
    divided = [info.divides(axis, run) for axis, run in enumerate(runs)]
    constant = info.constant if info.constant is not None and 0 <= info.constant < 1 << (target.bits - 1) else None
    nonnegative = (wider and info.nonnegative) or isinstance(op, arith.ExtUI)
    return known(op.result.type, runs, divided, info.constancy, constant, nonnegative)


@_rule(tt.IntToPtr, tt.PtrToInt)
def _address(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    (info,) = operands
    return _scaled(op, operands, info.everywhere, nonnegative=False)


# Hints.


@_rule(tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy)
def _hint(op: tt.MultipleOf | tt.MaxContiguous | tt.MaxConstancy, operands: Sequence[AxisInfo]) -> AxisInfo:
    (info,) = operands

    def raised(kind: type[Op], numbers: Sequence[int]) -> list[int]:
        return [max(n, power(v)) if isinstance(op, kind) else n for n, v in zip(numbers, op.values, strict=True)]

    runs, divided = raised(tt.MaxContiguous, info.contiguity), raised(tt.MultipleOf, info.divisibility)
    same = raised(tt.MaxConstancy, info.constancy)
    return known(op.result.type, runs, divided, same, info.constant, info.nonnegative)
