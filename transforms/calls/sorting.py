"""Rules of sorting and counting. What sorts is a function of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import MAX_ELEMENTS, TensorType, TupleType, Type, i1, i32, shape_of
from ziggurat.transforms.calls.checks import axis, is_power_of_two, number_tensor
from ziggurat.transforms.calls.emit import Built, Emitter, Operand
from ziggurat.transforms.calls.ordering import order_of, sorted_keys, take_first, to_keys, to_values
from ziggurat.transforms.calls.promotion import scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing
from ziggurat.transforms.calls.wording import describe, show


def _sorted(call: Typing, x: Type, dim: Any, _descending: bool) -> TensorType:
    tensor = number_tensor(call, x)
    if axis(call, -1 if dim is None else dim, tensor.rank) != tensor.rank - 1:
        raise KernelValueError(
            f"{call} works along the last axis; got axis {dim}", hint="zg.trans moves an axis to the end"
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


def _in_function(
    emit: Emitter,
    name: str,
    x: Operand,
    result: Type,
    options: list[Any],
    part: Callable[[Emitter, Value], list[Value]],
) -> Built:
    """Call the function of the model that `part` builds for a tensor."""
    source = x.value.type
    symbol = "_".join(map(str, [name, source, *options, result]))
    symbol = emit.functions.module.helper(
        symbol, name, [source], result, lambda builder, parameters: part(Emitter(builder), parameters[0])
    )
    return emit.call(symbol, [x.value], result)


def _direction(descending: bool) -> str:
    return "descending" if descending else "ascending"


def _sort(emit: Emitter, result: Type, x: Operand, dim: Any, descending: bool) -> Built:
    def part(emit: Emitter, value: Value) -> list[Value]:
        return [to_values(emit, sorted_keys(emit, to_keys(emit, value), descending), scalar_type(result))]

    return _in_function(emit, "sort", x, result, [_direction(descending)], part)


def _argsort(emit: Emitter, result: Type, x: Operand, dim: Any, descending: bool) -> Built:
    def part(emit: Emitter, value: Value) -> list[Value]:
        return [order_of(emit, to_keys(emit, value), descending)]

    return _in_function(emit, "argsort", x, result, [_direction(descending)], part)


def _topk(
    emit: Emitter, result: Type, x: Operand, k: int, dim: Any, descending: bool = True, with_index: bool = False
) -> Built:
    def part(emit: Emitter, value: Value) -> list[Value]:
        keys = to_keys(emit, value)
        if with_index:
            chosen = take_first(emit, order_of(emit, keys, descending), k)
            return [emit.add(tt.Gather(value, chosen, len(shape_of(value.type)) - 1)), chosen]
        return [to_values(emit, take_first(emit, sorted_keys(emit, keys, descending), k), scalar_type(x.type))]

    return _in_function(emit, "topk", x, result, [k, _direction(descending)], part)


def _histogram(emit: Emitter, result: Type, x: Operand, bins: int, mask: Operand | None) -> Value:
    return emit.add(tt.Histogram(x.value, None if mask is None else mask.value, bins=bins))


RULES = {
    "sort": Rule(_sorted, _sort),
    "argsort": Rule(_order, _argsort),
    "topk": Rule(_first, _topk),
    "histogram": Rule(_counts, _histogram),
}
