"""The ops of the Triton dialect that make tensors and change their shapes: ranges, splats, transposes, gathers.

Programs take them from the module of the dialect, `tt.Splat`.
"""

from __future__ import annotations

from ziggurat.codemodel import traits
from ziggurat.codemodel.dialects.arith import axis_of, require_of, same_types, tensor_of
from ziggurat.codemodel.fields import attribute, operand, result_type
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    i1,
    i32,
    is_power_of_two,
    shape_of,
    shaped,
    with_element,
)

__all__ = [
    "Broadcast", "Cat", "ExpandDims", "Gather", "Histogram", "Join", "MakeRange", "Reshape", "Splat", "Split", "Trans"
]  # fmt: skip


class MakeRange(Op, traits.Pure, name="tt.make_range"):
    """The integers from `start` to `end` - 1, a power of two of them. Both bounds fit in i32."""

    start: int = attribute(int)
    end: int = attribute(int)

    def infer_type(self) -> Type:
        count, (low, high) = self.end - self.start, i32.limits
        require(
            low <= self.start and self.end <= high,
            f"the bounds of tt.make_range must fit in i32; got {self.start} and {self.end}",
        )
        require(is_power_of_two(count), f"tt.make_range must give a power of two of numbers; got {count}")
        return TensorType((count,), i32)


class Splat(Op, traits.Pure, name="tt.splat"):
    """A tensor whose every element is the operand."""

    value: Value = operand()
    type: Type = result_type(follows="value")

    def check(self) -> None:
        require(isinstance(self.type, TensorType), f"tt.splat must give a tensor; got {self.type}")
        require(self.value.type == element_of(self.type), f"tt.splat of {self.value.type} to {self.type}")


class Broadcast(Op, traits.Pure, name="tt.broadcast"):
    """Repeat the tensor along its axes of size 1."""

    value: Value = operand()
    type: Type = result_type(follows="value")

    def check(self) -> None:
        source = tensor_of(self, self.value)
        target = self.type
        good = (
            isinstance(target, TensorType)
            and target.element == source.element
            and target.rank == source.rank
            and all(a in (b, 1) for a, b in zip(source.shape, target.shape, strict=True))
        )
        require(good, f"tt.broadcast of {source} to {target}")


class ExpandDims(Op, traits.Pure, name="tt.expand_dims"):
    """Insert an axis of size 1."""

    value: Value = operand()
    axis: int = attribute(int, unnamed=True)

    def infer_type(self) -> Type:
        source = tensor_of(self, self.value)
        axis_of(self, self.axis, source.rank + 1)
        return TensorType((*source.shape[: self.axis], 1, *source.shape[self.axis :]), source.element, source.layout)


class Reshape(Op, traits.Pure, name="tt.reshape"):
    """The same elements in row-major order in another shape. With `allow_reorder` in any order."""

    value: Value = operand()
    type: Type = result_type(follows="value")
    allow_reorder: bool = attribute(bool, default=False)

    def check(self) -> None:
        source = tensor_of(self, self.value)
        target = self.type
        good = isinstance(target, TensorType) and target.element == source.element and target.numel == source.numel
        require(good, f"tt.reshape of {source} to {target}")


class Trans(Op, traits.Pure, name="tt.trans"):
    """Permute the axes: axis i of the result is axis `order[i]` of the operand."""

    value: Value = operand()
    order: tuple[int, ...] = attribute([int])

    def infer_type(self) -> Type:
        source = tensor_of(self, self.value)
        is_good = sorted(self.order) == list(range(source.rank))
        require_of(self, is_good, "{}: {} is not a permutation of the {} axes", list(self.order), source.rank)
        layout = None if source.layout is None else source.layout.transposed(source.shape, self.order)
        return TensorType(tuple(source.shape[axis] for axis in self.order), source.element, layout)


class Join(Op, traits.Pure, name="tt.join"):
    """Two tensors side by side along a new last axis of size 2."""

    lhs: Value = operand()
    rhs: Value = operand()

    def infer_type(self) -> Type:
        same_types(self, self.lhs, self.rhs)
        source = self.lhs.type
        assert isinstance(source, TensorType | ScalarType | PtrType)
        element = element_of(source)
        assert isinstance(element, ScalarType | PtrType)
        layout = source.layout.joined() if isinstance(source, TensorType) and source.layout is not None else None
        return TensorType((*shape_of(source), 2), element, layout)


class Split(Op, traits.Pure, name="tt.split"):
    """The two halves along the last axis, which has size 2, as a Tuple."""

    value: Value = operand()

    def infer_type(self) -> Type:
        source = tensor_of(self, self.value)
        is_good = source.shape[-1] == 2
        require_of(self, is_good, "{}: the operand must be {a_tensor} whose last axis has size 2; got {}", source)
        layout = None if source.layout is None else source.layout.split()
        require(source.layout is None or layout is not None, "tt.split takes both halves from the same thread")
        half = shaped(source.shape[:-1], source.element, layout)
        return TupleType((half, half))


class Cat(Op, traits.Pure, name="tt.cat"):
    """Two tensors one after the other along the first axis."""

    lhs: Value = operand()
    rhs: Value = operand()

    def infer_type(self) -> Type:
        source, other = tensor_of(self, self.lhs), tensor_of(self, self.rhs)
        shapes = (list(source.shape), list(other.shape))
        require_of(self, source.shape == other.shape, "{} takes two {tensors} of one shape, got {} and {}", *shapes)
        same_types(self, self.lhs, self.rhs)
        layout = source.layout
        if layout is not None:
            layout = Layout((*layout.registers, source.numel), layout.lanes, layout.warps)
        return TensorType((2 * source.shape[0], *source.shape[1:]), source.element, layout)


class Gather(Op, traits.Pure, name="tt.gather"):
    """For each element of `index`, the element of `source` at that index along `axis`. The result has the shape of
    `index`."""

    source: Value = operand()
    index: Value = operand()
    axis: int = attribute(int)

    def infer_type(self) -> Type:
        source, index = tensor_of(self, self.source), tensor_of(self, self.index)
        axis_of(self, self.axis, source.rank)
        element = index.element
        is_index = isinstance(element, ScalarType) and element.is_int
        require_of(self, is_index, "{}: the index must hold integers; got {}", index)
        shapes = f"{list(source.shape)} and {list(index.shape)}"
        is_good = source.rank == index.rank
        require_of(self, is_good, "{}: source and index must have equally many axes; got {}", shapes)
        others = all(a == b for i, (a, b) in enumerate(zip(source.shape, index.shape, strict=True)) if i != self.axis)
        require_of(self, others, "{}: the shapes {} differ along another axis than {}", shapes, self.axis)
        return TensorType(index.shape, source.element, index.layout)


class Histogram(Op, traits.Pure, name="tt.histogram"):
    """Counts of the numbers 0 … `bins` - 1 in a 1-D tensor of integers, as i32. Other numbers are not counted, nor are
    elements for which the mask is false."""

    value: Value = operand()
    mask: Value | None = operand(default=None)
    bins: int = attribute(int, kw_only=True)

    def infer_type(self) -> Type:
        source = tensor_of(self, self.value)
        element = source.element
        is_good = isinstance(element, ScalarType) and element.is_int and source.rank == 1
        require_of(self, is_good, "{}: the operand must be {a_tensor} of integers with one axis; got {}", source)
        if self.mask is not None:
            require(self.mask.type == with_element(source, i1), f"the mask of tt.histogram is {self.mask.type}")
        return TensorType((self.bins,), i32)
