"""The analysis of integers and pointers along each axis: runs of neighbours and of equal values, and divisors.

For a kernel whose pointer and whose number of elements are divisible by 16:

    %2 : tensor<x64, i32> = tt.make_range @start=0 @end=64;      runs of 64, which begin at 0
    %3 : tensor<x64, i32> = tt.splat %1;                         64 equal ones, divisible by 16
    %4 : tensor<x64, i32> = arith.addi %2 %3;                    runs of 64, which begin at a multiple of 16
    %5 : tensor<x64, i1> = arith.cmpi %4 %3 @slt;                16 equal ones each
    %6 : tensor<x64, ptr<f32>> = tt.addptr %0 %4;                runs of 64, which begin at a multiple of 16 bytes

The analysis begins with the divisibility of parameters and those that are small, ranges, constants and hints, follows
arithmetic by a rule for each op, and visits the ops of loops again until nothing changes.

The signs of numbers matter, because `//` rounds toward zero: consecutive numbers of which one is negative need not have
equal quotients, or consecutive remainders. A sum or a product of numbers that are not negative is negative where it
wraps around. So the analysis bounds them. It counts on these facts about indices, which it cannot know, and which
`strict=True` of the interpreter checks:

* A product or a sum that fits its type for `NOMINAL` programs and iterations fits for all. Without this,
  `program_id * 1024` might wrap around, as a grid may have 2^31 - 1 programs. An i32 product with 2^21 or more is never
  taken to fit, so hashes are safe.
* A scalar `(x + size - 1) // size`, which is `cdiv`, counts blocks: as many as programs, if nothing is known of `x`. It
  is positive where a number that is not negative is divided by it, or by a product of such scalars and constants.
* `min(blocks - number * size, size)`, the size of the last of some groups of blocks, is positive where it divides.
  Its sign follows from the number of programs, which is known at the launch alone.
* A number that a `tt.assume` says is not negative leaves room for sums: it is at most half of the largest number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

import attrs

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects import math as math_dialect
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.types import SMALL, PtrType, ScalarType, TensorType, Type, component_types, element_of, shape_of
from ziggurat.transforms.analysis.components import (
    Component,
    ComponentGroup,
    Propagation,
    component_of,
    components_of,
    groups_of,
)
from ziggurat.transforms.analysis.queries import constant_of, is_elementwise

LIMIT = 1 << 40  # The largest divisor that is counted; that of zero.
NOMINAL = 1 << 10  # Programs of a grid, and iterations of a loop without known bounds, for `AxisInfo.magnitude`.
_MAX_GROWTHS = 8  # Times that the magnitude of a number in a loop is found to be larger than before.


@attrs.frozen
class AxisInfo:
    """Facts about a tensor of integers or pointers. Each tuple has a number, a power of two, for each axis.

    * `contiguity`: along the axis, the tensor consists of aligned runs of this length of consecutive numbers (for
      pointers: of pointers to neighbours). A run may wrap around at the end of an integer type, its own or one that it
      was cast from, but no part of it does that is as long, and as aligned, as `divisibility` says of its beginning.
    * `divisibility`: a divisor of the first number of each of these runs (for pointers: of the address, in bytes).
    * `constancy`: along the axis, the tensor consists of aligned runs of this length of equal values.
    * `constant`: the value of every element, if known.
    * `nonnegative`: no element is negative. Of a signed argument of a kernel it is known if that is small.
    * `magnitude`: no element has a larger absolute value, for `NOMINAL` programs and iterations.

    `unit` is the distance of neighbours: 1, or for pointers the bytes of an element. A scalar has one axis of size 1.
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    nonnegative: bool = False
    unit: int = 1
    magnitude: int = 1 << 64

    def divides(self, axis: int, run: int) -> int:
        """A divisor of the first number of each aligned run of this length along the axis."""
        divisor = self.divisibility[axis]
        return divisor if run >= self.contiguity[axis] else min(divisor, run * self.unit)

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


def largest_of(type_: Type) -> int:
    """The largest integer of a type."""
    element = element_of(type_)
    return element.limits[1] if isinstance(element, ScalarType) and not element.is_float else 1 << 64


def known(
    type_: Type,
    contiguity: Sequence[int] = (),
    divisibility: Sequence[int] = (),
    constancy: Sequence[int] = (),
    constant: int | None = None,
    nonnegative: bool = False,
    magnitude: int | None = None,
) -> AxisInfo:
    """Facts about a value of this type; a number that is not given is 1, or the alignment of the type pointed to."""
    shape = shape_of(type_) or (1,)
    unit = unit_of(type_)
    ones = (1,) * len(shape)
    runs = tuple(map(min, contiguity, shape)) if contiguity else ones
    same = tuple(map(min, constancy, shape)) if constancy else ones
    element = element_of(type_)
    nonnegative |= isinstance(element, ScalarType) and not element.signed
    if constant is not None:
        divisibility, same, nonnegative = (power(constant),) * len(shape), tuple(shape), constant >= 0
        magnitude = abs(constant)
    largest = largest_of(type_) + (not nonnegative)
    magnitude = largest if magnitude is None else min(magnitude, largest)
    divided = [max(unit, min(d, LIMIT)) for d in divisibility or ones]
    # A divisor of every element divides the first of any run.
    everywhere = max([d if run == 1 else min(d, unit) for d, run in zip(divided, runs, strict=True)])
    divided = tuple([max(d, everywhere) for d in divided])
    return AxisInfo(runs, divided, same, constant, nonnegative, unit, magnitude)


def meet(type_: Type, first: AxisInfo, second: AxisInfo) -> AxisInfo:
    """The facts about a value that is one or the other."""
    runs = list(map(min, first.contiguity, second.contiguity))
    divided = [min(first.divides(a, run), second.divides(a, run)) for a, run in enumerate(runs)]
    same = list(map(min, first.constancy, second.constancy))
    constant = first.constant if first.constant == second.constant else None
    nonnegative, magnitude = first.nonnegative and second.nonnegative, max(first.magnitude, second.magnitude)
    return known(type_, runs, divided, same, constant, nonnegative, magnitude)


Rule = Callable[..., AxisInfo]  # Takes the op and the facts about its operands.
RULES: OpTable[Rule] = OpTable("axis rule")
_rule = RULES.of


def infer(op: Op, operands: Sequence[AxisInfo]) -> AxisInfo:
    """The facts about the result of an op that gives one value."""
    rule = RULES.get(type(op))
    if rule is not None:
        return rule(op, *operands)
    if is_elementwise(op):
        return known(op.result.type, constancy=_constancy(op, *operands))
    return known(op.result.type)


def _constancy(op: Op, *operands: AxisInfo) -> list[int]:
    """Equal operands give equal results. A scalar among tensors is equal everywhere."""
    shape = shape_of(op.result.type) or (1,)
    same = list(shape)
    for value, info in zip(op.operands, operands, strict=True):
        if isinstance(value.type, TensorType):
            same = list(map(min, same, info.constancy))
    return same


# Tensors from scalars.


@_rule(arith.ConstantOp)
def _constant(op: arith.ConstantOp) -> AxisInfo:
    if isinstance(op.value, int):
        return known(op.type, constant=int(op.value))
    return known(op.type, constancy=shape_of(op.type))


@_rule(tt.MakeRange)
def _make_range(op: tt.MakeRange) -> AxisInfo:
    count = op.end - op.start
    largest = max(abs(op.start), abs(op.end - 1))
    return known(op.result.type, (count,), (power(op.start),), nonnegative=op.start >= 0, magnitude=largest)


@_rule(tt.GetProgramId, tt.GetNumPrograms, tt.SmId, gpu.ClusterRank)
def _grid(op: tt.Grid | tt.SmId | gpu.ClusterRank) -> AxisInfo:
    return known(op.result.type, nonnegative=True, magnitude=NOMINAL)


@_rule(tt.Splat)
def _splat(op: tt.Splat, info: AxisInfo) -> AxisInfo:
    shape = shape_of(op.type)
    divided = [info.everywhere] * len(shape)
    return known(op.type, (), divided, shape, info.constant, info.nonnegative, info.magnitude)


# Moves of elements.


@_rule(tt.Broadcast)
def _broadcast(op: tt.Broadcast, info: AxisInfo) -> AxisInfo:
    wide, narrow = shape_of(op.type), shape_of(op.value.type)
    same = [k if a == b else a for k, a, b in zip(info.constancy, wide, narrow, strict=True)]
    return known(op.type, info.contiguity, info.divisibility, same, info.constant, info.nonnegative, info.magnitude)


def _moved(op: Op, info: AxisInfo, olds: Sequence[int | None]) -> AxisInfo:
    """The facts when each axis is an axis of the operand, or, for None, has nothing to do with one."""
    sizes = shape_of(op.result.type)
    runs = [1 if old is None else min(info.contiguity[old], size) for old, size in zip(olds, sizes, strict=True)]
    axes = list(zip(olds, runs, strict=True))
    divided = [info.everywhere if old is None else info.divides(old, run) for old, run in axes]
    same = [1 if old is None else info.constancy[old] for old in olds]
    return known(op.result.type, runs, divided, same, info.constant, info.nonnegative, info.magnitude)


@_rule(tt.Trans)
def _trans(op: tt.Trans, info: AxisInfo) -> AxisInfo:
    return _moved(op, info, op.order)


@_rule(tt.Reshape, tt.ExpandDims)
def _reshape(op: tt.Reshape | tt.ExpandDims, info: AxisInfo) -> AxisInfo:
    """An axis keeps its facts, up to its new size, if as many elements as before come after it."""
    source, target = shape_of(op.value.type), shape_of(op.result.type)
    if isinstance(op, tt.Reshape) and op.allow_reorder:
        return _moved(op, info, [None] * len(target))
    inner = {math.prod(source[axis + 1 :]): axis for axis in range(len(source)) if source[axis] > 1}
    sizes = enumerate(target)
    return _moved(op, info, [inner.get(math.prod(target[axis + 1 :])) if size > 1 else None for axis, size in sizes])


# Arithmetic.


def _scaled(op: Op, divisor: int, nonnegative: bool, magnitude: int | None, *operands: AxisInfo) -> AxisInfo:
    """A result without runs, but with a known divisor of every element."""
    divided = [divisor] * len(operands[0].contiguity)
    return known(op.result.type, (), divided, _constancy(op, *operands), None, nonnegative, magnitude)


def _fits(op: Op, magnitude: int) -> bool:
    """Whether a number of at most this magnitude, and not below 0, is one of the result's type: it does not wrap."""
    return magnitude <= largest_of(op.result.type)


def _blocks(x: AxisInfo, y: AxisInfo) -> list[int]:
    """The length of the aligned runs of consecutive x that pass no multiple of y, which is constant in them."""
    return [min(x.aligned(axis), same, y.everywhere) for axis, same in enumerate(y.constancy)]


@_rule(arith.AddI, arith.SubI, tt.AddPtr)
def _sum(op: Op, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    """A run of one operand moved by a constant of the other. Offsets of pointers count in the pointers' unit."""
    minus = isinstance(op, arith.SubI)
    runs = list(map(min, x.contiguity, y.constancy))
    if not minus:
        runs = list(map(max, runs, map(min, x.constancy, y.contiguity)))
    scale = x.unit // y.unit
    total: int | None = x.magnitude + y.magnitude
    nonnegative = not minus and x.nonnegative and y.nonnegative and _fits(op, total)
    if minus and x.nonnegative and y.nonnegative:  # A difference of unsigned numbers wraps around below 0.
        total = None if known(op.result.type).nonnegative else max(x.magnitude, y.magnitude)
    divided = [min(x.divides(at, run), y.divides(at, run) * scale) for at, run in enumerate(runs)]
    return known(op.result.type, runs, divided, _constancy(op, x, y), None, nonnegative, total)


def _power_of_two(op: Op, shift: AxisInfo) -> AxisInfo:
    """The factor by which a shift multiplies or divides."""
    divides = isinstance(op, arith.ShrSI | arith.ShrUI)
    # A shift to the left by all bits but one multiplies by the smallest number, which is negative.
    if shift.constant is not None and 0 <= shift.constant < 64 and (divides or _fits(op, 1 << shift.constant)):
        return known(op.result.type, constant=1 << shift.constant)
    return known(op.result.type, constancy=shift.constancy, nonnegative=divides)


@_rule(arith.MulI, arith.ShlI)
def _mul(op: Op, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    y = _power_of_two(op, y) if isinstance(op, arith.ShlI) else y
    if 1 in (x.constant, y.constant):
        return y if x.constant == 1 else x
    product = x.magnitude * y.magnitude
    nonnegative = x.nonnegative and y.nonnegative and _fits(op, product)
    return _scaled(op, x.everywhere * y.everywhere, nonnegative, product, x, y)


def _is_cdiv(value: Value) -> bool:
    """Whether a scalar is a number of blocks of a constant size, as `cdiv` computes it: `(x + size - 1) // size`."""
    quotient = value.op
    if not isinstance(quotient, arith.DivSI) or not isinstance(value.type, ScalarType):
        return False
    offset, term = 1, quotient.lhs
    while isinstance(term.op, arith.AddI | arith.SubI):
        number = constant_of(term.op.rhs)
        if not isinstance(number, int):
            break
        offset, term = offset + (number if isinstance(term.op, arith.AddI) else -number), term.op.lhs
    return 1 < offset == constant_of(quotient.rhs)


def _is_count(value: Value) -> bool:
    """Whether a scalar is a number of blocks: one that `cdiv` computes, a positive constant, or a product of both."""
    if isinstance(value.op, arith.MulI):
        return all(map(_is_count, value.op.operands))
    return _is_cdiv(value) or (isinstance(number := constant_of(value), int) and number > 0)


def _is_group(value: Value) -> bool:
    """Whether a scalar is a number of rows of a group: `min(rows - number * size, size)`, for a constant size.

    The number of the group is a quotient, of the program's by the blocks of a group.
    """
    least = value.op
    for rest, size in ((least.lhs, least.rhs), (least.rhs, least.lhs)) if isinstance(least, arith.MinSI) else ():
        if isinstance(rest.op, arith.SubI):
            rows, first = rest.op.operands
            product = first.op if isinstance(first.op, arith.MulI) else None
            factors = product.operands if product else (first,)
            quotient = any(isinstance(factor.op, arith.DivSI) for factor in factors)
            sized = constant_of(size) in ({1} if product is None else {*map(constant_of, factors)} - {None})
            return quotient and sized and _is_count(rows) and _is_count(size)
    return False


@_rule(arith.DivSI, arith.DivUI, arith.ShrSI, arith.ShrUI)
def _div(op: Op, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    shifts = isinstance(op, arith.ShrSI | arith.ShrUI)
    y = _power_of_two(op, y) if shifts else y
    if y.constant == 1:
        return x
    same = _constancy(op, x, y)
    # A shift rounds down. A quotient of negative numbers is rounded toward zero, which breaks runs.
    if x.nonnegative or shifts:
        same = list(map(max, same, _blocks(x, y)))
    divisor = max(1, x.everywhere // y.constant) if y.constant is not None and y.constant == power(y.constant) else 1
    nonnegative = x.nonnegative and (y.nonnegative or _is_count(op.operands[1]) or _is_group(op.operands[1]))
    magnitude = -(-x.magnitude // max(1, abs(y.constant or 1)))
    if not _fits(op, x.magnitude) and _is_cdiv(op.result):  # Nothing is known of x.
        magnitude = min(magnitude, NOMINAL)
    return known(op.result.type, (), [divisor] * len(same), same, None, nonnegative, magnitude)


@_rule(arith.RemSI, arith.RemUI)
def _rem(op: Op, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    runs = _blocks(x, y) if x.nonnegative else [1] * len(x.contiguity)
    divided = [min(x.divides(axis, run), y.everywhere) for axis, run in enumerate(runs)]
    magnitude = min(x.magnitude, y.magnitude)
    return known(op.result.type, runs, divided, _constancy(op, x, y), None, x.nonnegative, magnitude)


@_rule(arith.AndI)
def _and(op: Op, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    """A remainder with a mask of low bits, a rounding down with one of high bits."""
    x, y = (x, y) if x.constant is None else (y, x)
    low_bits = y.constant is not None and y.constant > 0 and power(y.constant + 1) == y.constant + 1
    runs = [min(x.aligned(axis), (y.constant or 0) + 1 if low_bits else 1) for axis in range(len(x.contiguity))]
    divided = [max(x.divides(axis, run), x.everywhere, y.everywhere) for axis, run in enumerate(runs)]
    same = list(map(max, _constancy(op, x, y), _blocks(x, y)))
    masks = [info.magnitude for info in (x, y) if info.nonnegative]
    return known(op.result.type, runs, divided, same, None, bool(masks), min(masks, default=None))


@_rule(arith.OrI, arith.XOrI)
def _or(op: Op, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    """The low bits of a run stay if the other operand has none of them."""
    runs = list(map(max, _blocks(x, y), _blocks(y, x)))
    bits = max(x.magnitude, y.magnitude).bit_length()
    magnitude = (1 << bits) - 1 if x.nonnegative and y.nonnegative else None
    return _shared_divisors(op, (x, y), runs, x, y, magnitude)


def _shared_divisors(
    op: Op, operands: Sequence[AxisInfo], runs: Sequence[int], x: AxisInfo, y: AxisInfo, magnitude: int | None
) -> AxisInfo:
    """A result in runs whose first numbers have the divisors that x and y share."""
    divided = [min(x.divides(at, run), y.divides(at, run)) for at, run in enumerate(runs)]
    nonnegative = x.nonnegative and y.nonnegative
    return known(op.result.type, runs, divided, _constancy(op, *operands), None, nonnegative, magnitude)


@_rule(arith.Select)
def _select(op: arith.Select, condition: AxisInfo, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    constancy = condition.constancy if isinstance(op.condition.type, TensorType) else x.contiguity
    runs = list(map(min, x.contiguity, y.contiguity, constancy))
    return _shared_divisors(op, (condition, x, y), runs, x, y, max(x.magnitude, y.magnitude))


@_rule(arith.MaxSI, arith.MinSI, arith.MaxUI, arith.MinUI)
def _extreme(op: Op, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    nonnegative = x.nonnegative and y.nonnegative
    least = nonnegative and isinstance(op, arith.MinSI | arith.MinUI)
    magnitude = (min if least else max)(x.magnitude, y.magnitude)
    either = isinstance(op, arith.MaxSI) and (x.nonnegative or y.nonnegative)
    return _scaled(op, min(x.everywhere, y.everywhere), either or nonnegative, magnitude, x, y)


@_rule(math_dialect.AbsI)
def _abs(op: Op, info: AxisInfo) -> AxisInfo:
    """An absolute value. That of the smallest integer is itself, and negative."""
    return _scaled(op, info.everywhere, _fits(op, info.magnitude), info.magnitude, info)


_BELOW = (IntPredicate.SLT, IntPredicate.SGE, IntPredicate.ULT, IntPredicate.UGE)
_ABOVE = (IntPredicate.SGT, IntPredicate.SLE, IntPredicate.UGT, IntPredicate.ULE)


@_rule(arith.CmpI)
def _cmpi(op: arith.CmpI, x: AxisInfo, y: AxisInfo) -> AxisInfo:
    """Consecutive numbers that pass no multiple of the bound are all below it, or none of them is."""
    same = _constancy(op, x, y)
    if x.unit == y.unit == 1 and op.predicate in (*_BELOW, *_ABOVE):
        same = list(map(max, same, _blocks(x, y) if op.predicate in _BELOW else _blocks(y, x)))
    return known(op.result.type, constancy=same)


@_rule(arith.ExtSI, arith.ExtUI, arith.TruncI, arith.Bitcast, tt.Bitcast)
def _cast(op: Op, info: AxisInfo) -> AxisInfo:
    target, source = element_of(op.result.type), element_of(op.operands[0].type)
    if isinstance(target, PtrType):
        return info if unit_of(op.result.type) == info.unit else known(op.result.type)
    assert isinstance(target, ScalarType) and isinstance(source, ScalarType)
    if target.is_float or source.is_float or source.bits == 1 or target.bits == 1:
        is_bit = source.bits == 1 and isinstance(op, arith.ExtUI)
        return known(op.result.type, (), (), info.constancy, None, is_bit, 1 if is_bit else None)
    runs = [min(run, 1 << (target.bits - 1)) for run in info.contiguity]
    divided = [info.divides(axis, run) for axis, run in enumerate(runs)]
    # A number below half of the range of both types is the same in each. Zeros extend all that are not negative.
    zeros = isinstance(op, arith.ExtUI)
    same = info.nonnegative and (zeros or info.magnitude < 1 << (min(source.bits, target.bits) - 1))
    magnitude = info.magnitude
    if not same and not (isinstance(op, arith.ExtSI) and source.signed and target.signed):
        # The bits of a negative number are a large unsigned one, with the sign in front of it as well.
        magnitude = 1 << (target if isinstance(op, arith.ExtSI) else source).bits
    constant = info.constant if same and _fits(op, magnitude) else None
    return known(op.result.type, runs, divided, info.constancy, constant, same or zeros, magnitude)


@_rule(tt.IntToPtr, tt.PtrToInt)
def _address(op: Op, info: AxisInfo) -> AxisInfo:
    return _scaled(op, info.everywhere, False, None, info)


# Hints.


@_rule(tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy)
def _hint(op: tt.MultipleOf | tt.MaxContiguous | tt.MaxConstancy, info: AxisInfo) -> AxisInfo:
    runs, divided, same = (
        [max(n, power(v)) if type(op) is kind else n for n, v in zip(numbers, op.values, strict=True)]
        for kind, numbers in (
            (tt.MaxContiguous, info.contiguity), (tt.MultipleOf, info.divisibility), (tt.MaxConstancy, info.constancy)
        )
    )  # fmt: skip
    return known(op.result.type, runs, divided, same, info.constant, info.nonnegative, info.magnitude)


# The analysis.


def unknown_component(component: Component) -> AxisInfo:
    """The facts about any value of the component's type."""
    return known(_type_of(component))


def analyse(func: tt.Func) -> dict[Component, AxisInfo]:
    """The facts about each component of a function; see `AxisInfo`.

    A `tt.assume` directly in the function's first block counts everywhere, if it is `x % c == 0` or `x >= c`.
    """
    analysis = _Analysis(func)
    ops = [op for op in func.walk() if op is not func]
    Propagation([*dict.fromkeys(analysis.groups.values()), *ops]).run(analysis.visit)
    return analysis.infos


def _type_of(component: Component) -> Type:
    value, index = component
    return component_types(value.type)[index]


class _Analysis:
    def __init__(self, func: tt.Func) -> None:
        self.groups: Mapping[Component, ComponentGroup] = groups_of(func)
        self.infos: dict[Component, AxisInfo] = {}
        self.assumed: dict[Component, AxisInfo] = {}
        self.changed: list[Component] = []
        self.growths: Counter[ComponentGroup] = Counter()
        for op in func.body.entry.ops:
            if isinstance(op, tt.Assume) and isinstance(op.condition, OpResult):
                self._assume_condition(op.condition.op)
        parameters = func.body.parameters
        for parameter, divisor in zip(parameters, func.divisibility or (1,) * len(parameters), strict=True):
            small, divisors = parameter.index in func.small, (power(divisor) if divisor else 1,)
            self._set(
                (parameter, 0), known(parameter.type, (), divisors, (), None, small, SMALL - 1 if small else None)
            )

    def visit(self, item: Op | ComponentGroup) -> list[Component]:
        """Find facts about a group or an op's results; the components about which facts changed."""
        self.changed = []
        if isinstance(item, ComponentGroup):
            self._join(item)
        else:
            self._infer(item)
        return self.changed

    def _set(self, component: Component, info: AxisInfo) -> None:
        assumed = self.assumed.get(component)
        if assumed is not None:
            info = _both(_type_of(component), info, assumed)
        if self.infos.get(component) != info:
            self.infos[component] = info
            self.changed.append(component)

    def _join(self, group: ComponentGroup) -> None:
        """Note the facts that hold for all sources known so far: fewer than before, or the same."""
        components = (group.members[0], *(source for _, source in group.sources))
        infos = [self.infos[component] for component in components if component in self.infos]
        if infos:
            type_, before = _type_of(components[0]), self.infos.get(components[0])
            info = reduce(partial(meet, type_), infos)
            largest = largest_of(type_) + (not info.nonnegative)
            if before is not None and info.magnitude > before.magnitude:
                info = attrs.evolve(info, magnitude=min(self._grown(group, before.magnitude), largest))
            for member in group.members:
                self._set(member, info)

    def _grown(self, group: ComponentGroup, before: int) -> int:
        """The magnitude of a number whose sources have grown beyond `before`. A loop may count it up by steps."""
        start, distance = 0, 0
        for _, source in group.sources:
            op = source[0].op
            terms = op.operands if isinstance(op, arith.AddI) else ()
            steps = [term for term in terms if component_of(term) not in group.members]
            if len(steps) == 1 and (step := self._info(steps[0])) is not None:
                distance += _distance(steps[0], step)
            elif source not in group.members and source in self.infos:
                start = max(start, self.infos[source].magnitude)
        loops = [op for op, _ in group.sources if isinstance(op, scf.For)]
        reached = start + (self._iterations(loops[0]) if loops else NOMINAL) * distance
        if reached <= before:
            return before
        self.growths[group] += 1  # Numbers that grow in another way must come to an end.
        return reached if self.growths[group] < _MAX_GROWTHS else 1 << 64

    def _infer(self, op: Op) -> None:
        if isinstance(op, scf.For):
            self._index(op)
        for body in op.bodies if isinstance(op, tt.Reduce | tt.Scan | tt.MapElementwise) else ():
            for parameter in body.parameters:
                self._set((parameter, 0), known(parameter.type))
        components = [component for component in components_of(op.result) if component not in self.groups]
        if len(components) != 1:
            for component in components:
                self._set(component, unknown_component(component))
            return
        infos = [self._info(value) for value in op.operands]
        known_infos = [info for info in infos if info is not None]
        if len(known_infos) == len(infos):
            self._set(components[0], infer(op, known_infos))

    def _info(self, value: Value) -> AxisInfo | None:
        """The facts about an operand; None before its op is visited. Nothing is known of a Tuple."""
        component = component_of(value) if len(component_types(value.type)) == 1 else None
        return known(value.type) if component is None else self.infos.get(component)

    def _index(self, op: scf.For) -> None:
        """Note the facts about the index of a loop, which begins at the start and takes steps."""
        start, stop, step = (self._info(value) for value in (op.start, op.stop, op.step))
        if start is None or stop is None or step is None:
            return
        divisor = min(start.everywhere, step.everywhere)
        nonnegative = start.nonnegative and (step.nonnegative or stop.nonnegative)
        magnitude = max(start.magnitude, stop.magnitude)
        if stop.constant is None:
            magnitude = min(magnitude, start.magnitude + NOMINAL * _distance(op.step, step))
        index = op.body.parameters[0]
        self._set((index, 0), known(index.type, (), (divisor,), nonnegative=nonnegative, magnitude=magnitude))

    def _iterations(self, op: scf.For) -> int:
        """The iterations of a loop with constant bounds; `NOMINAL` for another."""
        start, stop, step = (info and info.constant for info in map(self._info, (op.start, op.stop, op.step)))
        return max(0, -((start - stop) // step)) if start is not None and stop is not None and step else NOMINAL

    def _assume_condition(self, op: Op) -> None:
        if isinstance(op, arith.AndI):
            for value in op.operands:
                if isinstance(value, OpResult):
                    self._assume_condition(value.op)
        if not isinstance(op, arith.CmpI) or not isinstance(op.lhs.type, ScalarType):
            return
        bound = constant_of(op.rhs)
        if not isinstance(bound, int):
            return
        if op.predicate in (IntPredicate.SGE, IntPredicate.SGT) and bound >= 0:
            # Half of the type leaves room for the sums of an index.
            self._assume_fact(op.lhs, known(op.lhs.type, nonnegative=True, magnitude=largest_of(op.lhs.type) // 2))
        elif op.predicate is IntPredicate.EQ and bound == 0 and isinstance(op.lhs, OpResult):
            rest = op.lhs.op
            number = constant_of(rest.operands[-1]) if rest.operands else None
            if isinstance(number, int) and isinstance(rest, arith.RemSI | arith.RemUI | arith.AndI) and number:
                divisor = number + isinstance(rest, arith.AndI)
                self._assume_fact(rest.lhs, known(rest.lhs.type, (), (power(divisor),)))

    def _assume_fact(self, value: Value, info: AxisInfo) -> None:
        component = component_of(value)
        self.assumed[component] = _both(value.type, self.assumed.get(component, info), info)


def _distance(step: Value, info: AxisInfo) -> int:
    """The distance of the numbers of two iterations. If it is the number of programs, they count as programs do."""
    return 1 if isinstance(step.op, tt.GetNumPrograms) else info.magnitude


def _both(type_: Type, first: AxisInfo, second: AxisInfo) -> AxisInfo:
    """The facts about a scalar for which both hold."""
    divisor = max(first.everywhere, second.everywhere)
    nonnegative = first.nonnegative or second.nonnegative
    constant = first.constant if first.constant is not None else second.constant
    return known(type_, (), (divisor,), (), constant, nonnegative, min(first.magnitude, second.magnitude))
