"""Gradients of reductions and scans, by the function that combines the elements.

The elements that are the maximum or minimum share the adjoint equally. With indices it goes to the element whose index
the reduction gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.dialects.arith import FloatPredicate, IntPredicate
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.types import TupleType, element_of
from ziggurat.transforms.analysis.queries import range_along
from ziggurat.transforms.differentiate.adjoint import Reverse, gradients, no_gradient


def _sum(at: Reverse, op: tt.Reduce, index: int, adjoint: Value) -> None:
    at.add(op.values[index], at.expand(adjoint, op.axis, op.values[index].type))


def _extremum(at: Reverse, op: tt.Reduce, index: int, adjoint: Value) -> None:
    x = op.values[index]
    is_extreme = at.compare(at.value(x), at.expand(_result(at, op, index), op.axis, x.type), FloatPredicate.OEQ)
    count = at.total(at.where(is_extreme, at.constant(1.0, x.type), 0.0), op.axis)
    at.add(x, at.where(is_extreme, at.expand(at.over(adjoint, count), op.axis, x.type), 0.0))


def _product(at: Reverse, op: tt.Reduce, index: int, adjoint: Value) -> None:
    """The derivative is the product of the other elements: the whole product over the element if none is zero, the
    product of the others if only this one is zero, and else zero."""
    x = op.values[index]
    value, zero, unit = at.wide(x), at.zero(x.type), at.constant(1.0, x.type)
    is_zero = at.compare(value, zero, FloatPredicate.OEQ)
    factors = at.where(is_zero, unit, value)
    product = at.expand(at.times(adjoint, at.total(factors, op.axis, arith.MulF)), op.axis, x.type)
    zeros = at.expand(at.total(at.where(is_zero, unit, 0.0), op.axis), op.axis, x.type)
    of_zero = at.where(at.compare(zeros, unit, FloatPredicate.OEQ), product, 0.0)
    of_other = at.where(at.compare(zeros, zero, FloatPredicate.OEQ), at.over(product, factors), 0.0)
    at.add(x, at.where(is_zero, of_zero, of_other))


_REDUCTIONS: Final[dict[type[Op], Callable[[Reverse, tt.Reduce, int, Value], None]]] = {
    arith.AddF: _sum,
    arith.MulF: _product,
    arith.MaximumF: _extremum, arith.MaxNumF: _extremum, arith.MinimumF: _extremum, arith.MinNumF: _extremum,
}  # fmt: skip


@gradients.of(tt.Reduce)
def _reduce(at: Reverse, op: tt.Reduce, adjoint: Value | list[Value | None]) -> None:
    adjoints = adjoint if isinstance(adjoint, list) else [adjoint]
    chooser = _index_of_chosen(op)
    for index, entry in enumerate(adjoints):
        if entry is None or not at.wants((op.values[index], 0)):
            continue
        rule = _REDUCTIONS.get(_combiner(op, index))
        if rule is not None:
            rule(at, op, index, entry)
        elif chooser is not None:
            x, numbers = op.values[index], op.values[chooser]
            winner = at.expand(_result(at, op, chooser), op.axis, numbers.type)
            is_winner = at.emit(arith.CmpI(at.value(numbers), winner, IntPredicate.EQ))
            at.add(x, at.where(is_winner, at.expand(entry, op.axis, x.type), 0.0))
        else:
            raise no_gradient(
                op,
                "it combines elements by a function whose derivative is not known",
                "reduce by sum, product, maximum or minimum, also with indices",
            )


@gradients.of(tt.Scan)
def _scan(at: Reverse, op: tt.Scan, adjoint: Value | list[Value | None]) -> None:
    """The adjoint of an element of a cumulative sum is the sum of the adjoints after it."""
    adjoints = adjoint if isinstance(adjoint, list) else [adjoint]
    for index, entry in enumerate(adjoints):
        if entry is None or not at.wants((op.values[index], 0)):
            continue
        if _combiner(op, index) is not arith.AddF:
            raise no_gradient(op, "only cumulative sums have one", "use zg.cumsum")
        body = at.combining(element_of(entry.type), tt.ScanReturn)
        at.add(op.values[index], at.emit(tt.Scan([entry], op.axis, body, reverse=not op.reverse)))


def _result(at: Reverse, op: tt.Reduce, index: int) -> Value:
    """A component of what the reduction gives."""
    result = at.value(op.result)
    return at.emit(core.TupleLoad(result, index)) if isinstance(op.result.type, TupleType) else result


def _yielded(op: tt.Combining) -> tuple[Value, ...]:
    return op.combine.entry.terminator.operands if len(op.combine.blocks) == 1 else ()


def _combiner(op: tt.Combining, index: int) -> type[Op]:
    """The class of the op that alone combines component `index`; `Op` where there is none."""
    count, parameters = len(op.values), op.combine.parameters
    yields = _yielded(op)[index : index + 1]
    if yields and isinstance(yields[0], OpResult):
        operands = yields[0].op.operands
        if set(operands) == {parameters[index], parameters[count + index]} and len(operands) == 2:
            return type(yields[0].op)
    return Op


def _index_of_chosen(op: tt.Reduce) -> int | None:
    """The component that tells which elements a reduction gives: it chooses all components of one element or of the
    other by one condition, and this component is the number of the element along the axis. None for other ones."""
    count, parameters = len(op.values), op.combine.parameters
    conditions: set[tuple[Value, bool]] = set()
    for index, value in enumerate(_yielded(op)):
        producer = value.op
        if not isinstance(producer, arith.Select):
            return None
        pair = parameters[index], parameters[count + index]
        if (producer.then, producer.otherwise) not in (pair, pair[::-1]):
            return None
        conditions.add((producer.condition, producer.then is pair[0]))
    if len(conditions) != 1:
        return None
    return next((index for index, value in enumerate(op.values) if range_along(value, op.axis) is not None), None)
