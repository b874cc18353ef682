"""New tensors, and changes of shape."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import (
    ConstBool,
    ConstDtype,
    ConstInt,
    ConstInts,
    ConstShape,
    ShapeOrValue,
    Value,
)
from ziggurat.frontends.language.signature import call

__all__ = [
    "arange", "broadcast", "cat", "expand", "flip", "full", "interleave", "join", "permute", "ravel", "reshape",
    "split", "squeeze", "trans", "unsqueeze", "zeros",
]  # fmt: skip


@call("Creation")
def arange(start: ConstInt, end: ConstInt) -> Value:
    """The integers from `start` to `end` - 1.

    - `start`, `end`: their difference is a power of two; `start` itself may be any number of i32.

    Result: a tensor of shape (end - start,), i32.
    Errors: a length that is not a power of two; a bound that does not fit in i32.
    """


@call("Creation")
def zeros(shape: ConstShape, dtype: ConstDtype) -> Value:
    """A tensor of zeros.

    - `shape`: a tuple of powers of two.
    - `dtype`: of the elements.

    Result: a tensor of this shape and dtype.
    """


@call("Creation")
def full(shape: ConstShape, value: Value, dtype: ConstDtype) -> Value:
    """A tensor whose every element is one value.

    - `shape`: a tuple of powers of two.
    - `value`: a scalar; it is cast to `dtype`.
    - `dtype`: of the elements.

    Result: a tensor of this shape and dtype.
    Errors: a `value` that is a tensor; a literal that does not fit an integer `dtype`.
    """


@call("Shape")
def expand(x: Value, axis: ConstInts) -> Value:
    """Insert axes of size 1.

    - `x`: a scalar or a tensor.
    - `axis`: its place in the result, or a tuple of places; negative counts from the end of the result.

    Result: a tensor with these axes more; `expand(x, 0)` of shape (n,) has the shape (1, n).
    Errors: an axis out of range, or named twice.
    """


@call("Shape")
def broadcast(x: Value, shape: ShapeOrValue) -> Value:
    """Repeat the elements to fill a shape.

    - `x`: a scalar or a tensor; a shorter shape is padded with ones on the left, and axes of size 1 are repeated.
    - `shape`: a tuple, or a value whose shape is meant; () is the shape of a scalar.

    Result: a tensor of that shape, in the dtype of `x`; `x` itself where it has that shape.
    Errors: a shape that `x` does not fit.
    """


@call("Shape")
def reshape(x: Value, shape: ConstShape) -> Value:
    """The same elements, in row-major order, in another shape.

    - `x`: a tensor; for the shape () also a scalar, which is the result.
    - `shape`: a tuple of powers of two with as many elements in all; () for the only element of a tensor that has one.

    Result: a tensor of that shape; a scalar for the shape ().
    Errors: another number of elements.
    """


@call("Shape")
def ravel(x: Value) -> Value:
    """The same elements, in row-major order, along one axis.

    - `x`: a tensor.

    Result: a tensor of one axis.
    """


@call("Shape")
def trans(x: Value, *dims: ConstInts) -> Value:
    """Exchange the last two axes, or put the axes in a given order.

    - `x`: a tensor of at least two axes.
    - `dims`: none, or a permutation of the axes, as for `permute`.

    Result: a tensor of the permuted shape.
    Errors: `dims` that are not a permutation; fewer than two axes.
    """


@call("Shape")
def permute(x: Value, *dims: ConstInts) -> Value:
    """Put the axes in a given order.

    - `x`: a tensor.
    - `dims`: for each axis of the result the axis of `x`; separate numbers or one tuple.

    Result: a tensor whose axis i has the size of axis `dims[i]` of `x`.
    Errors: `dims` that are not a permutation of the axes.
    """


@call("Shape")
def join(a: Value, b: Value) -> Value:
    """Two values side by side along a new last axis.

    - `a`, `b`: scalars or tensors; they are broadcast and promoted to one type.

    Result: a tensor with a last axis of size 2 more.
    Errors: shapes that do not broadcast.
    """


@call("Shape")
def interleave(a: Value, b: Value) -> Value:
    """Alternate the elements of two tensors along the last axis: `a[0], b[0], a[1], b[1] …`.

    - `a`, `b`: numbers, or pointers of one type; they are broadcast to one shape and promoted.

    Result: the last axis is twice as long; scalars give two elements.
    Errors: shapes that do not broadcast; two constants.
    """


@call("Shape")
def flip(x: Value, dim: ConstInt | None = None) -> Value:
    """The elements along an axis in the opposite order.

    - `x`: a tensor.
    - `dim`: the axis; negative counts from the last, and None is the last.

    Result: as `x`.
    Errors: an axis that `x` does not have.
    """


@call("Shape")
def squeeze(x: Value, dim: ConstInt) -> Value:
    """The same elements without an axis of size 1.

    - `x`: a tensor.
    - `dim`: the axis; negative counts from the last.

    Result: a tensor with an axis less; a scalar for the shape (1,).
    Errors: an axis of another size.
    """


@call("Shape")
def unsqueeze(x: Value, dim: ConstInt) -> Value:
    """The same elements with an axis of size 1 more: `expand(x, dim)`.

    - `x`: a scalar or a tensor.
    - `dim`: the place of the axis in the result; negative counts from the end of the result.

    Result: a tensor with an axis more.
    Errors: an axis out of range.
    """


@call("Shape", results=2)
def split(x: Value) -> Value:
    """The two halves along a last axis of size 2; undoes `join`.

    - `x`: a tensor whose last axis has size 2.

    Result: a tuple of two tensors without that axis; of scalars for the shape (2,).
    Errors: a last axis of another size.
    """


@call("Shape")
def cat(a: Value, b: Value, can_reorder: ConstBool = False) -> Value:
    """Two tensors concatenated along the first axis.

    - `a`, `b`: tensors of one shape; they are promoted to one dtype.
    - `can_reorder`: accepted for Triton's sake; the order is kept in either case.

    Result: a tensor with the first axis twice as long.
    Errors: unequal shapes; scalars.
    """
