"""Rules of reductions and scans, of sorting and counting.

As in the article's proof of concept, a reduction is a call of a function of the model (`reduce_sum_…`), in which a
`tt.reduce` applies the function that combines two elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.op import Body, Op, Value, expect
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import (
    MAX_ELEMENTS,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    f32,
    i1,
    i32,
    is_power_of_two,
    shape_of,
    shaped,
    u32,
    with_element,
)
from ziggurat.frontends.language.languages import Language
from ziggurat.frontends.language.phrases import ANY_OF_BITS, AXIS_LAST
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.calls.constant_arguments import show, symbol_part
from ziggurat.transforms.calls.emit import Builds, Built, Emitter, Operand, packed_type, split_operand
from ziggurat.transforms.calls.lattice import components
from ziggurat.transforms.calls.promotion import scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, axis, number_tensor

# Calls that widen their elements, that give true or false, and that take integers only.
_TOTALS = ("sum", "prod")
_DECISIONS = ("any", "all")
_BITWISE = ("xor_sum", "reduce_or")

# Types of results.


def accumulator(element: ScalarType) -> ScalarType:
    """The type in which sums and products of an element type are given: small integers widen to 32 bits."""
    if element.is_float or element.bits >= 32:
        return element
    return i32 if element.signed or element == i1 else u32


def computing(element: ScalarType, language: Language) -> ScalarType:
    """The type in which sums of an element type are computed: small floats in f32, but in Triton's language only those
    that it does not add up in their own type."""
    narrow = 16 if language.narrow_sums else 32
    return f32 if element.is_float and element.bits < narrow else accumulator(element)


def _reduced(call: Typing, tensor: TensorType, along: int | None, keep: bool, element: Any) -> Type:
    if along is None:
        return shaped((1,) * tensor.rank if keep else (), element)
    at = axis(call, along, tensor.rank)
    middle = (1,) if keep else ()
    return shaped((*tensor.shape[:at], *middle, *tensor.shape[at + 1 :]), element)


def _total(call: Typing, tensor: TensorType, dtype: Any = None) -> ScalarType:
    """The dtype of a sum or product of the elements of a tensor."""
    if dtype == i1 and call.language.plain_integers and call.name == "sum":
        call.context.combine(call, "xor_sum", [i1])
        return i1
    if dtype is not None and (not isinstance(dtype, ScalarType) or dtype == i1):
        raise call.value_error("dtype must be an integer or a float; got {}", dtype, hint=ANY_OF_BITS())
    element = dtype or accumulator(scalar_type(tensor))
    call.context.combine(call, call.name, [computing(element, call.language)])
    return element


def _combined(call: Typing, x: Type, along: Any, keep: bool, dtype: Any = None) -> Type:
    """The type of a reduction that gives one value: in the dtype of a sum, i1 for a decision, or as the elements."""
    tensor = number_tensor(call, x)
    element = scalar_type(tensor)
    if call.name in _TOTALS:
        element = _total(call, tensor, dtype)
    elif call.name in _DECISIONS:
        element = i1
        call.context.combine(call, call.name, [element])
    else:
        if call.name in _BITWISE and element.is_float:
            raise call.error("the operands must be integers; got {}", x)
        call.context.combine(call, call.name, [element])
    return _reduced(call, tensor, along, keep, element)


def _place(name: str) -> str:
    """The function that finds the largest or smallest element (of `max`, `argmax`, …) and its index: the first of equal
    ones, also where the call may give any."""
    return f"arg{name.removeprefix('arg')}"


def _found(call: Typing, x: Type, along: Any, keep: bool) -> tuple[Type, Type]:
    """The types of the element and of its index."""
    tensor = number_tensor(call, x)
    call.context.combine(call, _place(call.name), [tensor.element, i32])
    value = _reduced(call, tensor, 0 if along is None and tensor.rank == 1 else along, keep, tensor.element)
    return value, with_element(value, i32)


def _extreme(call: Typing, x: Type, along: Any, with_index: bool, _tie_left: bool, keep: bool) -> Type:
    return TupleType(_found(call, x, along, keep)) if with_index else _combined(call, x, along, keep)


def _index(call: Typing, x: Type, along: Any, _tie_left: bool, keep: bool) -> Type:
    return _found(call, x, along, keep)[1]


def _tensors(call: Typing, x: Type) -> list[TensorType]:
    parts: Sequence[Type] = [x] if isinstance(x, TensorType) else components(x) or ()
    tensors = [part for part in parts if isinstance(part, TensorType)]
    if not tensors or len(tensors) != len(parts):
        raise call.error("the operand must be {a_tensor}, or a tuple of {tensors}; got {}", x)
    for tensor in tensors:
        if tensor.shape != tensors[0].shape:
            raise call.error(
                "the {tensors} must be of one shape; got {} and {}", list(tensors[0].shape), list(tensor.shape)
            )
    return tensors


def _reduced_by(call: Typing, x: Type, along: Any, function: Any, keep: bool) -> Type:
    tensors = _tensors(call, x)
    call.context.combine(call, function, [tensor.element for tensor in tensors])
    parts = tuple(_reduced(call, tensor, along, keep, tensor.element) for tensor in tensors)
    return parts[0] if isinstance(x, TensorType) else TupleType(parts)


def _scanned_by(call: Typing, x: Type, along: Any, function: Any, _reverse: bool) -> Type:
    tensors = _tensors(call, x)
    axis(call, along, tensors[0].rank)
    call.context.combine(call, function, [tensor.element for tensor in tensors])
    return x if isinstance(x, TensorType) else TupleType(tuple(tensors))


def _running(call: Typing, x: Type, along: Any, _reverse: bool, dtype: Any = None) -> Type:
    tensor = number_tensor(call, x)
    axis(call, along, tensor.rank)
    if call.name == "cumprod" and dtype is None and call.language.wide_reductions and tensor.element != i1:
        dtype = tensor.element
    if call.name.removeprefix("cum") in _TOTALS:
        return TensorType(tensor.shape, _total(call, tensor, dtype))
    call.context.combine(call, call.name, [tensor.element])
    return tensor


# Ops.


def _function(
    emit: Emitter, name: str, values: list[Value], words: str, result: Type, make: Callable[[Sequence[Value], Body], Op]
) -> list[Value]:
    """Call the function of the model that combines these tensors.

    Its symbol has `name`, the types of the tensors, `words`, and the type of the result. `make` gives its op, of the
    tensors and a body.
    """
    callee = emit.functions.callee()
    tensors = [value.type for value in values]
    types = [element_of(type_) for type_ in tensors]
    ends = tt.ScanReturn if name.startswith("scan_") else tt.ReduceReturn
    symbol = "_".join([name, *map(str, tensors), words, symbol_part(result)])

    def build(builder: Builder, parameters: Sequence[Value]) -> list[Value]:
        combined = packed(types)
        inner = Emitter(builder.nested([*types, *types], packed_type(combined)))
        both = Operand(callee.result, inner.call(callee.symbol, list(inner.builder.parameters), callee.result))
        inner.add(ends(inner.repack(both, combined)))
        return Emitter(builder).parts(builder.add(make(parameters, inner.builder.finish())), len(types))

    symbol = emit.functions.helper(symbol, callee.symbol, tensors, result, build)
    return emit.parts(emit.add(tt.Call(values, symbol, packed_type(result))), len(types))


def _reduce(emit: Emitter, name: str, values: list[Value], at: int) -> list[Value]:
    """Reduce tensors together along an axis."""
    sizes = shape_of(values[0].type)
    rest = (*sizes[:at], *sizes[at + 1 :])
    result = packed([shaped(rest, element_of(value.type)) for value in values])  # pyright: ignore[reportArgumentType]
    return _function(emit, f"reduce_{name}", values, str(at), result, lambda x, body: tt.Reduce(x, at, body))


def _scan(emit: Emitter, name: str, values: list[Value], along: int, reverse: bool) -> list[Value]:
    """Scan tensors together along an axis."""
    result = packed([value.type for value in values])
    at = axis(f"zg.{name}", along, len(shape_of(values[0].type)))
    words = f"{at}_reverse" if reverse else str(at)
    return _function(emit, f"scan_{name}", values, words, result, lambda x, body: tt.Scan(x, at, body, reverse=reverse))


def _flat(emit: Emitter, value: Value) -> Value:
    """The elements in row-major order along one axis."""
    type_ = expect(value.type, TensorType)
    return emit.reshape(value, TensorType((type_.numel,), type_.element))


def _along(emit: Emitter, name: str, values: list[Value], along: int | None, keep: bool) -> list[Value]:
    """Reduce along an axis, or along all of them; keep the axis with size 1 when asked."""
    rank = len(shape_of(values[0].type))
    if along is None:
        results = _reduce(emit, name, [_flat(emit, value) for value in values], 0)
        return [emit.spread(result, (1,) * rank) for result in results] if keep else results
    at = axis(f"zg.{name}", along, rank)
    results = _reduce(emit, name, values, at)
    if not keep:
        return results
    return [emit.spread(x, (1,)) if rank == 1 else emit.add(tt.ExpandDims(x, at)) for x in results]


def _find(emit: Emitter, name: str, x: Operand, along: Any, keep: bool) -> list[Value]:
    """The largest or smallest element along an axis, and its index."""
    rank = len(shape_of(x.type))
    # Along all axes, the index counts elements in row-major order.
    value = _flat(emit, x.value) if along is None else x.value
    sizes = shape_of(value.type)
    at = 0 if along is None else axis(f"zg.{name}", along, rank)
    pair = [value, emit.spread(emit.indices(sizes, at), sizes)]
    pair_result = _along(emit, _place(name), pair, at, keep and along is not None)
    return [emit.spread(v, (1,) * rank) for v in pair_result] if keep and along is None else pair_result


def _operand(emit: Emitter, name: str, x: Operand, result: ScalarType) -> Value:
    """The tensor that a call reduces or scans, in the type in which it computes."""
    return emit.cast(x.value, computing(result, emit.language) if name in _TOTALS and result != i1 else result)


def _combine(name: str, emit: Emitter, result: Type, x: Operand, along: Any, keep: bool, _dtype: Any = None) -> Value:
    element = scalar_type(result)
    return emit.cast(_along(emit, name, [_operand(emit, name, x, element)], along, keep)[0], element)


def _best(
    name: str, emit: Emitter, result: Type, x: Operand, along: Any, with_index: bool, tie_left: bool, keep: bool
) -> Built:
    if with_index:
        return tuple(_find(emit, name, x, along, keep))
    return _combine(name, emit, result, x, along, keep)


def _best_index(name: str, emit: Emitter, result: Type, x: Operand, along: Any, _tie_left: bool, keep: bool) -> Value:
    return _find(emit, name, x, along, keep)[1]


def _by_function(
    apply: Callable[..., list[Value]], emit: Emitter, result: Type, x: Operand, along: Any, function: Any, flag: bool
) -> Built:
    """A reduction, whose flag keeps the axis, or a scan, whose flag reverses it, with a function of the kernel's."""
    is_tuple = isinstance(x.value, tuple)
    values: list[Value] = [part.value for part in split_operand(x)] if is_tuple else [x.value]
    results = apply(emit, function.symbol.rsplit(".", 1)[-1], values, along, flag)
    return tuple(results) if is_tuple else results[0]


def _run(name: str, emit: Emitter, result: Type, x: Operand, along: Any, reverse: bool, _dtype: Any = None) -> Value:
    element = scalar_type(result)
    return emit.cast(_scan(emit, name, [_operand(emit, name, x, element)], along, reverse)[0], element)


# Sorting, which is written in the language, and counting.


def _sorted(call: Typing, x: Type, dim: Any, *_options: Any) -> None:
    rank = number_tensor(call, x).rank
    if axis(call, -1 if dim is None else dim, rank) != rank - 1:
        raise call.value_error("the axis must be the last one; got axis {}", dim, hint=AXIS_LAST())


def _first(call: Typing, x: Type, k: Any, dim: Any, *_options: Any) -> None:
    _sorted(call, x, dim)
    size = number_tensor(call, x).shape[-1]
    if not is_power_of_two(k) or k > size:
        raise call.value_error("k must be a power of two up to {}; got {}", size, show(k))


def _counts(call: Typing, x: Type, bins: Any, mask: Type | None) -> Type:
    tensor = number_tensor(call, x)
    if not is_power_of_two(bins) or bins > MAX_ELEMENTS:
        raise call.value_error("'num_bins' must be a power of two up to {}; got {}", MAX_ELEMENTS, show(bins))
    if mask is not None and mask != TensorType(tensor.shape, i1):
        raise call.error("the mask must be {}; got {}", TensorType(tensor.shape, i1), mask)
    return call.op_type(lambda values: tt.Histogram(values[0], bins=bins), tensor)


def _histogram(emit: Emitter, result: Type, x: Operand, bins: int, mask: Operand | None) -> Value:
    return emit.add(tt.Histogram(x.value, None if mask is None else mask.value, bins=bins))


# Calls that share both halves of their rules.
_FAMILIES: list[tuple[Callable[..., Type], Builds, tuple[str, ...]]] = [
    (_combined, _combine, (*_TOTALS, *_DECISIONS, *_BITWISE)),
    (_extreme, _best, ("max", "min")),
    (_index, _best_index, ("argmax", "argmin")),
]
RULES = {
    **{name: Rule(type_of, partial(build, name)) for type_of, build, names in _FAMILIES for name in names},
    **{f"cum{name}": Rule(_running, partial(_run, name)) for name in (*_TOTALS, "max", "min")},
    "reduce": Rule(_reduced_by, partial(_by_function, _along)),
    "associative_scan": Rule(_scanned_by, partial(_by_function, _scan)),
    "sort": Rule(_sorted, body=LIBRARY["sort"]),
    "argsort": Rule(_sorted, body=LIBRARY["argsort"]),
    "topk": Rule(_first, body=LIBRARY["topk"]),
    "histogram": Rule(_counts, _histogram),
}
