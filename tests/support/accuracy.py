"""The allowed difference between the results of a kernel on a GPU and those of the reference interpreter.

Integers, data movement, comparisons, casts, and sums, differences and products of floats are the same to the last bit.
What is not (docs/reference/accuracy.md): the machine's fast functions, routines that are accurate without being rounded
correctly, and what is summed in another order: by threads, or by programs that take turns by a lock. `bounds` finds
those in a model, for each of its arrays; what one loop carries counts together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import attrs
import ml_dtypes
import numpy as np

from ziggurat.codemodel.dialects import arith, core, math, scf, tt
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.traits import BodyTerminator, Loop
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, TupleType, Type, element_of, f32, f64
from ziggurat.transforms.tiles.prepare import prepare

Array = np.ndarray[Any, Any]

_F32, _F64 = 2.0**-23, 2.0**-52
_SMALLEST = 2.0**-126  # The fast functions of f32 flush what is below, or may.

# The error of f32 functions in last places, and an absolute one. Those of fast instructions are the PTX manual's, with
# the roundings around them: exp(x) is 2 ** (x · log2 e), whose exponent of up to 127 is rounded.
FAST: dict[type[Op], tuple[float, float]] = {
    arith.DivF: (2, _SMALLEST),
    math.Exp: (66, _SMALLEST),
    math.Exp2: (4, _SMALLEST),
    math.Log: (4, 2.0**-21),
    math.Log2: (4, 2.0**-21),
    math.Sqrt: (2, _SMALLEST),
    math.Rsqrt: (4, 0),
    math.Sin: (4, 0),
    math.Cos: (4, 0),
    math.Tanh: (4, 0),
    math.Erf: (4, 0),
    math.Approximate: (2**13, 2.0**-20),
}
# The same of f64, in last places. Division and the root are rounded correctly.
ACCURATE: dict[type[Op], float] = {
    math.Rsqrt: 2,
    **dict.fromkeys((math.Exp, math.Exp2, math.Log, math.Log2, math.Sin, math.Cos, math.Tanh, math.Erf), 4.0),
}
# A sum in another order, in last places of the type it is computed in, of the largest number.
SUMMED = 16
# Products of matrices, relative to the largest number: the units sum in fewer digits than f32 has, and read only the
# first 11 of an f32 unless told otherwise.
DOT = {"f64": 2.0**-48, "tf32": 2.0**-9, "tf32x3": 2.0**-18, "f8": 2.0**-10, "f32": 2.0**-18, "f16": 2.0**-9}
# Errors that are carried around a loop add up.
LOOPED = 8


@attrs.frozen
class Bound:
    """An error `relative` to the number (of a sum, `summed`, to the largest of the array), and an `absolute` one.

    `rooted` is the absolute error of what a square root was taken of. That of the root is as large as the root of it
    where the number is nearly 0, and of a larger root √x only `rooted` / 2√x. (A product with the root, such as a
    normal random number, is mostly less than the root, so that its own size may stand for √x; in a sum it may not.)
    """

    relative: float = 0.0
    absolute: float = 0.0
    summed: bool = False
    rooted: float = 0.0

    def near(self, actual: Array, expected: Array) -> Array:
        """A mask of the floats that are within the bound of another array's; NaN only matches NaN."""
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        info = cast(Any, ml_dtypes.finfo(expected.dtype))
        finite = np.abs(b[np.isfinite(b)])
        with np.errstate(all="ignore"):
            size = np.abs(b) + (finite.max(initial=0.0) if self.summed else 0.0)
            # Near a tie, a small error is one of a whole last place of a short type.
            allowed = max(self.relative, float(info.eps)) * size + self.absolute + float(info.smallest_subnormal)
            if self.rooted:
                root = self.rooted**0.5
                allowed = allowed + (root if self.summed else np.minimum(root, self.rooted / (2 * np.abs(b))))
            close = np.abs(a - b) <= allowed
        return (a == b) | (np.isnan(a) & np.isnan(b)) | (np.isfinite(a) & np.isfinite(b) & close)


def bounds(model: Op) -> dict[int, Bound]:
    """The bounds of a Triton model's arrays, by the place of the pointer among the parameters; of those only that are
    not exact."""
    prepared = prepare(model)
    assert isinstance(prepared, core.Module)
    (kernel,) = prepared.functions().values()
    stores: list[tuple[set[BlockParameter], Op]] = []
    for op in kernel.walk():
        if isinstance(op, tt.Store | tt.DescriptorStore | tt.AtomicRMW | tt.AtomicCAS):
            pointer = op.operands[0]
            stores.append((_roots(pointer), op))
    results: dict[int, Bound] = {}
    for parameter in kernel.bodies[0].parameters:
        through = [op for roots, op in stores if parameter in roots]
        bound = _bound(through, stores)
        if bound is not None:
            results[parameter.index] = bound
    return results


def _bound(values: list[Op], stores: list[tuple[set[BlockParameter], Op]]) -> Bound | None:
    """The bound of what some ops store: that of all ops that it is computed by."""
    ops = _computing(values, stores)
    relative, absolute, rooted, ordered, total, looped = 0.0, 0.0, 0.0, False, False, False
    for op in ops:
        error, more, order = _error(op)
        relative, absolute, ordered = relative + error, absolute + more, ordered or order
        total = total or isinstance(op, arith.AddF | arith.SubF | math.Fma)
        looped = looped or isinstance(op, Loop)
        if isinstance(op, math.Sqrt):
            rooted += sum(_error(inner)[1] for inner in _computing([op], stores) if inner is not op)
    turns = _in_turns(values, ops)
    relative, ordered = relative + turns, ordered or turns > 0
    if not relative and not absolute:
        return None
    factor = LOOPED if looped else 1
    return Bound(relative * factor, absolute * factor, ordered or total, rooted * factor)


def _in_turns(values: list[Op], ops: list[Op]) -> float:
    """The error of what programs add to an array in turns, under a lock: which comes first is not said.

    Without a lock, that a program adds to what it has read is a sum like any other.
    """
    kernel = values[0].root() if values else None
    if kernel is None or not any(_locks(op) for op in kernel.walk()):
        return 0.0
    arrays = {root for op in values for root in _roots(op.operands[0])}
    read = any(isinstance(op, tt.Load | tt.DescriptorLoad) and arrays & _roots(op.operands[0]) for op in ops)
    sums = [element_of(op.result.type) for op in ops if isinstance(op, arith.AddF | arith.SubF | math.Fma)]
    return SUMMED * max(map(_digit, sums), default=0.0) if read else 0.0


def _locks(op: Op) -> bool:
    """Whether an op may be one that takes or gives a lock."""
    return isinstance(op, tt.AtomicCAS) or (isinstance(op, tt.AtomicRMW) and op.kind is tt.AtomicKind.XCHG)


def _error(op: Op) -> tuple[float, float, bool]:
    """The relative and the absolute error of an op, and whether its error is one of the order of a sum."""
    if isinstance(op, tt.Dot):
        return _dot_error(op), 0.0, True
    if isinstance(op, tt.Reduce | tt.Scan):
        sums = (arith.AddF, arith.SubF, arith.MulF, math.Fma)
        kinds = [element_of(inner.result.type) for inner in op.bodies[0].walk() if isinstance(inner, sums)]
        return (max(SUMMED * _digit(kind) for kind in kinds), 0.0, True) if kinds else (0.0, 0.0, False)
    if isinstance(op, tt.AtomicRMW) and op.kind.value == "fadd":
        return SUMMED * _digit(element_of(op.value.type)), 0.0, True
    if type(op) not in FAST:
        return 0.0, 0.0, False
    kind = element_of(op.result.type)
    if kind == f64:
        return ACCURATE.get(type(op), 0.0) * _F64, 0.0, False
    if isinstance(op, arith.DivF) and kind != f32:
        return 0.0, 0.0, False  # Divided in f32, rounded correctly.
    places, absolute = FAST[type(op)]
    return places * _F32 + (0.0 if kind == f32 else _digit(kind)), absolute, False


def _dot_error(op: tt.Dot) -> float:
    of, into = element_of(op.a.type), element_of(op.c.type)
    if not isinstance(of, ScalarType) or not of.is_float:
        return 0.0
    if of == f64:
        return DOT["f64"]
    if of == f32:
        precision = op.input_precision.value
        return DOT.get("tf32" if precision == "default" else precision, DOT["f32"])
    return DOT["f8"] if of.is_fp8 else DOT["f32" if into == f32 else "f16"]


def _digit(kind: Type) -> float:
    """The value of the last place of a float between 1 and 2."""
    assert isinstance(kind, ScalarType)
    return kind.format.epsilon


# Origins of values.


def _sources(value: Value) -> Iterator[Value]:
    """The values that a value is made of directly, through bodies and blocks."""
    if isinstance(value, OpResult):
        yield from value.op.all_operands()
        yield from _left(value.op)
        return
    assert isinstance(value, BlockParameter)
    block = value.block
    owner = block.parent.parent
    if block is not block.parent.entry:
        for before in block.predecessors:
            for successor in before.terminator.successors:
                if successor.block is block:
                    yield successor.arguments[value.index]
    elif owner is not None and not isinstance(owner, tt.Func):
        yield from owner.operands
        yield from _left(owner)


def _left(owner: Op) -> Iterator[Value]:
    """The terminators of an op's bodies."""
    for body in owner.bodies:
        for block in body.blocks:
            if isinstance(block.terminator, BodyTerminator):
                yield from block.terminator.operands


def _points(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return any(map(_points, type_.components))
    return isinstance(element_of(type_), PtrType | DescriptorType)


def _roots(pointer: Value) -> set[BlockParameter]:
    """The kernel's parameters that a pointer may come from."""
    calls: set[Value] = set()
    todo = [pointer]
    while todo:
        value = todo.pop()
        if value not in calls:
            calls.add(value)
            todo += [source for source in _sources(value) if _points(source.type)]
    return {
        value for value in calls if isinstance(value, BlockParameter) and isinstance(value.block.parent.parent, tt.Func)
    }


def _computing(values: list[Op], stores: list[tuple[set[BlockParameter], Op]]) -> list[Op]:
    """The ops that what is stored is computed by, through memory too. Pointers and masks count as exact."""
    ops: dict[int, Op] = {}
    calls: set[Value] = set()
    todo: list[Value] = []

    def add(op: Op) -> None:
        if id(op) in ops:
            return
        ops[id(op)] = op
        for inner in (inner for body in op.bodies for block in body.blocks for inner in block.ops):
            if isinstance(op, tt.Reduce | tt.Scan | scf.While):
                add(inner)
        if isinstance(op, tt.Load | tt.DescriptorLoad | tt.AtomicRMW | tt.AtomicCAS):
            roots = _roots(op.operands[0])
            for others, store in stores:
                if roots & others:
                    add(store)
        todo.extend(op.operands)

    for op in values:
        add(op)
    while todo:
        value = todo.pop()
        if value in calls:
            continue
        calls.add(value)
        if isinstance(value, OpResult):
            add(value.op)
        elif isinstance(value, BlockParameter) and value.block.parent.parent is not None:
            owner = value.block.parent.parent
            if isinstance(owner, Loop):
                ops[id(owner)] = owner
        todo.extend(_sources(value))
    return list(ops.values())
