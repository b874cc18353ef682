"""Gradients of ops that move elements, and of `tt.dot`."""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import (
    ScalarType,
    TensorType,
    component_types,
    f16,
    i32,
    scalar_element,
    shape_of,
    with_element,
)
from ziggurat.transforms.differentiate.adjoint import Reverse, gradients
from ziggurat.transforms.differentiate.finite import may_be_infinite


@gradients.of(tt.Splat)
def _splat(at: Reverse, op: tt.Splat, adjoint: Value) -> None:
    at.add(op.value, at.total_of_all(adjoint))


@gradients.of(tt.Broadcast)
def _broadcast(at: Reverse, op: tt.Broadcast, adjoint: Value) -> None:
    at.add(op.value, summed_to(at, adjoint, shape_of(op.value.type)))


def summed_to(at: Reverse, value: Value, shape: Sequence[int]) -> Value:
    """The sums along the axes that `shape`, of the same rank, has of size 1."""
    for axis, (size, smaller) in enumerate(zip(shape_of(value.type), shape, strict=True)):
        if smaller < size:
            total = at.total(value, axis)
            type_ = TensorType((1,), total.type) if isinstance(total.type, ScalarType) else None
            value = at.emit(tt.ExpandDims(total, axis) if type_ is None else tt.Splat(total, type_))
    return value


@gradients.of(tt.ExpandDims)
def _expand_dims(at: Reverse, op: tt.ExpandDims, adjoint: Value) -> None:
    producer = adjoint.op
    if isinstance(producer, tt.ExpandDims) and producer.axis == op.axis:
        at.add(op.value, producer.value)
    else:
        at.add(op.value, at.total(adjoint, op.axis))


@gradients.of(tt.Reshape)
def _reshape(at: Reverse, op: tt.Reshape, adjoint: Value) -> None:
    at.add(op.value, at.emit(tt.Reshape(adjoint, with_element(op.value.type, scalar_element(adjoint.type)))))


@gradients.of(tt.Trans)
def _trans(at: Reverse, op: tt.Trans, adjoint: Value) -> None:
    inverse = tuple(op.order.index(axis) for axis in range(len(op.order)))
    at.add(op.value, at.emit(tt.Trans(adjoint, inverse)))


@gradients.of(tt.Join)
def _join(at: Reverse, op: tt.Join | tt.Cat, adjoint: Value) -> None:
    for operand, half in zip(op.operands, at.components(at.emit(tt.Split(adjoint)), 2), strict=True):
        at.add(operand, half)


@gradients.of(tt.Split)
def _split(at: Reverse, op: tt.Split, adjoint: list[Value | None]) -> None:
    halves = [
        component or at.zero(type_) for component, type_ in zip(adjoint, component_types(op.result.type), strict=True)
    ]
    at.add(op.value, at.emit(tt.Join(*halves)))


@gradients.of(tt.Cat)
def _cat(at: Reverse, op: tt.Cat, adjoint: Value) -> None:
    """The halves come to lie along a last axis of 2, which `tt.split` takes apart."""
    type_ = expect(adjoint.type, TensorType)
    rank = type_.rank
    stacked = at.emit(tt.Reshape(adjoint, TensorType((2, type_.shape[0] // 2, *type_.shape[1:]), type_.element)))
    _join(at, op, at.emit(tt.Trans(stacked, (*range(1, rank + 1), 0))))


@gradients.of(tt.Gather)
def _gather(at: Reverse, op: tt.Gather, adjoint: Value) -> None:
    """The adjoint of an element is the sum over the elements that took it: one more axis compares all pairs."""
    source, index = (expect(value.type, TensorType) for value in (op.source, op.index))
    axis, size = op.axis, source.shape[op.axis]
    pairs = (*source.shape[: axis + 1], *index.shape[axis:])
    numbers: Value = at.emit(tt.MakeRange(0, size))
    for place in range(len(pairs)):
        if place != axis:
            numbers = at.emit(tt.ExpandDims(numbers, place))
    indices = at.emit(tt.ExpandDims(at.as_type(at.value(op.index), numbers.type), axis))
    wide = TensorType(pairs, i32)
    matches = at.emit(
        arith.CmpI(at.emit(tt.Broadcast(indices, wide)), at.emit(tt.Broadcast(numbers, wide)), arith.IntPredicate.EQ)
    )
    spread = at.emit(tt.ExpandDims(adjoint, axis))
    spread = at.emit(tt.Broadcast(spread, with_element(wide, scalar_element(adjoint.type))))
    at.add(op.source, at.total(at.where(matches, spread, 0.0), axis + 1))


@gradients.of(tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy)
def _hint(at: Reverse, op: tt.Hint, adjoint: Value) -> None:
    at.add(op.value, adjoint)


@gradients.of(core.TupleLoad)
def _component(at: Reverse, op: core.TupleLoad, adjoint: Value) -> None:
    at.add(op.tuple, adjoint, op.index)


@gradients.of(core.MakeTuple)
def _tuple(at: Reverse, op: core.MakeTuple, adjoint: list[Value | None]) -> None:
    for component, part in zip(op.components, adjoint, strict=True):
        if part is not None:
            at.add(component, part)


@gradients.of(core.TupleWith)
def _tuple_with(at: Reverse, op: core.TupleWith, adjoint: list[Value | None]) -> None:
    for index, component in enumerate(adjoint):
        if component is not None:
            if index == op.index:
                at.add(op.value, component)
            else:
                at.add(op.tuple, component, index)


@gradients.of(tt.Dot)
def _dot(at: Reverse, op: tt.Dot, adjoint: Value) -> None:
    """da = dc · bᵀ and db = aᵀ · dc, with dc in the element type of the operands, for the matrix units. 8-bit floats
    are multiplied as f16, which holds each of them."""
    element = scalar_element(op.a.type)  # Of both, but for 8-bit floats.
    type_ = f16 if element.is_fp8 else element
    rank = len(shape_of(op.a.type))
    order = (*range(rank - 2), rank - 1, rank - 2)

    def operand(value: Value) -> Value:
        return at.as_type(value, with_element(value.type, type_))

    def finite(value: Value) -> Value:
        """An operand without infinities and NaN in rows that do not count, which would reach all sums."""
        number = at.value(value)
        if not may_be_infinite(value, 0, at.finite):
            return number
        zero = at.emit(arith.ConstantOp(0.0, type=number.type))
        nothing = at.emit(arith.SubF(number, number))  # NaN for an infinity.
        return at.emit(arith.Select(at.compare(nothing, zero, arith.FloatPredicate.OEQ), number, zero))

    def transposed(value: Value) -> Value:
        op = value.op
        if isinstance(op, tt.Trans) and tuple(op.order) == order:
            return op.value
        return at.emit(tt.Trans(value, order))

    def add(value: Value, a: Value, b: Value) -> None:
        """Add a · b to the adjoint. That of a transposed operand is added to what was transposed: bᵀ · aᵀ."""
        dot = value.op
        if isinstance(dot, tt.Trans) and tuple(dot.order) == order:
            add(dot.value, transposed(b), transposed(a))
        elif at.wants((value, 0)):
            accumulator = at.take((value, 0))
            imprecise = op.max_num_imprecise_acc
            dot = tt.Dot(a, b, accumulator, input_precision=op.input_precision, max_num_imprecise_acc=imprecise)
            at.add(value, at.emit(dot))

    outer = operand(adjoint)
    add(op.a, outer, transposed(operand(finite(op.b))))
    add(op.b, transposed(operand(finite(op.a))), outer)
    at.add(op.c, adjoint)
