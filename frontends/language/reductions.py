"""Reductions and scans, sorting, counting and indexing."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstBool, ConstDtype, ConstFunction, ConstInt, Value
from ziggurat.frontends.language.signature import call

__all__ = [
    "all", "any", "argmax", "argmin", "argsort", "associative_scan", "cummax", "cummin", "cumprod", "cumsum", "gather",
    "histogram", "max", "min", "prod", "reduce", "reduce_or", "sort", "sum", "topk", "xor_sum",
]  # fmt: skip


@call("Reductions and scans")
def sum(x: Value, axis: ConstInt | None = None, keep_dims: ConstBool = False, dtype: ConstDtype | None = None) -> Value:
    """The sum along an axis.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last; None sums all elements.
    - `keep_dims`: leave the axis in the result, with size 1.
    - `dtype`: of the result, not i1. Without it i1 and integers under 32 bits give i32 (u32 where unsigned), others
      their own. Floats narrower than f32 are summed in f32 and rounded once.

    Result: `x` without the axis; a scalar where no axis is left.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans", results="return_indices")
def max(
    x: Value,
    axis: ConstInt | None = None,
    return_indices: ConstBool = False,
    return_indices_tie_break_left: ConstBool = True,
    keep_dims: ConstBool = False,
) -> Value:
    """The largest element along an axis. NaNs are ignored.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last; None takes all elements.
    - `return_indices`: give the i32 index of the element along the axis as well.
    - `return_indices_tie_break_left`: of equal elements take the first; otherwise any.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: `x` without the axis, in its dtype, or a tuple of that and the indices. NaN where all elements are.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans", results="return_indices")
def min(
    x: Value,
    axis: ConstInt | None = None,
    return_indices: ConstBool = False,
    return_indices_tie_break_left: ConstBool = True,
    keep_dims: ConstBool = False,
) -> Value:
    """The smallest element along an axis. NaNs are ignored.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last; None takes all elements.
    - `return_indices`: give the i32 index of the element along the axis as well.
    - `return_indices_tie_break_left`: of equal elements take the first; otherwise any.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: `x` without the axis, in its dtype, or a tuple of that and the indices. NaN where all elements are.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans")
def argmax(x: Value, axis: ConstInt | None, tie_break_left: ConstBool = True, keep_dims: ConstBool = False) -> Value:
    """The index of the largest element along an axis. NaNs are ignored.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last; None indexes all elements in row-major order.
    - `tie_break_left`: of equal elements take the first; otherwise any.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: i32, `x` without the axis.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans")
def argmin(x: Value, axis: ConstInt | None, tie_break_left: ConstBool = True, keep_dims: ConstBool = False) -> Value:
    """The index of the smallest element along an axis. NaNs are ignored.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last; None indexes all elements in row-major order.
    - `tie_break_left`: of equal elements take the first; otherwise any.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: i32, `x` without the axis.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans")
def xor_sum(x: Value, axis: ConstInt | None = None, keep_dims: ConstBool = False) -> Value:
    """The exclusive or of all elements along an axis.

    - `x`: a tensor of integers or i1.
    - `axis`: negative counts from the last; None takes all elements.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: `x` without the axis.
    Errors: floats or pointers; an axis out of range.
    """


@call("Reductions and scans")
def reduce_or(x: Value, axis: ConstInt | None = None, keep_dims: ConstBool = False) -> Value:
    """The bitwise or of all elements along an axis.

    - `x`: a tensor of integers or i1.
    - `axis`: negative counts from the last; None takes all elements.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: `x` without the axis.
    Errors: floats or pointers; an axis out of range.
    """


@call("Reductions and scans")
def any(x: Value, axis: ConstInt | None = None, keep_dims: ConstBool = False) -> Value:
    """True where at least one element along an axis is not zero. A NaN is not zero.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last; None takes all elements.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: i1, `x` without the axis.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans")
def all(x: Value, axis: ConstInt | None = None, keep_dims: ConstBool = False) -> Value:
    """True where no element along an axis is zero. A NaN is not zero.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last; None takes all elements.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: i1, `x` without the axis.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans")
def prod(
    x: Value, axis: ConstInt | None = None, keep_dims: ConstBool = False, dtype: ConstDtype | None = None
) -> Value:
    """The product along an axis.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last; None multiplies all elements.
    - `keep_dims`: leave the axis in the result, with size 1.
    - `dtype`: of the result, as for `sum`. Floats narrower than f32 are multiplied in f32 and rounded once.

    Result: `x` without the axis; a scalar where no axis is left.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans", results="x")
def reduce(x: Value, axis: ConstInt | None, combine_fn: ConstFunction, keep_dims: ConstBool = False) -> Value:
    """Combine the elements along an axis by a user's function.

    - `x`: a tensor, or a tuple of tensors of one shape, reduced together.
    - `axis`: negative counts from the last; None takes all elements.
    - `combine_fn`: a `@zg.function`. It takes one element of every tensor, then another of every tensor, as scalars,
      and gives as many. It must be associative and commutative, as the order of combination is not defined. A function
      that returns its first operands, or its second ones, gives the first or last elements along the axis.
    - `keep_dims`: leave the axis in the result, with size 1.

    Result: `x` without the axis; a tuple for a tuple.
    Errors: unequal shapes; a function that does not give the types that it takes.
    """


@call("Reductions and scans")
def cumsum(x: Value, axis: ConstInt = 0, reverse: ConstBool = False, dtype: ConstDtype | None = None) -> Value:
    """Each element plus all before it along an axis.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last.
    - `reverse`: plus all after it instead.
    - `dtype`: of the result, as for `sum`.

    Result: the shape of `x`, in the dtype that `sum` gives.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans")
def cumprod(x: Value, axis: ConstInt = 0, reverse: ConstBool = False, dtype: ConstDtype | None = None) -> Value:
    """Each element times all before it along an axis.

    - `x`: a tensor of numbers; i1 and integers under 32 bits are multiplied as i32 (u32 where unsigned), floats
      narrower than f32 in f32.
    - `axis`: negative counts from the last.
    - `reverse`: times all after it instead.
    - `dtype`: of the result, as for `sum`.

    Result: the shape of `x`, in the dtype that `sum` gives.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans")
def cummax(x: Value, axis: ConstInt = 0, reverse: ConstBool = False) -> Value:
    """The largest of each element and all before it along an axis. NaNs are ignored.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last.
    - `reverse`: and all after it instead.

    Result: as `x`; NaN up to the first number.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans")
def cummin(x: Value, axis: ConstInt = 0, reverse: ConstBool = False) -> Value:
    """The smallest of each element and all before it along an axis. NaNs are ignored.

    - `x`: a tensor of numbers.
    - `axis`: negative counts from the last.
    - `reverse`: and all after it instead.

    Result: as `x`; NaN up to the first number.
    Errors: an axis out of range; pointers.
    """


@call("Reductions and scans", results="x")
def associative_scan(x: Value, axis: ConstInt, combine_fn: ConstFunction, reverse: ConstBool = False) -> Value:
    """Each element combined with all before it along an axis, by a user's function.

    - `x`: a tensor, or a tuple of tensors of one shape, scanned together.
    - `axis`: negative counts from the last.
    - `combine_fn`: a `@zg.function` that is associative, with parameters as for `reduce`; the first half of them stands
      earlier in the scan. The order is kept.
    - `reverse`: go from the end.

    Result: as `x`.
    Errors: unequal shapes; a function that does not give the types that it takes.
    """


@call("Sorting and indexing")
def sort(x: Value, dim: ConstInt | None = None, descending: ConstBool = False) -> Value:
    """The elements in order along the last axis.

    A NaN counts as larger than all numbers, -0.0 as smaller than 0.0.

    - `x`: a tensor of numbers.
    - `dim`: the last axis, or None for it.
    - `descending`: the largest first.

    Result: as `x`.
    Errors: another axis than the last.
    """


@call("Sorting and indexing")
def argsort(x: Value, dim: ConstInt | None = None, descending: ConstBool = False) -> Value:
    """The indices by which the elements are in order along the last axis: `gather(x, argsort(x), -1)` is `sort(x)`.

    - `x`: a tensor of numbers.
    - `dim`: the last axis, or None for it.
    - `descending`: the largest first.

    Result: i32, in the shape of `x`. Equal elements keep their order, in either direction; NaNs are equal, -0.0 and
    0.0 are not, and stand where `sort` puts them.
    Errors: another axis than the last; pointers.
    """


@call("Sorting and indexing", results="return_indices")
def topk(
    x: Value, k: ConstInt, dim: ConstInt | None = None, descending: ConstBool = True, return_indices: ConstBool = False
) -> Value:
    """The first `k` elements of `x` in order along the last axis.

    A NaN counts as larger than all numbers, -0.0 as smaller than 0.0.

    - `x`: a tensor of numbers.
    - `k`: their number; a power of two, at most the size of the axis.
    - `dim`: the last axis, or None for it.
    - `descending`: the largest, the largest first; otherwise the smallest, the smallest first.
    - `return_indices`: give the i32 indices of the elements along the axis as well. Equal elements keep their
      order; -0.0 and 0.0 are not equal.

    Result: `x` with a last axis of size `k`, or a tuple of that and the indices.
    Errors: another axis than the last; a `k` that is too large or not a power of two.
    """


@call("Sorting and indexing")
def histogram(x: Value, num_bins: ConstInt, mask: Value = None) -> Value:
    """Count how often each of the numbers 0 to `num_bins` - 1 occurs. Other numbers do not count.

    - `x`: a tensor of one axis, of integers.
    - `num_bins`: a power of two.
    - `mask`: i1 of the shape of `x`; elements where it is false do not count.

    Result: a tensor of shape (num_bins,), i32.
    Errors: floats; more than one axis.
    """


@call("Sorting and indexing")
def gather(src: Value, index: Value, axis: ConstInt) -> Value:
    """Pick elements of `src` by their index along an axis, one for each element of `index`.

    - `src`: a tensor.
    - `index`: a tensor of integers, of the shape of `src` but for the axis; from 0 to the size of that axis - 1.
    - `axis`: negative counts from the last.

    Result: the shape of `index`, in the dtype of `src`. An index out of range is undefined.
    Errors: shapes that differ in another axis; an index of floats.
    """
