"""Maxima that only keep exponentials small, as in softmax: the results do not depend on them.

    top = zg.max(x); e = zg.exp(x - top); y = e / zg.sum(e)        y is the same for any `top`

So `top` gets no adjoint. A running maximum, by which a loop scales what it has summed up, is of this kind as well:

    higher = zg.maximum(top, zg.max(x)); shrink = zg.exp(top - higher)
    total = total * shrink + zg.sum(zg.exp(x - higher)); top = higher

The adjoints of such a loop are computed with the last `top` in all iterations. Then `shrink` is 1, `total` is only
added to, and no iteration need be run again for a later one (`control`).

The proof follows a shift of the maximum by an unknown number through the ops. It shifts a value by a multiple of that
number, or multiplies it by a base to the power of that, or does not change it; no value that changes may be stored. In
a loop, the maximum that an iteration takes over and the one that it hands on are shifted by numbers of their own. If
the carried values change with these, the loop does the same with any maxima, among them the last. Rounding does not
count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import attrs

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op, Value, constant_of, expect
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import MemoryWrite
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, of_floats, shape_of
from ziggurat.transforms.kit.dataflow import Node, nodes
from ziggurat.transforms.simplify.fold import folding

MAXIMA: Final = (arith.MaxNumF, arith.MaximumF, arith.MinNumF, arith.MinimumF)
"""Minima count as well: they keep the exponentials of negated numbers small."""


@attrs.frozen
class Shift:
    """The change of a value when maxima are shifted: it is shifted, or multiplied by `base` to a power.

    `multiples` has, for each maximum by name, the factor of its shift. `axes` are the axes of the value along which the
    maximum has its own; along others the shift is the same.
    """

    base: float | None
    """None for a shift."""
    multiples: tuple[tuple[str, float], ...]
    axes: tuple[int, ...]

    def scaled(self, factor: float) -> Shift | None:
        """With all multiples times a factor; None for zero."""
        return _shift(self.base, {name: factor * multiple for name, multiple in self.multiples}, self.axes)

    def renamed(self, old: str, new: str) -> Shift:
        return attrs.evolve(self, multiples=tuple((new if name == old else name, m) for name, m in self.multiples))


@attrs.frozen
class _Unknown:
    """A value that changes in another way."""


@attrs.frozen
class _Undetermined:
    """A change that is not determined yet: of the carried value of a loop."""


UNKNOWN: Final = _Unknown()
UNDETERMINED: Final = _Undetermined()
Change = Shift | _Unknown | _Undetermined | None
"""None is no change."""


def _shift(base: float | None, multiples: Mapping[str, float], axes: tuple[int, ...]) -> Shift | None:
    terms = tuple(sorted((name, multiple) for name, multiple in multiples.items() if multiple))
    return Shift(base, terms, axes) if terms else None


def _sum(a: Shift, b: Shift, sign: float = 1.0) -> Change:
    """The multiples of one and of another shift together."""
    if a.base != b.base or a.axes != b.axes:
        return UNKNOWN
    total = dict(a.multiples)
    for name, multiple in b.multiples:
        total[name] = total.get(name, 0.0) + sign * multiple
    return _shift(a.base, total, a.axes)


def _plus(a: Change, b: Change, x: Value, y: Value, sign: float = 1.0) -> Change:
    """The change of x + y, or x - y."""
    if isinstance(a, Shift) and isinstance(b, Shift) and a.base is None:
        return _sum(a, b, sign)
    if isinstance(a, Shift) and a.base is None and b is None:
        return a
    if isinstance(b, Shift) and b.base is None and a is None:
        return b.scaled(sign)
    return _either(a, b, x, y)


def _either(a: Change, b: Change, x: Value, y: Value) -> Change:
    """The change of a value that is x or y, or a sum of multiplied ones. Zero stays zero when it is multiplied, and an
    infinity stays one when it is shifted."""
    if a == b or b is UNDETERMINED:
        return a
    if a is UNDETERMINED:
        return b
    for change, other, value in ((a, b, y), (b, a, x)):
        number = constant_of(value)
        if not isinstance(change, Shift) or other is not None or not isinstance(number, float):
            continue
        if math.isinf(number) if change.base is None else number == 0.0:
            return change
    return UNKNOWN


def _times(a: Change, b: Change, x: Value, y: Value) -> Change:
    """The change of x · y."""
    if isinstance(a, Shift) and isinstance(b, Shift):
        return UNKNOWN if a.base is None else _sum(a, b)
    if UNDETERMINED in (a, b):
        return UNDETERMINED
    for change, other, factor in ((a, b, y), (b, a, x)):
        if isinstance(change, Shift) and other is None:
            if change.base is not None:
                return change
            number = constant_of(factor)
            return change.scaled(number) if isinstance(number, float) else UNKNOWN
    return UNKNOWN


def _over(a: Change, b: Change, x: Value, y: Value) -> Change:
    if isinstance(b, Shift) and b.base is not None:
        return _times(a, b.scaled(-1.0), x, x)
    number = constant_of(y)
    if isinstance(a, Shift) and a.base is None:
        return a.scaled(1 / number) if b is None and isinstance(number, float) and number else UNKNOWN
    return a if b is None else UNDETERMINED if UNDETERMINED in (a, b) else UNKNOWN


_BASES: Final[dict[type[Op], float]] = {
    maths.Exp: math.e, maths.Exp2: 2.0, maths.Log: math.e, maths.Log2: 2.0,
}  # fmt: skip


def _power(op: Op, a: Change) -> Change:
    if a is UNDETERMINED:
        return UNDETERMINED
    return attrs.evolve(a, base=_BASES[type(op)]) if isinstance(a, Shift) and a.base is None else UNKNOWN


def _logarithm(op: Op, a: Change) -> Change:
    if a is UNDETERMINED:
        return UNDETERMINED
    return attrs.evolve(a, base=None) if isinstance(a, Shift) and a.base == _BASES[type(op)] else UNKNOWN


def _with_axes(change: Change, axes: Callable[[int], int]) -> Change:
    return attrs.evolve(change, axes=tuple(map(axes, change.axes))) if isinstance(change, Shift) else change


def _reshaped(op: tt.Reshape, change: Change) -> Change:
    """Reshaping that only adds or removes axes of size 1 keeps the order of the others."""
    if not isinstance(change, Shift):
        return change
    before, after = shape_of(op.value.type), shape_of(op.result.type)
    old = [axis for axis, size in enumerate(before) if size > 1]
    new = [axis for axis, size in enumerate(after) if size > 1]
    if [before[axis] for axis in old] != [after[axis] for axis in new]:
        return UNKNOWN
    return _with_axes(change, lambda axis: new[old.index(axis)])


def _reduced(op: tt.Reduce, change: Change) -> Change:
    """Sums of multiplied values, and maxima of shifted or multiplied ones, along an axis on which the shift is one."""
    body = op.combine.entry.ops
    combiner = type(body[0]) if len(op.values) == 1 and len(body) == 2 else Op
    if not isinstance(change, Shift):
        return change
    is_linear = combiner in MAXIMA or (combiner is arith.AddF and change.base is not None)
    if not is_linear or op.axis in change.axes:
        return UNKNOWN
    return _with_axes(change, lambda axis: axis - (axis > op.axis))


def _dot(op: tt.Dot, a: Change, b: Change, c: Change) -> Change:
    rank = len(shape_of(op.a.type))
    for change, inner in ((a, rank - 1), (b, rank - 2)):
        if isinstance(change, Shift) and (change.base is None or inner in change.axes):
            return UNKNOWN
    product = _times(a, b, op.c, op.c) if a is not None or b is not None else None
    return _either(product, c, op.result, op.c)


def _change(op: Op, changes: Sequence[Change]) -> Change:
    """The change of an op's result by those of its operands, one of which changes."""
    if UNKNOWN in changes:
        return UNKNOWN
    a = changes[0]
    match op:
        case arith.AddF():
            return _plus(a, changes[1], op.lhs, op.rhs)
        case arith.SubF():
            return _plus(a, changes[1], op.lhs, op.rhs, -1.0)
        case arith.MulF():
            return _times(a, changes[1], op.lhs, op.rhs)
        case arith.DivF() | tt.PreciseDivF():
            return _over(a, changes[1], op.lhs, op.rhs)
        case maths.Fma():
            product = _times(a, changes[1], op.a, op.b) if any(changes[:2]) else None
            return _plus(product, changes[2], op.result, op.c)
        case arith.NegF():
            return a.scaled(-1.0) if isinstance(a, Shift) and a.base is None else a
        case arith.MaxNumF() | arith.MaximumF() | arith.MinNumF() | arith.MinimumF():
            return _either(a, changes[1], op.lhs, op.rhs)
        case arith.Select():
            return UNKNOWN if a is not None else _either(changes[1], changes[2], op.then, op.otherwise)
        case maths.Exp() | maths.Exp2():
            return _power(op, a)
        case maths.Log() | maths.Log2():
            return _logarithm(op, a)
        case arith.ExtF() | arith.TruncF() | tt.Hint() | tt.Splat() | tt.Broadcast():
            return a
        case tt.ExpandDims():
            return _with_axes(a, lambda axis: axis + (axis >= op.axis))
        case tt.Trans():
            return _with_axes(a, op.order.index)
        case tt.Reshape():
            return _reshaped(op, a)
        case tt.Reduce():
            return _reduced(op, a)
        case tt.Dot():
            return _dot(op, a, changes[1], changes[2])
        case _:
            return UNKNOWN


@attrs.frozen
class Rescaling:
    """A loop that scales what it sums up by a running maximum."""

    place: int
    """The carried value that is the maximum."""
    maximum: Value
    """The result of the op that gives the next maximum, in the body."""
    changes: tuple[Change, ...]
    """The changes of the carried values when the maximum, here named "out", is shifted."""


class _Walk:
    """The changes of the values of a kernel, as far as they are shifted, in the order of the ops."""

    def __init__(self, forced: Mapping[Node, Change], loops: Mapping[Op, Rescaling]) -> None:
        self.forced = forced
        self.loops = loops
        self.changes: dict[Node, Change] = dict(forced)
        self.writes: set[Op] = set()
        """The ops that write memory which write a value that changes, or depend on one."""

    def of(self, value: Value, component: int = 0) -> Change:
        return self.changes.get((value, component))

    def put(self, node: Node, change: Change) -> None:
        if node not in self.forced:
            self.changes[node] = change

    def ops(self, ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, Structured):
                self.structured(op)
                continue
            if isinstance(op, core.TupleLoad):
                self.put((op.result, 0), self.of(op.tuple, op.index))
                continue
            if isinstance(op, core.MakeTuple):
                for index, value in enumerate(op.components):
                    self.put((op.result, index), self.of(value))
                continue
            changes = [self.of(value) for value in op.operands]
            if all(change is None for change in changes):
                continue
            if isinstance(op, MemoryWrite):
                self.writes.add(op)
            change = _change(op, changes)
            for node in nodes(op.result):
                self.put(node, change)

    def structured(self, op: Structured) -> None:
        rescaling = self.loops.get(op)
        if all(node in self.forced for node in nodes(op.result)):
            return
        if isinstance(op, scf.For):
            inits = [self.of(value) for value in op.inits]
            if rescaling is not None and any(inits):
                # The loop does with any maxima what it does with its own.
                same = inits == list(rescaling.changes) and all(self.of(value) is None for value in op.body.captured())
                for index in range(len(inits)):
                    self.put((op.result, index), rescaling.changes[index] if same else UNKNOWN)
                return
            self.loop(op, inits)
            return
        if isinstance(op, scf.If) and self.of(op.condition) is None:
            for body in op.bodies:
                self.ops(body.entry.ops[:-1])
            ends = [end.handed for end in op.terminators()]
            for index, (x, y) in enumerate(zip(*ends, strict=True)):
                self.put((op.result, index), _either(self.of(x), self.of(y), x, y))
            return
        values = [*op.operands, *(value for body in op.bodies for value in body.captured())]
        if any(self.of(value, component) is not None for value in values for _, component in nodes(value)):
            self.writes.update(inner for inner in op.walk() if isinstance(inner, MemoryWrite))
            for node in nodes(op.result):
                self.put(node, UNKNOWN)

    def loop(self, op: scf.For, inits: Sequence[Change]) -> None:
        """A loop whose carried values change alike in all iterations."""
        parameters = op.entry_arguments(op.body)
        (end,) = op.terminators(op.body)
        entering = list(inits)
        for _ in range(len(parameters) + 1):
            for value, change in zip(parameters, entering, strict=True):
                self.put((value, 0), change)
            self.ops(op.body.entry.ops[:-1])
            changes = [self.of(value) for value in end.handed]
            results = [
                _either(change, other, init, value)
                for change, other, init, value in zip(entering, changes, op.inits, end.handed, strict=True)
            ]
            if results == entering:
                break
            entering = results
        for index, change in enumerate(entering):
            self.put((op.result, index), change)


def _carries_along(loop: scf.For) -> Rescaling | None:
    """The running maximum of a loop that does the same with any maxima; None where there is none."""
    if loop.holds(MemoryWrite | scf.While):
        return None
    parameters = loop.entry_arguments(loop.body)
    (end,) = loop.terminators(loop.body)
    for place, value in enumerate(end.handed):
        op = value.op
        if not isinstance(op, MAXIMA) or op.parent is not loop.body.entry or parameters[place] not in op.operands:
            continue
        axes = _own_axes(value)
        shift_in, handed_on = (Shift(None, ((name, 1.0),), axes) for name in ("in", "out"))
        entering: list[Change] = [UNDETERMINED if of_floats(parameter.type) else None for parameter in parameters]
        for _ in range(3):
            forced: dict[Node, Change] = {(value, 0): handed_on}
            forced |= {(parameter, 0): change for parameter, change in zip(parameters, entering, strict=True)}
            forced[parameters[place], 0] = shift_in
            walk = _Walk(forced, {})
            walk.ops(loop.body.entry.ops[:-1])
            changes = [walk.of(yielded) for yielded in end.handed]
            if (
                any(isinstance(change, Shift) and "in" in dict(change.multiples) for change in changes)
                or UNKNOWN in changes
            ):
                break
            changes = [None if change is UNDETERMINED else change for change in changes]
            following = [change.renamed("out", "in") if isinstance(change, Shift) else change for change in changes]
            following[place] = entering[place]
            if following == entering:
                return Rescaling(place, value, tuple(changes))
            entering = following
    return None


def _own_axes(value: Value) -> tuple[int, ...]:
    return tuple(axis for axis, size in enumerate(shape_of(value.type)) if size > 1)


def rescaling_loops(kernel: tt.Func, sinks: Collection[Op]) -> dict[Op, Rescaling]:
    """The loops whose running maximum does not matter for what the ops of `sinks` write."""
    loops = [op for op in kernel.walk() if isinstance(op, scf.For)]
    rescalings: dict[Op, Rescaling] = {op: rescaling for op in loops if (rescaling := _carries_along(op)) is not None}
    while True:
        matters = [loop for loop in rescalings if _matters(loop, rescalings[loop].changes, kernel, sinks, rescalings)]
        if not matters:
            return rescalings
        for loop in matters:
            del rescalings[loop]


def free_maxima(kernel: tt.Func, sinks: Collection[Op], loops: Mapping[Op, Rescaling]) -> set[Op]:
    """The maxima that do not matter for what the ops of `sinks` write."""
    maxima: set[Op] = set()
    if not kernel.holds(maths.Exp | maths.Exp2):
        return maxima
    for op in kernel.walk():
        combines = isinstance(op, tt.Reduce) and len(op.values) == 1 and isinstance(op.combine.entry.ops[0], MAXIMA)
        if combines or (isinstance(op, MAXIMA) and not isinstance(op.parent_op, tt.Combining)):
            shift = Shift(None, (("out", 1.0),), _own_axes(op.result))
            if not _matters(op, [shift], kernel, sinks, loops):
                maxima.add(op)
    return maxima


def _matters(
    op: Op,
    changes: Sequence[Change],
    kernel: tt.Func,
    sinks: Collection[Op],
    loops: Mapping[Op, Rescaling],
) -> bool:
    """Whether these changes of an op's result change what the ops of `sinks` write, or another iteration of a loop
    around it, in which the shift is another one."""
    walk = _Walk({(op.result, index): change for index, change in enumerate(changes)}, loops)
    walk.ops(kernel.body.entry.ops[:-1])
    assert op.parent_op is not None
    for around in op.parent_op.path():
        if isinstance(around, scf.While):
            return True
        if isinstance(around, scf.For):
            (end,) = around.terminators(around.body)
            if any(walk.of(value) is not None for value in end.handed):
                return True
    return any(sink in walk.writes for sink in sinks)


# The kernel with the loops that use the last maximum.


@attrs.frozen
class Scaled:
    """A kernel in which a loop with the last maximum follows each loop that keeps a running one."""

    kernel: tt.Func
    fixed: dict[Value, tuple[Value, int]]
    """The results of the added loops, by those of the loops before, with the place of the maximum among them."""
    free: set[Value]
    """The maxima that do not matter."""


def scaled(kernel: tt.Func, writes: Callable[[Op], bool]) -> Scaled:
    """The kernel with the loops added. `writes` holds for the ops that write an array of `of`."""
    sinks = {op for op in kernel.walk() if writes(op)}
    loops = rescaling_loops(kernel, sinks)
    maxima = free_maxima(kernel, sinks, loops)
    if not loops:
        return Scaled(kernel, {}, {op.result for op in maxima})
    adding = _Adding(loops, maxima)
    function = expect(transform(kernel, adding, folding, pass_name="differentiate"), tt.Func)
    return Scaled(function, adding.fixed, adding.free)


class _Adding:
    """The transformer that adds the loops. In an added loop, the maximum of each iteration is the last one."""

    def __init__(self, loops: Mapping[Op, Rescaling], maxima: Collection[Op]) -> None:
        self.loops = loops
        self.maxima = maxima
        self.last: dict[Value, Value] = {}
        self.fixed: dict[Value, tuple[Value, int]] = {}
        self.free: set[Value] = set()

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op.result in self.last:
            return self.last[op.result]
        rescaling = self.loops.get(op)
        if isinstance(op, scf.For) and rescaling is not None:
            return self.loop(builder, op, operands, rescaling)
        if isinstance(op, arith.SubF) and operands[0] is operands[1] and operands[0] in self.last.values():
            return builder.add(arith.ConstantOp(0.0, type=op.result.type))
        if op in self.maxima:
            copy = builder.copy(op, operands)
            self.free.add(copy)
            return copy
        return None

    def loop(self, builder: Rewriter, op: scf.For, operands: tuple[Value, ...], rescaling: Rescaling) -> Outcome:
        first = builder.copy(op, operands)
        single = len(op.inits) == 1
        last = first if single else builder.add(core.TupleLoad(first, rescaling.place))
        inits = [
            _rescaled(builder, value, change, last, operands[op.CONTROLS + rescaling.place])
            for value, change in zip(operands[op.CONTROLS :], rescaling.changes, strict=True)
        ]
        inits[rescaling.place] = last
        self.last[rescaling.maximum] = last
        body = builder.rewrite_body(op.body, mapping={op.entry_arguments(op.body)[rescaling.place]: last})
        del self.last[rescaling.maximum]
        arguments = (*operands[: op.CONTROLS], *inits)
        fixed = builder.add(op.SPEC.copy(op, arguments, (), [body], op.result.type), op.location)
        self.fixed[first] = fixed, rescaling.place
        return first


def _rescaled(builder: Rewriter, value: Value, change: Change, maximum: Value, before: Value) -> Value:
    """An initial value of a loop, for `maximum` in place of the initial maximum `before`."""
    if not isinstance(change, Shift) or constant_of(value) == 0.0:
        return value
    ((_, multiple),) = change.multiples
    by: Value = builder.add(arith.SubF(maximum, before))
    if multiple != 1.0:
        by = builder.add(arith.MulF(by, builder.add(arith.ConstantOp(multiple, type=by.type))))
    if change.base is not None:
        by = builder.add((maths.Exp2 if change.base == 2.0 else maths.Exp)(by))
    for axis in range(len(shape_of(value.type))):
        if isinstance(by.type, TensorType) and axis not in change.axes:
            by = builder.add(tt.ExpandDims(by, axis))
    if by.type != value.type:
        by = builder.add((tt.Broadcast if isinstance(by.type, TensorType) else tt.Splat)(by, value.type))
    return builder.add((arith.AddF if change.base is None else arith.MulF)(value, by))
