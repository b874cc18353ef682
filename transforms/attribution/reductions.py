"""Type rules of reductions, scans, sorting and histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    ScalarType,
    TensorType,
    TupleType,
    Type,
    f32,
    i1,
    i32,
    shaped,
    u32,
    with_element,
)
from ziggurat.transforms.attribution.function_name import FunctionName
from ziggurat.transforms.attribution.lattice import components
from ziggurat.transforms.attribution.promotion import is_number, scalar_type
from ziggurat.transforms.attribution.shapes import MAX_NUMEL, checked_axis, is_power_of_two
from ziggurat.transforms.attribution.wording import describe, show


class Combiner(Protocol):
    """What attributes a function that combines elements, and remembers it for the op at hand."""

    def combine(self, function: FunctionName | str, types: Sequence[Type], what: str) -> None:
        """Attribute `function` (a symbol, or the name of a library function) at two of each of `types`; it must give
        one of each. Raises `KernelTypeError` otherwise."""


def accumulator(element: ScalarType) -> ScalarType:
    """The type in which sums and products of an element type are given: small integers widen to 32 bits."""
    if element.is_float or element.bits >= 32:
        return element
    return i32 if element.signed or element == i1 else u32


def computing(element: ScalarType) -> ScalarType:
    """The type in which sums of an element type are computed: small floats in f32."""
    return f32 if element.is_float and element.bits < 32 else accumulator(element)


class ReductionTypes:
    """Combining along an axis."""

    combiner: Combiner

    def _tensors(self, name: str, x: Type) -> list[TensorType]:
        parts: Sequence[Type] = [x] if isinstance(x, TensorType) else components(x) or ()
        tensors = [part for part in parts if isinstance(part, TensorType)]
        if not tensors or len(tensors) != len(parts):
            raise KernelTypeError(f"zg.{name} takes a tensor, or a tuple of tensors, got {describe(x)}")
        for tensor in tensors:
            if tensor.shape != tensors[0].shape:
                raise KernelTypeError(
                    f"zg.{name} takes tensors of one shape, got {list(tensors[0].shape)} and {list(tensor.shape)}"
                )
        return tensors

    def _numbers_of(self, name: str, x: Type) -> TensorType:
        if not isinstance(x, TensorType) or not is_number(x):
            raise KernelTypeError(f"zg.{name} takes a tensor of numbers, got {describe(x)}")
        return x

    def _reduced(self, name: str, tensor: TensorType, axis: int | None, keep: bool, element: Any) -> Type:
        if axis is None:
            return shaped((1,) * tensor.rank if keep else (), element)
        at = checked_axis(name, axis, tensor.rank)
        middle = (1,) if keep else ()
        return shaped((*tensor.shape[:at], *middle, *tensor.shape[at + 1 :]), element)

    def _reduction(
        self, name: str, x: Type, axis: int | None, keep: bool, element: Callable[[ScalarType], ScalarType]
    ) -> Type:
        tensor = self._numbers_of(name, x)
        result = element(scalar_type(tensor))
        inner = computing(result) if name in ("sum", "prod") else result
        self.combiner.combine(name, [inner], f"zg.{name}")
        return self._reduced(name, tensor, axis, keep, result)

    def _accumulated(self, name: str, x: Type, axis: Any, keep_dims: bool, dtype: Any) -> Type:
        if dtype is not None and not isinstance(dtype, ScalarType):
            raise KernelTypeError(f"zg.{name}: dtype is a dtype such as zg.f32, got {show(dtype)}")
        return self._reduction(name, x, axis, keep_dims, lambda e: dtype if dtype is not None else accumulator(e))

    def sum(self, x: Type, axis: Any, keep_dims: bool, dtype: Any) -> Type:
        return self._accumulated("sum", x, axis, keep_dims, dtype)

    def prod(self, x: Type, axis: Any, keep_dims: bool, dtype: Any) -> Type:
        return self._accumulated("prod", x, axis, keep_dims, dtype)

    def _bitwise(self, name: str, x: Type, axis: Any, keep_dims: bool) -> Type:
        if is_number(x) and scalar_type(x).is_float:
            raise KernelTypeError(f"zg.{name} takes integers, got {describe(x)}")
        return self._reduction(name, x, axis, keep_dims, lambda e: e)

    def xor_sum(self, x: Type, axis: Any, keep_dims: bool) -> Type:
        return self._bitwise("xor_sum", x, axis, keep_dims)

    def reduce_or(self, x: Type, axis: Any, keep_dims: bool) -> Type:
        return self._bitwise("reduce_or", x, axis, keep_dims)

    def any(self, x: Type, axis: Any, keep_dims: bool) -> Type:
        return self._reduction("any", x, axis, keep_dims, lambda _: i1)

    def all(self, x: Type, axis: Any, keep_dims: bool) -> Type:
        return self._reduction("all", x, axis, keep_dims, lambda _: i1)

    def _extreme(self, name: str, x: Type, axis: Any, indices: bool, tie_left: bool, keep_dims: bool) -> Type:
        if not indices:
            return self._reduction(name, x, axis, keep_dims, lambda e: e)
        tensor = self._numbers_of(name, x)
        at = self._index_axis(name, tensor, axis)
        function = f"arg{name}{'' if tie_left else '_any'}"
        self.combiner.combine(function, [tensor.element, i32], f"zg.{name}")
        value = self._reduced(name, tensor, at, keep_dims, tensor.element)
        return TupleType((value, with_element(value, i32)))

    def _index_axis(self, name: str, tensor: TensorType, axis: Any) -> int | None:
        if axis is None and tensor.rank == 1:
            return 0
        return axis

    def max(self, x: Type, axis: Any, indices: bool, tie_left: bool, keep_dims: bool) -> Type:
        return self._extreme("max", x, axis, indices, tie_left, keep_dims)

    def min(self, x: Type, axis: Any, indices: bool, tie_left: bool, keep_dims: bool) -> Type:
        return self._extreme("min", x, axis, indices, tie_left, keep_dims)

    def argmax(self, x: Type, axis: Any, tie_left: bool, keep_dims: bool) -> Type:
        both = self._extreme("max", x, axis, True, tie_left, keep_dims)
        assert isinstance(both, TupleType)
        return both.components[1]

    def argmin(self, x: Type, axis: Any, tie_left: bool, keep_dims: bool) -> Type:
        both = self._extreme("min", x, axis, True, tie_left, keep_dims)
        assert isinstance(both, TupleType)
        return both.components[1]

    def _function(self, name: str, function: Any) -> FunctionName:
        if not isinstance(function, FunctionName):
            raise KernelTypeError(
                f"zg.{name} combines with a function of the language, got {show(function)}",
                hint="decorate the function with @zg.function",
            )
        return function

    def reduce(self, x: Type, axis: Any, function: Any, keep_dims: bool) -> Type:
        tensors = self._tensors("reduce", x)
        self.combiner.combine(self._function("reduce", function), [t.element for t in tensors], "zg.reduce")
        parts = tuple(self._reduced("reduce", t, axis, keep_dims, t.element) for t in tensors)
        return parts[0] if isinstance(x, TensorType) else TupleType(parts)

    def associative_scan(self, x: Type, axis: Any, function: Any, _reverse: bool) -> Type:
        tensors = self._tensors("associative_scan", x)
        checked_axis("associative_scan", axis, tensors[0].rank)
        self.combiner.combine(
            self._function("associative_scan", function), [t.element for t in tensors], "zg.associative_scan"
        )
        return x if isinstance(x, TensorType) else TupleType(tuple(tensors))

    def _cumulative(self, name: str, x: Type, axis: Any, dtype: Any) -> Type:
        tensor = self._numbers_of(name, x)
        checked_axis(name, axis, tensor.rank)
        if dtype is not None and not isinstance(dtype, ScalarType):
            raise KernelTypeError(f"zg.{name}: dtype is a dtype such as zg.f32, got {show(dtype)}")
        element = dtype if dtype is not None else accumulator(scalar_type(tensor))
        self.combiner.combine("sum" if name == "cumsum" else "prod", [computing(element)], f"zg.{name}")
        return TensorType(tensor.shape, element)

    def cumsum(self, x: Type, axis: Any, _reverse: bool, dtype: Any = None) -> Type:
        return self._cumulative("cumsum", x, axis, dtype)

    def cumprod(self, x: Type, axis: Any, _reverse: bool, dtype: Any = None) -> Type:
        return self._cumulative("cumprod", x, axis, dtype)

    def _running_extreme(self, name: str, x: Type, axis: Any) -> Type:
        tensor = self._numbers_of(name, x)
        checked_axis(name, axis, tensor.rank)
        self.combiner.combine(name, [tensor.element], f"zg.{name}")
        return tensor

    def cummax(self, x: Type, axis: Any, _reverse: bool) -> Type:
        return self._running_extreme("cummax", x, axis)

    def cummin(self, x: Type, axis: Any, _reverse: bool) -> Type:
        return self._running_extreme("cummin", x, axis)

    def _last_axis(self, name: str, x: Type, dim: Any) -> TensorType:
        tensor = self._numbers_of(name, x)
        if checked_axis(name, -1 if dim is None else dim, tensor.rank) != tensor.rank - 1:
            raise KernelValueError(
                f"zg.{name} works along the last axis, not along axis {dim}", hint="zg.trans moves an axis to the end"
            )
        return tensor

    def sort(self, x: Type, dim: Any, descending: Any) -> Type:
        if type(descending) is not bool:
            raise KernelTypeError(f"zg.sort: descending is True or False, got {show(descending)}")
        return self._last_axis("sort", x, dim)

    def argsort(self, x: Type, dim: Any, _descending: bool) -> Type:
        return TensorType(self._last_axis("argsort", x, dim).shape, i32)

    def topk(self, x: Type, k: Any, dim: Any, _descending: Any = True) -> Type:
        tensor = self._last_axis("topk", x, dim)
        if type(k) is not int or not is_power_of_two(k) or k > tensor.shape[-1]:
            raise KernelValueError(f"zg.topk: k is a power of two up to {tensor.shape[-1]}, got {show(k)}")
        return TensorType((*tensor.shape[:-1], k), tensor.element)

    def histogram(self, x: Type, bins: Any, mask: Type | None) -> Type:
        tensor = self._numbers_of("histogram", x)
        if scalar_type(tensor).is_float or tensor.rank != 1:
            raise KernelTypeError(f"zg.histogram takes a tensor of integers with one axis, got {tensor}")
        if not is_power_of_two(bins) or bins > MAX_NUMEL:
            raise KernelValueError(
                f"zg.histogram: the number of bins is a power of two up to {MAX_NUMEL}, got {show(bins)}"
            )
        if mask is not None and mask != TensorType(tensor.shape, i1):
            raise KernelTypeError(f"zg.histogram: the mask is {TensorType(tensor.shape, i1)}, got {describe(mask)}")
        return TensorType((bins,), i32)
