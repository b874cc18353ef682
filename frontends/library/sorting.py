"""Sorting, written in the language.

It is a bitonic sort of integer keys along the last axis, of which the first ones may be kept. The last axis of size 2^n
is viewed as n axes of size 2, so that the partner in a compare-and-exchange is the other element along one axis: the
element xor the xor of both. Floats are sorted by integer keys of the same order, with every NaN last.

The stages of the network are a loop, so that the code of a sort grows with n·log n. All steps stand once in the loop,
and each stage skips those that it does not have. The first stages are unrolled: they have few steps, which the later
ones then never skip. All stages of small tensors are unrolled: their code is short, and a thread has too few elements
to make the branches cheap.
"""

# ruff: noqa: RUF005 (the language has no starred items)

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import i1, i8, i16, i32, i64
from ziggurat.frontends import language as zg
from ziggurat.frontends.reflection import function

MAX_LEVELS: Final = 20
MAX_UNROLLED: Final = 1024  # Elements of a tensor.
FIRST_STAGES: Final = 4


@function
def to_keys(x: Any) -> Any:
    """Integers that compare as the values do; bytes for i1."""
    if x.dtype == i1:
        return zg.cast(x, i8)
    if not x.dtype.is_float:
        return x
    width = x.dtype.bits
    key = i8 if width == 8 else i16 if width == 16 else i32 if width == 32 else i64
    # NaN is the one value that differs from itself.
    return zg.where(zg.not_equal(x, x), (1 << (width - 1)) - 1, flip_negative(zg.bitcast(x, key)))


@function
def flip_negative(bits: Any) -> Any:
    """All but the sign bit of negative numbers inverted: its own inverse."""
    top = bits.dtype.bits - 1
    return zg.xor(bits, zg.and_(zg.shr(bits, top), (1 << top) - 1))


@function
def to_values(keys: Any, dtype: zg.constexpr) -> Any:
    """The inverse of `to_keys`."""
    if dtype == i1:
        return zg.not_equal(keys, 0)
    return zg.bitcast(flip_negative(keys), dtype) if dtype.is_float else keys


@function
def order_of(keys: Any, count: zg.constexpr, descending: zg.constexpr) -> Any:
    """The first `count` indices, as i32, by which the keys are in order along the last axis. Equal keys stay in order.

    A key and its index are sorted together, as one number of 64 bits. Keys of 64 bits are ordered by their lower half,
    and then by their upper one: as equal ones stay in order, that is the order of the whole.
    """
    if descending:
        keys = zg.invert(keys)
    signed = keys.dtype.signed
    if keys.dtype.bits < 64:
        return order_of_halves(zg.cast(keys, i64), count, signed)
    first = order_of_halves(zg.cast(zg.and_(keys, (1 << 32) - 1), i64), keys.shape[-1], False)
    upper = zg.gather(zg.cast(zg.shr(keys, 32), i64), first, -1)
    return zg.gather(first, order_of_halves(upper, count, signed), -1)


@function
def order_of_halves(keys: Any, count: zg.constexpr, signed: zg.constexpr) -> Any:
    """The first `count` indices by which keys of 32 bits, given as i64, are in ascending order."""
    if not signed:
        keys = zg.sub(keys, 1 << 31)
    index = zg.arange(0, keys.shape[-1])
    return zg.cast(first_keys(zg.or_(zg.shl(keys, 32), index), count, False), i32)


@function
def first_keys(keys: Any, count: zg.constexpr, descending: zg.constexpr) -> Any:
    """The first `count` of the sorted keys along the last axis.

    Of two sorted runs of so many, one of them backwards, the lesser keys of each two are the first, and are sorted by
    the steps of one stage.
    """
    if keys.shape[-1] == 1:
        return keys
    if descending:
        keys = zg.invert(keys)
    if count == 1:
        least = zg.cast(zg.min(keys, -1, keep_dims=True), keys.dtype)
        return zg.invert(least) if descending else least
    cube, stages = (), 0
    for level in zg.static_range(MAX_LEVELS):
        if 1 << level < keys.shape[-1]:
            cube = cube + (2,)
        if 1 << level < count:
            stages = stages + 1
    values = zg.reshape(keys, split_sizes(keys, cube))
    first = len(keys.shape) - 1
    unrolled = stages if keys.numel <= MAX_UNROLLED else min(stages, FIRST_STAGES)
    for stage in zg.static_range(1, unrolled + 1):
        values = merge(values, stage, 1, first)
    if unrolled < stages:
        for stage in zg.range(unrolled + 1, stages + 1):
            values = merge(values, stage, unrolled, first)
    for _ in zg.static_range(len(cube) - stages):
        values = halved(values, len(values.shape) - 1 - stages, first)
    return zg.reshape(zg.invert(values) if descending else values, split_sizes(keys, (count,)))


@function
def halved(values: Any, axis: zg.constexpr, first: zg.constexpr) -> Any:
    """The first keys of each two runs, which lie side by side along the axis, as runs. Their directions alternate."""
    values = zg.cast(zg.min(inverted(values, axis), axis), values.dtype)
    if axis > first:
        values = inverted(values, axis - 1)
    for step in zg.static_range(axis, len(values.shape)):
        values = exchange(values, step)
    return values


@function
def merge(values: Any, stage: Any, least: zg.constexpr, first: zg.constexpr) -> Any:
    """The values after a stage, at least `least`: runs of 2^stage are sorted, each of two sorted runs.

    The axes from `first` on are sorted. The directions of runs alternate by the next bit of the index. Descending runs
    are inverted, and sorted in ascending order; those of the stage before are turned back. The last stage has one run.
    """
    for axis in zg.static_range(first, len(values.shape)):
        step = len(values.shape) - axis  # Stage n begins with step n. Step 1 compares neighbours.
        if step > least and zg.or_(zg.equal(step, stage), zg.equal(step, zg.add(stage, 1))):
            values = inverted(values, axis)
        if step <= least or step <= stage:
            values = exchange(values, axis)
    return values


@function
def split_sizes(x: Any, last: zg.constexpr) -> Any:
    """The sizes of all axes, with these in place of the last one."""
    sizes = ()
    for axis in zg.static_range(len(x.shape) - 1):
        sizes = sizes + (x.shape[axis],)
    return sizes + last


@function
def is_second(x: Any, axis: zg.constexpr) -> Any:
    """True of the second element along an axis of size 2, in the rank of `x`, to be broadcast."""
    sizes = (1,) * axis + (2,) + (1,) * (len(x.shape) - axis - 1)
    return zg.not_equal(zg.reshape(zg.arange(0, 2), sizes), 0)


@function
def inverted(x: Any, axis: zg.constexpr) -> Any:
    """The second elements along an axis with all bits inverted: ascending, they are in descending order by
    their own bits."""
    return zg.xor(x, zg.cast(zg.where(is_second(x, axis), -1, 0), x.dtype))


@function
def exchange(x: Any, axis: zg.constexpr) -> Any:
    """Compare each element with its partner along the axis and exchange them where they are out of order.

    The left element moves when it is greater, the right one when it is not. Equal keys may
    move: they have the same bits.
    """
    partner = zg.xor(x, zg.xor_sum(x, axis, keep_dims=True))
    return zg.where(zg.xor(zg.greater(x, partner), is_second(x, axis)), partner, x)


@function
def sort(x: Any, dim: zg.constexpr = None, descending: zg.constexpr = False) -> Any:
    """The keys are sorted."""
    return to_values(first_keys(to_keys(x), x.shape[-1], descending), x.dtype)


@function
def argsort(x: Any, dim: zg.constexpr = None, descending: zg.constexpr = False) -> Any:
    """The keys are sorted with their indices."""
    return order_of(to_keys(x), x.shape[-1], descending)


@function
def topk(
    x: Any,
    k: zg.constexpr,
    dim: zg.constexpr = None,
    descending: zg.constexpr = True,
    return_indices: zg.constexpr = False,
) -> Any:
    """Runs of `k` elements are sorted, and the first of each two runs taken."""
    if return_indices:
        keys = order_of(to_keys(x), k, descending)
        return zg.gather(x, keys, -1), keys
    return to_values(first_keys(to_keys(x), k, descending), x.dtype)
