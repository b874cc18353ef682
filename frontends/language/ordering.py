"""Sorting, counting and indexing."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstBool, ConstInt, Value
from ziggurat.frontends.language.signature import call

__all__ = ["argsort", "gather", "histogram", "sort", "topk"]


@call("Sorting and indexing")
def sort(x: Value, dim: ConstInt | None = None, descending: ConstBool = False) -> Value:
    """The elements in order along the last axis. A NaN counts as larger than all numbers.

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

    Result: i32, in the shape of `x`. Of equal elements the first one is first, in either direction; NaNs are equal, and
    stand where `sort` puts them.
    Errors: another axis than the last; pointers.
    """


@call("Sorting and indexing", results="return_indices")
def topk(
    x: Value,
    k: ConstInt,
    dim: ConstInt | None = None,
    descending: ConstBool = True,
    return_indices: ConstBool = False,
) -> Value:
    """The first `k` elements of `x` in order along the last axis. A NaN counts as larger than all numbers.

    - `x`: a tensor of numbers.
    - `k`: their number; a power of two, at most the size of the axis.
    - `dim`: the last axis, or None for it.
    - `descending`: the largest, the largest first; otherwise the smallest, the smallest first.
    - `return_indices`: give the i32 indices of the elements along the axis as well. Of equal elements the first one is
      first.

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
