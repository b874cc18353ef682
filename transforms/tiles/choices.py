"""Reductions that choose an element with its index, as two reductions by one op each.

    %m, %k = tt.reduce (%x, %i) { larger x,               %m = tt.reduce %x { arith.maxnumf };
                or equal and smaller i }      becomes     %j = arith.select (arith.cmpf %x %m @oeq) %i 2147483647;
                                                          %k = tt.reduce %j { arith.minsi };

The function of two elements with indices takes three comparisons and two choices, and more where NaN has a rule. The
two reductions take four ops an element, move one value between lanes at a time, and all lanes have the result at once,
because their ops are commutative.

The function is recognised by its results, not by its text: its condition consists of comparisons between the two
elements and between the two indices, so its value depends only on how these are ordered, and a pair of numbers for each
order shows them all.

The larger of -0.0 and 0.0 is 0.0, but the two compare equal, so the element with the smaller index may be -0.0. Where
the element is used, the index carries its sign through the second reduction.
"""

from __future__ import annotations

import math
from typing import Any, Final

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.dialects.arith import FloatPredicate, IntPredicate
from ziggurat.codemodel.numbers import on_numbers
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    ScalarType,
    TensorType,
    Type,
    element_of,
    i1,
    i8,
    i16,
    i32,
    i64,
    scalar_element,
    with_element,
)
from ziggurat.transforms.analysis.queries import constant, range_along, repacked

_LOGIC: Final = (arith.AndI, arith.OrI, arith.XOrI, arith.Select)
_SIGNED: Final = {type_.bits: type_ for type_ in (i8, i16, i32, i64)}
_ORDERS: Final = ((1, 2), (2, 1), (1, 1))
_NANS: Final = ((math.nan, 1), (1, math.nan), (math.nan, math.nan))


@attrs.frozen
class _Choice:
    """The order by which a reduction chooses: the largest or the smallest element, and NaN before or after numbers."""

    largest: bool
    nan: bool

    def chooses_first(self, a: float, i: int, b: float, j: int) -> bool:
        """Whether the first of two elements with different indices is chosen."""
        keys = [(math.isnan(x) == self.nan, 0.0 if math.isnan(x) else x if self.largest else -x) for x in (a, b)]
        return keys[0] > keys[1] or (keys[0] == keys[1] and i < j)


def divide_choices(module: core.Module) -> Op:
    """The prepared module, with two reductions in place of each one that chooses an element with its index."""
    choices = {op: choice for op in module.walk() if isinstance(op, tt.Reduce) and (choice := _choice(op)) is not None}
    if not choices:
        return module

    def divided(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Reduce) or op not in choices:
            return None
        return repacked(builder, _divided(builder, op, operands, choices[op]))

    return transform(module, divided, pass_name="divide_choices")


def _divided(builder: Builder, op: tt.Reduce, operands: tuple[Value, ...], choice: _Choice) -> list[Value]:
    x, index = operands
    element, number = scalar_element(x.type), scalar_element(index.type)
    signs = _carries_signs(op)
    best = _reduced(builder, x, op.axis, _extreme(element, choice))
    along = _expanded(builder, best, op.axis, x.type)
    is_best = _compared(builder, x, along, FloatPredicate.OEQ if element.is_float else IntPredicate.EQ)
    if element.is_float and choice.nan:
        is_best = builder.add(arith.OrI(is_best, _compared(builder, x, x, FloatPredicate.UNE)))
    keys = _signed_index(builder, x, index) if signs else index
    last = constant(builder, (1 << number.bits - number.signed) - 1, index.type)
    keys = builder.add(arith.Select(is_best, keys, last))
    place = _reduced(builder, keys, op.axis, arith.MinSI if number.signed else arith.MinUI)
    if signs:
        unit = constant(builder, 1, place.type)
        is_negative = _compared(builder, builder.add(arith.AndI(place, unit)), unit, IntPredicate.EQ)
        zero, negative = (builder.add(arith.ConstantOp(value, best.type)) for value in (0.0, -0.0))
        is_zero = _compared(builder, best, zero, FloatPredicate.OEQ)
        of_zero = builder.add(arith.Select(is_negative, negative, zero))
        best = builder.add(arith.Select(is_zero, of_zero, best))
        place = builder.add(arith.ShrSI(place, unit))
    if element.is_float and not choice.nan:
        # No element equals the NaN of an axis without numbers. The first of them is the first of the axis.
        is_number = _compared(builder, best, best, FloatPredicate.OEQ)
        place = builder.add(arith.Select(is_number, place, constant(builder, 0, place.type)))
    return [best, place]


def _signed_index(builder: Builder, x: Value, index: Value) -> Value:
    """Twice the index, plus 1 for an element with a sign."""
    bits_type = with_element(x.type, _SIGNED[scalar_element(x.type).bits])
    bits = builder.add(arith.Bitcast(x, bits_type))
    is_negative = _compared(builder, bits, constant(builder, 0, bits_type), IntPredicate.SLT)
    twice = builder.add(arith.ShlI(index, constant(builder, 1, index.type)))
    return builder.add(arith.OrI(twice, builder.add(arith.ExtUI(is_negative, index.type))))


def _compared(builder: Builder, a: Value, b: Value, predicate: FloatPredicate | IntPredicate) -> Value:
    if isinstance(predicate, FloatPredicate):
        return builder.add(arith.CmpF(a, b, predicate))
    return builder.add(arith.CmpI(a, b, predicate))


def _extreme(element: ScalarType, choice: _Choice) -> type[arith.BinaryElementwise]:
    if element.is_float and choice.nan:
        return arith.MaximumF if choice.largest else arith.MinimumF
    if element.is_float:
        return arith.MaxNumF if choice.largest else arith.MinNumF
    if element.signed:
        return arith.MaxSI if choice.largest else arith.MinSI
    return arith.MaxUI if choice.largest else arith.MinUI


def _reduced(builder: Builder, value: Value, axis: int, combiner: type[arith.BinaryElementwise]) -> Value:
    element = element_of(value.type)
    inner = builder.nested([element, element], element)
    inner.add(tt.ReduceReturn([inner.add(combiner(*inner.parameters))]))
    return builder.add(tt.Reduce([value], axis, inner.finish()))


def _expanded(builder: Builder, value: Value, axis: int, type_: Type) -> Value:
    """A result of a reduction, repeated along the axis."""
    full = with_element(type_, scalar_element(value.type))
    if not isinstance(value.type, TensorType):
        return builder.add(tt.Splat(value, full))
    return builder.add(tt.Broadcast(builder.add(tt.ExpandDims(value, axis)), full))


def _carries_signs(op: tt.Reduce) -> bool:
    """Whether the index must show the sign of the element that is chosen."""
    is_used = any(isinstance(use, core.TupleLoad) and use.index == 0 for use in op.result.uses)
    return scalar_element(op.values[0].type).is_float and is_used


def _choice(op: tt.Reduce) -> _Choice | None:
    """The order by which a reduction of elements and their indices chooses; None for any other reduction."""
    if len(op.values) != 2 or len(op.combine.blocks) != 1:
        return None
    element, number = (element_of(value.type) for value in op.values)
    if not isinstance(element, ScalarType) or not isinstance(number, ScalarType):
        return None
    if element == i1 or element.is_fp8 or number == i1 or number.is_float:
        return None
    a, i, b, j = op.combine.parameters
    selections = [value.op for value in op.combine.entry.terminator.operands]
    conditions: list[tuple[Value, bool]] = []
    for selection, pair in zip(selections, ((a, b), (i, j)), strict=True):
        if not isinstance(selection, arith.Select) or (selection.then, selection.otherwise) not in (pair, pair[::-1]):
            return None
        conditions.append((selection.condition, selection.then is pair[0]))
    if conditions[0] != conditions[1]:
        return None
    numbers = range_along(op.values[1], op.axis)
    # The result for an axis of NaN alone is the index 0, and twice an index must not overflow (`_divided`).
    if element.is_float and (numbers is None or numbers.start != 0):
        return None
    condition, of_first = conditions[0]
    orders = [*_ORDERS, *_NANS] if element.is_float else _ORDERS
    cases = [(first, k, second, 1 - k) for first, second in orders for k in (0, 1)]
    results = [_on_numbers(condition, {a: x, i: k, b: y, j: n}) for x, k, y, n in cases]
    for choice in (_Choice(largest, nan) for largest in (True, False) for nan in (False, True)):
        if results == [choice.chooses_first(*case) == of_first for case in cases]:
            return choice
    return None


def _on_numbers(value: Value, numbers: dict[Value, Any]) -> Any:
    """The value of a condition, which compares only an element with an element and an index with an index; None for
    other conditions."""
    op = value.op
    if isinstance(op, arith.ConstantOp) and value.type == i1:
        return op.value
    if isinstance(op, arith.CmpI | arith.CmpF):
        parameters = list(numbers)
        at = [parameters.index(operand) for operand in op.operands if operand in numbers]
        if len(at) != 2 or (at[0] - at[1]) % 2 or not _is_of_type(op):
            return None
        return on_numbers(op, [numbers[operand] for operand in op.operands])
    if not isinstance(op, _LOGIC):
        return None
    values = [_on_numbers(operand, numbers) for operand in op.operands]
    return None if None in values else bool(on_numbers(op, values))


def _is_of_type(op: arith.CmpI | arith.CmpF) -> bool:
    """Whether a comparison orders numbers as their type does."""
    element = element_of(op.lhs.type)
    if isinstance(op, arith.CmpF) or op.predicate in (IntPredicate.EQ, IntPredicate.NE):
        return True
    return isinstance(element, ScalarType) and (op.predicate.value[0] == "s") == element.signed
