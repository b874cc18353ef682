"""Builder methods of the calls that make and reshape tensors, and of dot."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ConstantType, ScalarType, TensorType, Type, element_of, shape_of, shaped
from ziggurat.transforms.attribution.promotion import common_shape
from ziggurat.transforms.attribution.shapes import ShapeTypes, checked_axis
from ziggurat.transforms.mirror.emit import Built, Emitter, Operand
from ziggurat.transforms.mirror.ordering import indices


class ShapeBuilder:
    """Creation, shapes, and dot."""

    emit: Emitter

    def arange(self, result: Type, start: int, end: int) -> Value:
        return self.emit.add(tt.MakeRange(start, end))

    def zeros(self, result: Type, shape: Any, dtype: Any) -> Value:
        return self.emit.constant(0, result)

    def full(self, result: Type, shape: Any, value: Operand, dtype: Any) -> Value:
        return self.emit.convert(value, result, dense=True)

    def expand(self, result: Type, x: Operand, axis: Any) -> Value:
        value = self._value(x, result)
        axes = (axis,) if isinstance(axis, int) else tuple(axis)
        rank = len(shape_of(result))
        if not shape_of(value.type):
            return self.emit.spread(value, shape_of(result))
        for one in sorted(checked_axis("expand", one, rank) for one in axes):
            value = self.emit.add(tt.ExpandDims(value, one))
        return value

    def _value(self, x: Operand, result: Type) -> Value:
        """The operand in the element type of the result, its shape unchanged."""
        element = element_of(result)
        if isinstance(x.type, ConstantType) and isinstance(element, ScalarType):
            return self.emit.convert(x, element)
        return x.value

    def broadcast(self, result: Type, x: Operand, other: Operand) -> Value:
        return self.emit.spread(self._value(x, result), shape_of(result))

    def reshape(self, result: Type, x: Operand, *_options: Any) -> Value:
        return self._reshaped(x.value, result)

    def ravel(self, result: Type, x: Operand, *_options: Any) -> Value:
        return self._reshaped(x.value, result)

    def _reshaped(self, value: Value, result: Type) -> Value:
        if value.type == result:
            return value
        if not isinstance(result, TensorType):
            # One element: a sum over it is the element itself.
            raise AssertionError("a tensor reshapes to a tensor")
        return self.emit.add(tt.Reshape(value, result))

    def trans(self, result: Type, x: Operand, dims: Any) -> Value:
        return self.emit.add(tt.Trans(x.value, ShapeTypes().permutation("trans", x.type, dims)))

    def permute(self, result: Type, x: Operand, dims: Any) -> Value:
        return self.emit.add(tt.Trans(x.value, ShapeTypes().permutation("permute", x.type, dims)))

    def join(self, result: Type, a: Operand, b: Operand) -> Value:
        assert isinstance(result, TensorType)
        half = shaped(result.shape[:-1], result.element)
        return self.emit.add(tt.Join(self.emit.convert(a, half), self.emit.convert(b, half)))

    def interleave(self, result: Type, a: Operand, b: Operand) -> Value:
        assert isinstance(result, TensorType)
        half = shaped(common_shape("zg.interleave", a.type, b.type), result.element)
        return self._reshaped(self.emit.add(tt.Join(self.emit.convert(a, half), self.emit.convert(b, half))), result)

    def flip(self, result: Type, x: Operand, dim: int) -> Value:
        shape = shape_of(result)
        axis = checked_axis("flip", dim, len(shape))
        if shape[axis] == 1:
            return x.value
        numbers = indices(self.emit, shape, axis)
        last = self.emit.constant(shape[axis] - 1, numbers.type)
        return self.emit.add(tt.Gather(x.value, self.emit.add(arith.SubI(last, numbers)), axis))

    def split(self, result: Type, x: Operand) -> Built:
        return self.emit.unpack(self.emit.add(tt.Split(x.value)), result)

    def cat(self, result: Type, a: Operand, b: Operand, *_options: Any) -> Value:
        assert isinstance(result, TensorType)
        half = TensorType(shape_of(a.type), result.element)
        return self.emit.add(tt.Cat(self.emit.convert(a, half), self.emit.convert(b, half)))

    def gather(self, result: Type, source: Operand, index: Operand, axis: int) -> Value:
        return self.emit.add(
            tt.Gather(source.value, index.value, checked_axis("gather", axis, len(shape_of(source.type))))
        )

    def dot(self, result: Type, a: Operand, b: Operand, acc: Operand | None, precision: Any = None) -> Value:
        c = self.emit.constant(0, result) if acc is None else acc.value
        mode = tt.InputPrecision.DEFAULT if precision is None else tt.InputPrecision(precision)
        return self.emit.add(tt.Dot(a.value, b.value, c, input_precision=mode))
