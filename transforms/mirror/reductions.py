"""Builder methods of reductions and scans.

As in the article's proof of concept, a reduction is a call of a function of the model (`reduce_sum_…`), in which a
`tt.reduce` applies the function that combines two elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import (
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    shape_of,
    shaped,
)
from ziggurat.transforms.attribution.attribution import Attribution, symbol_part
from ziggurat.transforms.attribution.promotion import scalar_type
from ziggurat.transforms.attribution.reductions import computing
from ziggurat.transforms.attribution.shapes import checked_axis
from ziggurat.transforms.mirror.emit import Built, Emitter, Operand, packed_type, split_operand
from ziggurat.transforms.mirror.ordering import indices, order_of, sorted_keys, take_first, to_keys, to_values


class Functions(Protocol):
    """What makes functions of the module on the way, each once."""

    def callee(self) -> Attribution:
        """The function that combines, of the op at hand."""
        ...

    def helper(
        self,
        symbol: str,
        source: str,
        types: Sequence[Type],
        result: Type,
        build: Callable[[Builder, Sequence[Value]], list[Value]],
    ) -> str:
        """Add a function with this body to the module, unless it is there; its symbol.

        That is `symbol`, numbered where another function has that name: one that is made from another `source`.
        """
        ...


class ReductionBuilder:
    """Combining along an axis."""

    emit: Emitter
    functions: Functions

    def _combine_body(self, builder: Builder, callee: Attribution, types: Sequence[Type], scan: bool) -> Any:
        """The body of a reduction: a call of the function that combines."""
        inner = builder.nested([*types, *types], packed_type(TupleType(tuple(types))))
        emit = Emitter(inner)
        wanted = types[0] if len(types) == 1 else TupleType(tuple(types))
        made = emit.call(callee.symbol, list(inner.parameters), callee.result)
        values = emit.repack(Operand(callee.result, made), wanted)
        emit.add(tt.ScanReturn(values) if scan else tt.ReduceReturn(values))
        return inner.finish()

    def _reduce(self, name: str, values: list[Value], axis: int) -> Built:
        """Call the function that reduces these tensors along the axis."""
        callee = self.functions.callee()
        tensors = [value.type for value in values]
        types = [element_of(type_) for type_ in tensors]
        shape = shape_of(tensors[0])
        rest = (*shape[:axis], *shape[axis + 1 :])
        parts = tuple(shaped(rest, element) for element in types if isinstance(element, ScalarType))
        result: Type = parts[0] if len(parts) == 1 else TupleType(parts)
        symbol = "_".join([f"reduce_{name}", *map(str, tensors), str(axis), symbol_part(result)])

        def build(builder: Builder, parameters: Sequence[Value]) -> list[Value]:
            body = self._combine_body(builder, callee, types, scan=False)
            emit = Emitter(builder)
            made = emit.unpack(emit.add(tt.Reduce(parameters, axis, body)), result)
            return emit.repack(Operand(result, made), result)

        symbol = self.functions.helper(symbol, callee.symbol, tensors, result, build)
        return self.emit.call(symbol, values, result)

    def _along(self, name: str, values: list[Value], axis: int | None, keep: bool) -> list[Value]:
        """Reduce along an axis, or along all of them; keep the axis with size 1 when asked."""
        shape = shape_of(values[0].type)
        if axis is None and len(shape) > 1:
            flat = [self.emit.add(tt.Reshape(v, TensorType((_count(shape),), _element(v)))) for v in values]
            made = self._reduce(name, flat, 0)
        else:
            at = 0 if axis is None else checked_axis(name, axis, len(shape))
            made = self._reduce(name, values, at)
        results: list[Any] = list(made) if isinstance(made, tuple) else [made]
        if not keep:
            return results
        if axis is None or len(shape) == 1:
            return [self.emit.spread(result, (1,) * len(shape)) for result in results]
        return [self.emit.add(tt.ExpandDims(result, checked_axis(name, axis, len(shape)))) for result in results]

    def sum(self, result: Type, x: Operand, axis: Any, keep_dims: bool, dtype: Any) -> Value:
        element = scalar_type(result)
        value = self.emit.cast(x.value, computing(element))
        return self.emit.cast(self._along("sum", [value], axis, keep_dims)[0], element)

    def prod(self, result: Type, x: Operand, axis: Any, keep_dims: bool, dtype: Any) -> Value:
        element = scalar_type(result)
        value = self.emit.cast(x.value, computing(element))
        return self.emit.cast(self._along("prod", [value], axis, keep_dims)[0], element)

    def reduce_or(self, result: Type, x: Operand, axis: Any, keep_dims: bool) -> Value:
        return self._along("reduce_or", [x.value], axis, keep_dims)[0]

    def any(self, result: Type, x: Operand, axis: Any, keep_dims: bool) -> Value:
        return self._along("any", [self.emit.nonzero(x.value)], axis, keep_dims)[0]

    def all(self, result: Type, x: Operand, axis: Any, keep_dims: bool) -> Value:
        return self._along("all", [self.emit.nonzero(x.value)], axis, keep_dims)[0]

    def xor_sum(self, result: Type, x: Operand, axis: Any, keep_dims: bool) -> Value:
        return self._along("xor_sum", [x.value], axis, keep_dims)[0]

    def _indices(self, type_: Type, axis: int) -> Value:
        """The index along the axis, in the shape of a tensor."""
        return indices(self.emit, shape_of(type_), axis)

    def _with_index(self, name: str, x: Operand, axis: Any, tie_left: bool, keep_dims: bool) -> list[Value]:
        value = x.value
        shape = shape_of(value.type)
        if axis is None and len(shape) > 1:
            # The index counts elements in row-major order.
            value = self.emit.add(tt.Reshape(value, TensorType((_count(shape),), _element(value))))
        rank = len(shape_of(value.type))
        at = 0 if axis is None else checked_axis(name, axis, rank)
        pair = [value, self._indices(value.type, at)]
        function = f"arg{name}{'' if tie_left else '_any'}"
        if axis is None and len(shape) > 1:
            made = self._along(function, pair, 0, False)
            return [self.emit.spread(v, (1,) * len(shape)) for v in made] if keep_dims else made
        return self._along(function, pair, at, keep_dims)

    def max(self, result: Type, x: Operand, axis: Any, indices: bool, tie_left: bool, keep_dims: bool) -> Built:
        if indices:
            return tuple(self._with_index("max", x, axis, tie_left, keep_dims))
        return self._along("max", [x.value], axis, keep_dims)[0]

    def min(self, result: Type, x: Operand, axis: Any, indices: bool, tie_left: bool, keep_dims: bool) -> Built:
        if indices:
            return tuple(self._with_index("min", x, axis, tie_left, keep_dims))
        return self._along("min", [x.value], axis, keep_dims)[0]

    def argmax(self, result: Type, x: Operand, axis: Any, tie_left: bool, keep_dims: bool) -> Value:
        return self._with_index("max", x, axis, tie_left, keep_dims)[1]

    def argmin(self, result: Type, x: Operand, axis: Any, tie_left: bool, keep_dims: bool) -> Value:
        return self._with_index("min", x, axis, tie_left, keep_dims)[1]

    def _tensors(self, x: Operand) -> list[Value]:
        return [part.value for part in split_operand(x)] if isinstance(x.value, tuple) else [x.value]

    def reduce(self, result: Type, x: Operand, axis: Any, function: Any, keep_dims: bool) -> Built:
        name = function.symbol.rsplit(".", 1)[-1]
        made = self._along(name, self._tensors(x), axis, keep_dims)
        return tuple(made) if isinstance(x.value, tuple) else made[0]

    # Scans.

    def _scan(self, name: str, values: list[Value], axis: int, reverse: bool) -> list[Value]:
        callee = self.functions.callee()
        tensors = [value.type for value in values]
        types = [element_of(type_) for type_ in tensors]
        at = checked_axis(name, axis, len(shape_of(tensors[0])))
        result: Type = tensors[0] if len(tensors) == 1 else TupleType(tuple(tensors))
        direction = ["reverse"] if reverse else []
        symbol = "_".join([f"scan_{name}", *map(str, tensors), str(at), *direction, symbol_part(result)])

        def build(builder: Builder, parameters: Sequence[Value]) -> list[Value]:
            body = self._combine_body(builder, callee, types, scan=True)
            emit = Emitter(builder)
            made = emit.unpack(emit.add(tt.Scan(parameters, at, body, reverse=reverse)), result)
            return emit.repack(Operand(result, made), result)

        symbol = self.functions.helper(symbol, callee.symbol, tensors, result, build)
        made = self.emit.call(symbol, values, result)
        parts = made if isinstance(made, tuple) else (made,)
        return [part for part in parts if isinstance(part, Value)]

    def associative_scan(self, result: Type, x: Operand, axis: Any, function: Any, reverse: bool) -> Built:
        name = function.symbol.rsplit(".", 1)[-1]
        made = self._scan(name, self._tensors(x), axis, reverse)
        return tuple(made) if isinstance(x.value, tuple) else made[0]

    def _cumulative(self, name: str, result: Type, x: Operand, axis: Any, reverse: bool) -> Value:
        element = scalar_type(result)
        value = self.emit.cast(x.value, computing(element))
        return self.emit.cast(self._scan(name, [value], axis, reverse)[0], element)

    def cumsum(self, result: Type, x: Operand, axis: Any, reverse: bool, dtype: Any = None) -> Value:
        return self._cumulative("sum", result, x, axis, reverse)

    def cumprod(self, result: Type, x: Operand, axis: Any, reverse: bool, dtype: Any = None) -> Value:
        return self._cumulative("prod", result, x, axis, reverse)

    def cummax(self, result: Type, x: Operand, axis: Any, reverse: bool) -> Value:
        return self._scan("max", [x.value], axis, reverse)[0]

    def cummin(self, result: Type, x: Operand, axis: Any, reverse: bool) -> Value:
        return self._scan("min", [x.value], axis, reverse)[0]

    # Sorting and counting.

    def argsort(self, result: Type, x: Operand, dim: Any, descending: bool) -> Value:
        source = x.value.type
        symbol = "_".join(["argsort", str(source), "descending" if descending else "ascending", str(result)])

        def build(builder: Builder, parameters: Sequence[Value]) -> list[Value]:
            emit = Emitter(builder)
            return [order_of(emit, to_keys(emit, parameters[0]), descending)]

        symbol = self.functions.helper(symbol, "argsort", [source], result, build)
        made = self.emit.call(symbol, [x.value], result)
        assert isinstance(made, Value)
        return made

    def sort(self, result: Type, x: Operand, dim: Any, descending: bool) -> Value:
        return self._ordered("sort", x.value, x.value.type, descending, None)

    def topk(self, result: Type, x: Operand, k: int, dim: Any, descending: bool = True) -> Value:
        return self._ordered("topk", x.value, result, descending, k)

    def _ordered(self, name: str, value: Value, result: Type, descending: bool, count: int | None) -> Value:
        direction = "descending" if descending else "ascending"
        symbol = "_".join([name, str(value.type), *([] if count is None else [str(count)]), direction, str(result)])

        def build(builder: Builder, parameters: Sequence[Value]) -> list[Value]:
            emit = Emitter(builder)
            keys = sorted_keys(emit, to_keys(emit, parameters[0]), descending)
            if count is not None:
                keys = take_first(emit, keys, count)
            return [to_values(emit, keys, scalar_type(result))]

        symbol = self.functions.helper(symbol, name, [value.type], result, build)
        made = self.emit.call(symbol, [value], result)
        assert isinstance(made, Value)
        return made

    def histogram(self, result: Type, x: Operand, bins: int, mask: Operand | None) -> Value:
        return self.emit.add(tt.Histogram(x.value, None if mask is None else mask.value, bins=bins))


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _element(value: Value) -> ScalarType:
    element = element_of(value.type)
    assert isinstance(element, ScalarType)
    return element
