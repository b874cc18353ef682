"""Rules of the calls that make and reshape tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import KernelValueError
from ziggurat.codemodel.messages import call_text
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import (
    MAX_ELEMENTS,
    ConstantType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    i32,
    is_power_of_two,
    shape_of,
    shaped,
    with_element,
)
from ziggurat.frontends.language.phrases import AXES_REPEATED, MOVE_RANGE, RANGE_COUNT, RANGE_OF_TWO, RANGE_ORDER
from ziggurat.transforms.calls.constant_arguments import show
from ziggurat.transforms.calls.emit import Emitter, Operand, as_given
from ziggurat.transforms.calls.foreign_floats import check_conversion
from ziggurat.transforms.calls.promotion import (
    broadcast_shapes,
    common_shape,
    is_number,
    is_pointer,
    promote,
    require_fits,
    scalar_type,
)
from ziggurat.transforms.calls.rule import Rule, Typing, axis, scalar_dtype, shape, tensor


def _element(x: Type) -> ScalarType | PtrType:
    """The dtype, or the pointers, that a value or its elements have."""
    element = element_of(x)
    return element if isinstance(element, PtrType) else scalar_type(x)


def _value(emit: Emitter, x: Operand, result: Type) -> Value:
    """The operand in the element type of the result, its shape unchanged."""
    element = element_of(result)
    if isinstance(x.type, ConstantType) and isinstance(element, ScalarType):
        return emit.convert(x, element)
    return x.value


# Creation.


def _range(call: Typing, start: int, end: int) -> Type:
    count = end - start
    if not is_power_of_two(count):
        summary = RANGE_COUNT if count > 0 else RANGE_ORDER
        hint = "make the end greater than the start"
        if count > 0:
            hint = RANGE_OF_TWO(call=str(call), start=start, end=start + (1 << (count - 1).bit_length()))
        raise KernelValueError(summary(call=str(call), start=start, end=end, count=count), hint=hint)
    if count > MAX_ELEMENTS:
        raise KernelValueError(
            f"{call} must give at most {MAX_ELEMENTS} numbers; got {count}",
            hint="use smaller blocks, and more programs",
        )
    for bound in (start, end):
        require_fits(bound, i32, MOVE_RANGE(count=count, start=start))
    return TensorType((count,), i32)


def _zeros(call: Typing, sizes: Any, dtype: Any) -> Type:
    return shaped(shape(call, sizes), scalar_dtype(call, dtype))


def _full(call: Typing, sizes: Any, value: Type, dtype: Any) -> Type:
    if not is_number(value) or shape_of(value):
        raise call.error("'value' must be a scalar; got {}", value)
    target = scalar_dtype(call, dtype)
    check_conversion(value, target)
    return shaped(shape(call, sizes), target)


# Shapes.


def _expanded(call: Typing, x: Type, axes: Any) -> Type:
    numbers = (axes,) if isinstance(axes, int) else tuple(axes)
    dims = list(shape_of(x))
    rank = len(dims) + len(numbers)
    places = sorted(axis(call, number, rank) for number in numbers)
    if not places or len(set(places)) < len(places):
        raise KernelValueError(AXES_REPEATED(call=str(call), axes=show(axes), places=places))
    for place in places:
        dims.insert(place, 1)
    return TensorType(tuple(dims), _element(x))


def _expand(emit: Emitter, result: Type, x: Operand, axes: Any) -> Value:
    value = _value(emit, x, result)
    if not shape_of(value.type):
        return emit.spread(value, shape_of(result))
    rank = len(shape_of(result))
    numbers = (axes,) if isinstance(axes, int) else axes
    for place in sorted(axis(call_text("expand"), number, rank) for number in numbers):
        value = emit.add(tt.ExpandDims(value, place))
    return value


def _broadcasted(call: Typing, x: Type, other: Type) -> Type:
    target_shape: Any = other.value if isinstance(other, ConstantType) else None
    if isinstance(target_shape, int | tuple):
        target = shape(call, cast(Any, target_shape))
    elif not isinstance(other, ConstantType) and (is_number(other) or is_pointer(other)):
        target = shape_of(other)
    else:
        raise call.error("'shape' must be a shape or {a_tensor}; got {}", other)
    if broadcast_shapes(shape_of(x), target, str(call)) != target:
        raise call.error("the shape {} does not broadcast to {}", list(shape_of(x)), list(target))
    return shaped(target, _element(x))


def _reshaped(call: Typing, x: Type, sizes: Any) -> Type:
    if sizes == () and isinstance(x, ScalarType | PtrType):
        return x
    source = tensor(call, x)
    dims = [sizes] if isinstance(sizes, int) else list(sizes)
    if dims.count(-1) == 1:
        product = math.prod(dim for dim in dims if dim != -1)
        if product > 0:
            dims[dims.index(-1)] = source.numel // product
    target = shape(call, dims)
    if math.prod(target) != source.numel:
        raise call.error(
            "{} has {} elements, {} has {}", list(source.shape), source.numel, list(target), math.prod(target)
        )
    return shaped(target, source.element)


def _reshape(emit: Emitter, result: Type, x: Operand, *_: Any) -> Value:
    return x.value if x.type == result else emit.reshape(x.value, result)


def _squeezed(call: Typing, x: Type, dim: Any) -> Type:
    source = tensor(call, x)
    at = axis(call, dim, source.rank)
    if source.shape[at] != 1:
        raise call.value_error("axis {} must have size 1; got {}", dim, source.shape[at])
    return shaped((*source.shape[:at], *source.shape[at + 1 :]), source.element)


def _order(dims: Sequence[Any]) -> tuple[Any, ...]:
    """The order of axes that `trans` and `permute` are given, in a row or as a tuple; empty where it is not given."""
    return cast(Any, dims[0]) if len(dims) == 1 and isinstance(dims[0], tuple) else tuple(dims)


def _swap(rank: int) -> tuple[int, ...]:
    """The order with the last two axes exchanged."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _permuted(call: Typing, x: Type, dims: Sequence[Any]) -> Type:
    source = tensor(call, x)
    order = _order(dims)
    if not order and call.name == "trans":
        if source.rank < 2:
            raise call.error("the operand must be {a_tensor} of at least two axes; got {}", source)
        order = _swap(source.rank)
    if not all(type(number) is int for number in order):
        raise call.value_error("{} is not a permutation of the {} axes", show(order), source.rank)
    return call.op_type(lambda values: tt.Trans(values[0], order), source, error=KernelValueError)


def _permute(emit: Emitter, result: Type, x: Operand, dims: Any) -> Value:
    return emit.add(tt.Trans(x.value, _order(dims) or _swap(len(shape_of(x.type)))))


def _pair_element(call: Typing, a: Type, b: Type) -> ScalarType | PtrType:
    """The element type of two values side by side: pointers of one type, or promoted numbers."""
    if is_pointer(a) and a == b:
        return _element(a)
    for part in (a, b):
        if not is_number(part):
            raise call.error("the operands must be numbers, or pointers of one type; got {}", part)
    if isinstance(a, ConstantType) and isinstance(b, ConstantType):
        raise call.error("the operands must be {tensors}; got two constants")
    return promote(a, b)


def _joined(call: Typing, a: Type, b: Type) -> Type:
    return TensorType(shape(call, (*common_shape(str(call), a, b), 2)), _pair_element(call, a, b))


def _interleaved(call: Typing, a: Type, b: Type) -> Type:
    element = _pair_element(call, a, b)
    sizes = common_shape(str(call), a, b) or (1,)
    return TensorType(shape(call, (*sizes[:-1], 2 * sizes[-1])), element)


def _join(emit: Emitter, result: Type, a: Operand, b: Operand) -> Value:
    """The two side by side along a new axis, which `interleave` makes one with the last."""
    half = shaped(common_shape("", a.type, b.type), element_of(result))  # pyright: ignore[reportArgumentType]
    return emit.reshape(emit.add(tt.Join(emit.convert(a, half), emit.convert(b, half))), result)


def _flipped(call: Typing, x: Type, dim: Any) -> Type:
    source = tensor(call, x)
    axis(call, -1 if dim is None else dim, source.rank)
    return source


def _flip(emit: Emitter, result: Type, x: Operand, dim: int | None) -> Value:
    sizes = shape_of(result)
    at = axis(call_text("flip"), -1 if dim is None else dim, len(sizes))
    if sizes[at] == 1:
        return x.value
    numbers = emit.spread(emit.indices(sizes, at), sizes)
    last = emit.constant(sizes[at] - 1, numbers.type)
    return emit.add(tt.Gather(x.value, emit.add(arith.SubI(last, numbers)), at))


def _cat(emit: Emitter, result: Type, a: Operand, b: Operand, *_: Any) -> Value:
    half = shaped(shape_of(a.type), element_of(result))  # pyright: ignore[reportArgumentType]
    return emit.add(tt.Cat(emit.convert(a, half), emit.convert(b, half)))


def _concatenated(call: Typing, a: Type, b: Type, *_: Any) -> Type:
    x, y = tensor(call, a), tensor(call, b)
    element = x.element if x.element == y.element else _pair_element(call, x, y)
    return call.op_type(lambda halves: tt.Cat(*halves), TensorType(x.shape, element), TensorType(y.shape, element))


def _gathered(call: Typing, source: Type, index: Type, along: int) -> Type:
    x, i = tensor(call, source), tensor(call, index)
    at = axis(call, along, x.rank)
    return call.op_type(lambda values: tt.Gather(*values, axis=at), x, i)


def _gather(emit: Emitter, result: Type, source: Operand, index: Operand, along: int) -> Value:
    return emit.add(tt.Gather(source.value, index.value, axis(call_text("gather"), along, len(shape_of(source.type)))))


def _halves(call: Typing, x: Type) -> Type:
    return call.op_type(lambda halves: tt.Split(*halves), tensor(call, x))


def _fill(emit: Emitter, result: Type, _sizes: Any, value: Operand, dtype: Any) -> Value:
    return emit.convert(value, with_element(result, dtype), dense=True)


def _spread(emit: Emitter, result: Type, x: Operand, _other: Operand) -> Value:
    return emit.spread(_value(emit, x, result), shape_of(result))


def _clear(emit: Emitter, result: Type, _sizes: Any, _dtype: Any) -> Value:
    return emit.constant(0, result)


RULES = {
    "arange": Rule(_range, as_given(tt.MakeRange)),
    "zeros": Rule(_zeros, _clear),
    "full": Rule(_full, _fill),
    "expand": Rule(_expanded, _expand),
    "broadcast": Rule(_broadcasted, _spread),
    "reshape": Rule(_reshaped, _reshape),
    "squeeze": Rule(_squeezed, _reshape),
    "unsqueeze": Rule(_expanded, _expand),
    "ravel": Rule(partial(_reshaped, sizes=-1), _reshape),
    **dict.fromkeys(("trans", "permute"), Rule(_permuted, _permute)),
    "join": Rule(_joined, _join),
    "interleave": Rule(_interleaved, _join),
    "flip": Rule(_flipped, _flip),
    "split": Rule(_halves, as_given(tt.Split)),
    "cat": Rule(_concatenated, _cat),
    "gather": Rule(_gathered, _gather),
}
