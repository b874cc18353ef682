"""Type rules of the calls that make and reshape tensors, and of dot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    f16,
    f32,
    f64,
    i32,
    shape_of,
    shaped,
)
from ziggurat.transforms.attribution.promotion import (
    broadcast_shapes,
    common_shape,
    is_number,
    is_pointer,
    promote,
    require_fits,
    scalar_type,
)
from ziggurat.transforms.attribution.wording import describe, show

MAX_NUMEL = 1 << 20


def is_power_of_two(value: int) -> bool:
    """True of 1, 2, 4, 8 …"""
    return value > 0 and value & (value - 1) == 0


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """A shape given as a constant: powers of two, at most 2^20 elements."""
    dims: tuple[Any, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
    for dim in dims:
        if type(dim) is not int:
            raise KernelTypeError(f"zg.{name}: a shape is made of integers, got {show(dim)}")
        if not is_power_of_two(dim):
            raise KernelValueError(
                f"zg.{name}: the size {dim} in the shape {list(dims)} is not a power of two",
                hint=f"use {1 << max(0, dim - 1).bit_length()} (zg.next_power_of_2({dim})) and mask what is beyond"
                if dim > 0
                else None,
            )
    if math.prod(dims) > MAX_NUMEL:
        raise KernelValueError(f"zg.{name}: a tensor of shape {list(dims)} has more than {MAX_NUMEL} elements")
    return dims


def checked_axis(name: str, axis: int, rank: int) -> int:
    """An axis counted from 0; a negative one counts from the end."""
    if type(axis) is not int:
        raise KernelTypeError(f"zg.{name}: an axis is an integer, got {show(axis)}")
    if not -rank <= axis < rank:
        raise KernelValueError(f"zg.{name}: axis {axis} is not one of the {rank} axes")
    return axis % rank


class ShapeTypes:
    """Creation, shapes, and dot."""

    def _tensor(self, name: str, x: Type) -> TensorType:
        if not isinstance(x, TensorType):
            raise KernelTypeError(f"zg.{name} takes a tensor, got {describe(x)}")
        return x

    def arange(self, start: int, end: int) -> Type:
        for bound in (start, end):
            if type(bound) is not int:
                raise KernelTypeError(f"zg.arange takes integers, got {show(bound)}")
        count = end - start
        if not is_power_of_two(count):
            raise KernelValueError(
                f"zg.arange({start}, {end}) gives {count} numbers, which is not a power of two",
                hint=f"use zg.arange({start}, {start + (1 << (count - 1).bit_length())}) and mask what is beyond"
                if count > 0
                else "the end must be greater than the start",
            )
        if count > MAX_NUMEL:
            raise KernelValueError(
                f"zg.arange gives at most {MAX_NUMEL} numbers, not {count}",
                hint="use smaller blocks, and more programs",
            )
        return TensorType((count,), i32)

    def _dtype(self, name: str, dtype: Any) -> ScalarType:
        if not isinstance(dtype, ScalarType):
            raise KernelTypeError(f"zg.{name} takes a dtype such as zg.f32, got {show(dtype)}")
        return dtype

    def zeros(self, shape: Any, dtype: Any) -> Type:
        return shaped(checked_shape("zeros", shape), self._dtype("zeros", dtype))

    def full(self, shape: Any, value: Type, dtype: Any) -> Type:
        if not is_number(value) or shape_of(value):
            raise KernelTypeError(f"zg.full takes a scalar value, got {describe(value)}")
        target = self._dtype("full", dtype)
        if isinstance(value, ConstantType):
            require_fits(value.value, target)
        return shaped(checked_shape("full", shape), target)

    def expand(self, x: Type, axis: Any) -> Type:
        axes = (axis,) if isinstance(axis, int) else tuple(axis)
        shape = shape_of(x)
        rank = len(shape) + len(axes)
        dims = list(shape)
        places = sorted(checked_axis("expand", one, rank) for one in axes)
        if not places or len(set(places)) < len(places):
            raise KernelValueError(f"zg.expand: {show(axis)} does not name different axes")
        for one in places:
            dims.insert(one, 1)
        element = x.element if isinstance(x, TensorType) else None
        if element is None:
            element = x if isinstance(x, PtrType) else scalar_type(x)
        return TensorType(tuple(dims), element)

    def broadcast(self, x: Type, other: Type) -> Type:
        shape: Any = other.value if isinstance(other, ConstantType) else None
        if isinstance(shape, int | tuple):
            target = checked_shape("broadcast", cast(Any, shape))
        elif not isinstance(other, ConstantType) and (is_number(other) or is_pointer(other)):
            target = shape_of(other)
        else:
            raise KernelTypeError(f"zg.broadcast takes a shape or a tensor, got {describe(other)}")
        if broadcast_shapes(shape_of(x), target, "zg.broadcast") != target:
            raise KernelTypeError(f"zg.broadcast: the shape {list(shape_of(x))} does not broadcast to {list(target)}")
        return shaped(target, self._element(x))

    def _element(self, x: Type) -> ScalarType | PtrType:
        if isinstance(x, TensorType):
            return x.element
        return x if isinstance(x, PtrType) else scalar_type(x)

    def reshape(self, x: Type, shape: Any, *_options: Any) -> Type:
        source = self._tensor("reshape", x)
        dims = [shape] if isinstance(shape, int) else list(shape)
        if dims.count(-1) == 1:
            known = math.prod(dim for dim in dims if dim != -1)
            if known > 0:
                dims[dims.index(-1)] = source.numel // known
        target = checked_shape("reshape", dims)
        if math.prod(target) != source.numel:
            raise KernelTypeError(
                f"zg.reshape: {list(source.shape)} has {source.numel} elements, {list(target)} has {math.prod(target)}"
            )
        return shaped(target, source.element)

    def ravel(self, x: Type, *_options: Any) -> Type:
        source = self._tensor("ravel", x)
        return TensorType((source.numel,), source.element)

    def permutation(self, name: str, x: Type, dims: Sequence[Any]) -> tuple[int, ...]:
        """The order of axes that `trans` and `permute` are given: in a row, as a tuple, or (of trans) not at all."""
        source = self._tensor(name, x)
        order: tuple[Any, ...] = cast(Any, dims[0]) if len(dims) == 1 and isinstance(dims[0], tuple) else tuple(dims)
        if not order and name == "trans":
            if source.rank < 2:
                raise KernelTypeError(f"zg.trans takes a tensor of at least two axes, got {source}")
            order = (*range(source.rank - 2), source.rank - 1, source.rank - 2)
        if not all(type(axis) is int for axis in order) or sorted(order) != list(range(source.rank)):
            raise KernelValueError(f"zg.{name}: {list(order)} is not a permutation of the {source.rank} axes")
        return order

    def trans(self, x: Type, dims: Sequence[Any]) -> Type:
        order = self.permutation("trans", x, dims)
        return TensorType(tuple(shape_of(x)[axis] for axis in order), self._element(x))

    def permute(self, x: Type, dims: Sequence[Any]) -> Type:
        order = self.permutation("permute", x, dims)
        return TensorType(tuple(shape_of(x)[axis] for axis in order), self._element(x))

    def join(self, a: Type, b: Type) -> Type:
        if is_pointer(a) and a == b:
            return TensorType((*shape_of(a), 2), self._element(a))
        if isinstance(a, ConstantType) and isinstance(b, ConstantType):
            raise KernelTypeError("zg.join takes tensors, got two constants")
        return TensorType((*common_shape("zg.join", a, b), 2), promote(a, b))

    def interleave(self, a: Type, b: Type) -> Type:
        if not (is_pointer(a) and a == b):
            for part in (a, b):
                if not is_number(part):
                    raise KernelTypeError(f"zg.interleave takes numbers, or pointers of one type, got {describe(part)}")
            if isinstance(a, ConstantType) and isinstance(b, ConstantType):
                raise KernelTypeError("zg.interleave takes tensors, got two constants")
        element = self._element(a) if is_pointer(a) else promote(a, b)
        shape = common_shape("zg.interleave", a, b) or (1,)
        return TensorType(checked_shape("interleave", (*shape[:-1], 2 * shape[-1])), element)

    def flip(self, x: Type, dim: Any) -> Type:
        source = self._tensor("flip", x)
        checked_axis("flip", dim, source.rank)
        return source

    def split(self, x: Type) -> Type:
        source = self._tensor("split", x)
        if source.shape[-1] != 2:
            raise KernelTypeError(f"zg.split takes a tensor whose last axis has size 2, got {source}")
        half = shaped(source.shape[:-1], source.element)
        return TupleType((half, half))

    def cat(self, a: Type, b: Type, *_options: Any) -> Type:
        x, y = self._tensor("cat", a), self._tensor("cat", b)
        if x.shape != y.shape:
            raise KernelTypeError(f"zg.cat takes two tensors of one shape, got {list(x.shape)} and {list(y.shape)}")
        checked_shape("cat", (2 * x.shape[0], *x.shape[1:]))
        element = x.element if x == y else promote(x, y)
        return TensorType((2 * x.shape[0], *x.shape[1:]), element)

    def gather(self, source: Type, index: Type, axis: int) -> Type:
        x, i = self._tensor("gather", source), self._tensor("gather", index)
        if not is_number(i) or not scalar_type(i).is_int:
            raise KernelTypeError(f"zg.gather: the index holds integers, got {i}")
        if x.rank != i.rank:
            raise KernelTypeError(
                f"zg.gather: source and index have as many axes, got {list(x.shape)} and {list(i.shape)}"
            )
        at = checked_axis("gather", axis, x.rank)
        if any(a != b for n, (a, b) in enumerate(zip(x.shape, i.shape, strict=True)) if n != at):
            raise KernelTypeError(
                f"zg.gather: the shapes {list(x.shape)} and {list(i.shape)} differ along another axis than {at}"
            )
        return TensorType(i.shape, x.element)

    def dot(self, a: Type, b: Type, acc: Type | None, precision: Any = None, *_options: Any) -> Type:
        x, y = self._tensor("dot", a), self._tensor("dot", b)
        if x.rank != y.rank or x.rank not in (2, 3) or x.shape[:-2] != y.shape[:-2]:
            raise KernelTypeError(f"zg.dot takes two matrices (or two equal batches of them), got {x} and {y}")
        if x.shape[-1] != y.shape[-2]:
            raise KernelTypeError(
                f"zg.dot: the inner sizes differ: {list(x.shape)} has {x.shape[-1]} columns, {list(y.shape)} has "
                f"{y.shape[-2]} rows",
                hint="zg.trans exchanges rows and columns",
            )
        left, right = x.element, y.element
        if not isinstance(left, ScalarType) or not isinstance(right, ScalarType):
            raise KernelTypeError(f"zg.dot takes numbers, got {x} and {y}")
        if left != right:
            mixed = "mixed 8-bit floats" if left.is_fp8 and right.is_fp8 else "different element types"
            raise KernelTypeError(f"zg.dot of {mixed}: {left} and {right}", hint="cast one of them with zg.cast")
        if left.is_int and left.bits != 8:
            raise KernelTypeError(
                f"zg.dot of integers takes i8 or u8, got {left}", hint="cast the operands to a float type"
            )
        if precision is not None and precision not in ("tf32", "tf32x3", "ieee"):
            raise KernelValueError(f"input_precision is 'tf32', 'tf32x3' or 'ieee', not {show(precision)}")
        element = i32 if left.is_int else f64 if left == f64 else f32
        shape = (*x.shape[:-1], y.shape[-1])
        if acc is None:
            return TensorType(shape, element)
        if not isinstance(acc, TensorType) or acc.shape != shape:
            raise KernelTypeError(f"zg.dot: the accumulator has the shape {list(shape)}, got {describe(acc)}")
        allowed = (element, f16) if element == f32 and left.bits <= 16 else (element,)
        if acc.element not in allowed:
            raise KernelTypeError(
                f"zg.dot of {left} accumulates in {' or '.join(map(str, allowed))}, got {acc}",
                hint=f"zg.zeros({show(shape)}, zg.{element})",
            )
        return acc
