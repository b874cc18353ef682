"""Rules of sorting and counting. A function of the model does the sorting.

It is a bitonic sort of integer keys along the last axis. The last axis of size 2^n is viewed as n axes of size 2, so
that the partner in a compare-and-exchange is the other element along one axis: the element xor the xor of both. Floats
are sorted by integer keys of the same order, with every NaN last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import (
    MAX_ELEMENTS,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    f32,
    i1,
    i8,
    i16,
    i32,
    i64,
    shape_of,
    with_element,
)
from ziggurat.transforms.calls.constants import describe, show
from ziggurat.transforms.calls.emit import Builds, Built, Emitter, Operand
from ziggurat.transforms.calls.promotion import scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, axis, is_power_of_two, number_tensor

_KEYS = {8: i8, 16: i16, 32: i32, 64: i64}


def _element(value: Value) -> ScalarType:
    element = element_of(value.type)
    assert isinstance(element, ScalarType)
    return element


def to_keys(emit: Emitter, value: Value) -> Value:
    """Integers that compare as the values do; bytes for i1."""
    element = _element(value)
    if element == i1:
        return emit.cast(value, i8)
    if not element.is_float:
        return value
    key = _KEYS[element.bits]
    type_ = with_element(value.type, key)
    bits = emit.add(arith.Bitcast(value, type_))
    flipped = _flip_negative(emit, bits, key)
    # NaN is the one value that differs from itself; 8-bit floats are compared in f32.
    compared = emit.cast(value, f32) if element.is_fp8 else value
    is_nan = emit.add(arith.CmpF(compared, compared, arith.FloatPredicate.UNE))
    return emit.add(arith.Select(is_nan, emit.constant(key.limits[1], type_), flipped))


def _flip_negative(emit: Emitter, bits: Value, key: ScalarType) -> Value:
    """All but the sign bit of negative numbers inverted: its own inverse."""
    sign = emit.add(arith.ShrSI(bits, emit.constant(key.bits - 1, bits.type)))
    mask = emit.add(arith.AndI(sign, emit.constant(key.limits[1], bits.type)))
    return emit.add(arith.XOrI(bits, mask))


def to_values(emit: Emitter, keys: Value, element: ScalarType) -> Value:
    """The inverse of `to_keys`."""
    if element == i1:
        return emit.nonzero(keys)
    if not element.is_float:
        return keys
    return emit.add(arith.Bitcast(_flip_negative(emit, keys, _KEYS[element.bits]), with_element(keys.type, element)))


def _combined(emit: Emitter, value: Value, axis: int, op: type[arith.XOrI] | type[arith.OrI]) -> Value:
    """Reduce along an axis with an op of integers."""
    element = _element(value)
    inner: Builder = emit.builder.nested([element, element], element)
    made = inner.add(op(*inner.parameters))
    inner.add(tt.ReduceReturn([made]))
    return emit.add(tt.Reduce([value], axis, inner.finish()))


def order_of(emit: Emitter, keys: Value, descending: bool) -> Value:
    """The indices, as i32, by which the keys are in order along the last axis; of equal keys the first one first.

    A key and its index are sorted together, as one number of 64 bits. Keys of 64 bits are ordered by their lower half,
    and then by their upper one: as equal ones stay in order, that is the order of the whole.
    """
    element = _element(keys)
    if descending:
        keys = emit.add(arith.XOrI(keys, emit.constant(-1, keys.type)))
    if element.bits < 64:
        return _order_of_halves(emit, emit.cast(keys, i64), element.signed)
    half = emit.constant(32, keys.type)
    upper = emit.add((arith.ShrSI if element.signed else arith.ShrUI)(keys, half))
    lower = emit.add(arith.AndI(keys, emit.constant((1 << 32) - 1, keys.type)))
    first = _order_of_halves(emit, emit.cast(lower, i64), False)
    axis = len(shape_of(keys.type)) - 1
    upper = emit.add(tt.Gather(emit.cast(upper, i64), first, axis))
    return emit.add(tt.Gather(first, _order_of_halves(emit, upper, element.signed), axis))


def _order_of_halves(emit: Emitter, keys: Value, signed: bool) -> Value:
    """The same of numbers of 32 bits, in i64."""
    shape = shape_of(keys.type)
    if not signed:
        keys = emit.add(arith.SubI(keys, emit.constant(1 << 31, keys.type)))
    upper = emit.add(arith.ShlI(keys, emit.constant(32, keys.type)))
    index = emit.add(arith.ExtUI(emit.spread(emit.indices(shape, len(shape) - 1), shape), keys.type))
    return emit.cast(sorted_keys(emit, emit.add(arith.OrI(upper, index)), False), i32)


def sorted_keys(emit: Emitter, keys: Value, descending: bool) -> Value:
    """The keys sorted along the last axis."""
    shape = shape_of(keys.type)
    levels = shape[-1].bit_length() - 1
    if levels == 0:
        return keys
    element = _element(keys)
    outer = len(shape) - 1
    cube = (*shape[:-1], *(2,) * levels)
    value = emit.add(tt.Reshape(keys, TensorType(cube, element)))
    # Most significant first.
    bits = [emit.spread(emit.nonzero(emit.indices(cube, outer + level)), cube) for level in range(levels)]
    for stage in range(1, levels + 1):
        # Runs of 2^stage are sorted in alternating directions, by the next bit of the index; the last stage in one.
        last = stage == levels
        direction = emit.constant(descending, TensorType(cube, i1)) if last else bits[levels - 1 - stage]
        for step in range(stage):
            level = levels - stage + step
            value = _exchange(emit, value, outer + level, bits[level], direction)
    return emit.add(tt.Reshape(value, keys.type))


def _exchange(emit: Emitter, value: Value, axis: int, right: Value, down: Value) -> Value:
    """Compare each element with its partner along the axis and exchange them where they are out of order."""
    shape = shape_of(value.type)
    element = _element(value)
    both = _combined(emit, value, axis, arith.XOrI)
    both = emit.add(tt.ExpandDims(both, axis)) if shape_of(both.type) else emit.spread(both, (1,) * len(shape))
    partner = emit.add(arith.XOrI(value, emit.spread(both, shape)))
    greater = arith.IntPredicate.SGT if element.signed else arith.IntPredicate.UGT
    less = arith.IntPredicate.SLT if element.signed else arith.IntPredicate.ULT
    # The left element moves when it is greater, the right one when it is less; reversed for descending runs.
    is_greater = emit.add(arith.CmpI(value, partner, greater))
    is_less = emit.add(arith.CmpI(value, partner, less))
    swap_sides = emit.add(arith.XOrI(right, down))
    moves = emit.add(arith.Select(swap_sides, is_less, is_greater))
    return emit.add(arith.Select(moves, partner, value))


def take_first(emit: Emitter, keys: Value, count: int) -> Value:
    """The first `count` along the last axis: all other rows are made zero and or-ed away."""
    shape = shape_of(keys.type)
    if shape[-1] == count:
        return keys
    element = _element(keys)
    rows = shape[-1] // count
    split = (*shape[:-1], rows, count)
    value = emit.add(tt.Reshape(keys, TensorType(split, element)))
    axis = len(shape) - 1
    numbers = emit.indices(split, axis)
    first = emit.add(arith.CmpI(numbers, emit.constant(0, numbers.type), arith.IntPredicate.EQ))
    kept = emit.add(arith.Select(emit.spread(first, split), value, emit.constant(0, value.type)))
    return _combined(emit, kept, axis, arith.OrI)


# Rules.


def _sorted(call: Typing, x: Type, dim: Any, _descending: bool) -> TensorType:
    tensor = number_tensor(call, x)
    if axis(call, -1 if dim is None else dim, tensor.rank) != tensor.rank - 1:
        raise KernelValueError(
            f"{call}: the axis must be the last one; got axis {dim}", hint="move the axis to the end with zg.trans"
        )
    return tensor


def _order(call: Typing, x: Type, dim: Any, descending: bool) -> Type:
    return TensorType(_sorted(call, x, dim, descending).shape, i32)


def _first(call: Typing, x: Type, k: Any, dim: Any, descending: bool = True, with_index: bool = False) -> Type:
    tensor = _sorted(call, x, dim, descending)
    if not is_power_of_two(k) or k > tensor.shape[-1]:
        raise KernelValueError(f"{call}: k must be a power of two up to {tensor.shape[-1]}; got {show(k)}")
    sizes = (*tensor.shape[:-1], k)
    values = TensorType(sizes, tensor.element)
    return TupleType((values, TensorType(sizes, i32))) if with_index else values


def _counts(call: Typing, x: Type, bins: Any, mask: Type | None) -> Type:
    tensor = number_tensor(call, x)
    if not is_power_of_two(bins) or bins > MAX_ELEMENTS:
        raise KernelValueError(f"{call}: 'num_bins' must be a power of two up to {MAX_ELEMENTS}; got {show(bins)}")
    if mask is not None and mask != TensorType(tensor.shape, i1):
        raise KernelTypeError(f"{call}: the mask must be {TensorType(tensor.shape, i1)}; got {describe(mask)}")
    return call.asked(lambda values: tt.Histogram(values[0], bins=bins), tensor)


def _in_function(name: str, part: Callable[..., list[Value]]) -> Builds:
    """Build a call of a function of the model. `part` builds its body, from keys and the options of the call."""

    def build(emit: Emitter, result: Type, x: Operand, *options: Any) -> Built:
        *count, _dim, descending = options[:3]
        with_index = options[3:]  # `topk` has a count before the axis, and a flag for indices at the end.
        source = x.value.type

        def body(builder: Builder, parameters: Sequence[Value]) -> list[Value]:
            inner = Emitter(builder)
            return part(inner, parameters[0], to_keys(inner, parameters[0]), descending, *count, *with_index)

        symbol = "_".join(map(str, [name, source, *count, "descending" if descending else "ascending", result]))
        symbol = emit.functions.module.helper(symbol, name, [source], result, body)
        return emit.call(symbol, [x.value], result)

    return build


def _sort(emit: Emitter, values: Value, keys: Value, descending: bool) -> list[Value]:
    return [to_values(emit, sorted_keys(emit, keys, descending), scalar_type(values.type))]


def _argsort(emit: Emitter, values: Value, keys: Value, descending: bool) -> list[Value]:
    return [order_of(emit, keys, descending)]


def _topk(emit: Emitter, values: Value, keys: Value, descending: bool, count: int, with_index: bool) -> list[Value]:
    if with_index:
        chosen = take_first(emit, order_of(emit, keys, descending), count)
        return [emit.add(tt.Gather(values, chosen, len(shape_of(values.type)) - 1)), chosen]
    return [to_values(emit, take_first(emit, sorted_keys(emit, keys, descending), count), scalar_type(values.type))]


def _histogram(emit: Emitter, result: Type, x: Operand, bins: int, mask: Operand | None) -> Value:
    return emit.add(tt.Histogram(x.value, None if mask is None else mask.value, bins=bins))


RULES = {
    "sort": Rule(_sorted, _in_function("sort", _sort)),
    "argsort": Rule(_order, _in_function("argsort", _argsort)),
    "topk": Rule(_first, _in_function("topk", _topk)),
    "histogram": Rule(_counts, _histogram),
}
