"""Loads and stores, atomics, signals, and tensor descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ziggurat.frontends.language.kinds import ConstBool, ConstDtype, ConstInts, ConstShape, ConstStr, Value, Values
from ziggurat.frontends.language.signature import call

__all__ = [
    "advance", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or", "atomic_xchg",
    "atomic_xor", "fence", "gather_tensor_descriptor", "load", "load_tensor_descriptor", "make_block_ptr",
    "make_tensor_descriptor", "peer", "reduce_tensor_descriptor", "scatter_tensor_descriptor", "signal", "store",
    "store_tensor_descriptor", "wait",
]  # fmt: skip


@call("Memory")
def load(
    ptr: Value,
    mask: Value = None,
    other: Value = None,
    cache_modifier: ConstStr = "",
    eviction_policy: ConstStr = "",
    volatile: ConstBool = False,
    boundary_check: ConstInts = (),
    padding_option: ConstStr = "",
    sem: ConstStr | None = None,
    scope: ConstStr | None = None,
) -> Value:
    """Read memory.

    - `ptr`: a pointer, a tensor of pointers, or a block pointer, which takes no mask.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false nothing is read.
    - `other`: the elements where the mask is false, broadcast, cast to the dtype pointed to. Without it they are not
      defined.
    - `cache_modifier`: "", ".ca", ".cg", ".cs" or ".cv", as in PTX.
    - `eviction_policy`: "", "evict_normal", "evict_first" or "evict_last".
    - `volatile`: read memory each time, never a cached value.
    - `boundary_check`: the axes along which a block may reach beyond its tensor; of a block pointer.
    - `padding_option`: "zero" (as "") or, of floats, "nan": the elements beyond the tensor along these axes.
    - `sem`: "relaxed" or "acquire" for elements that other programs or devices write meanwhile: numbers of 16, 32 or 64
      bits, each read once, by one thread. After an acquire the program sees what was written before the release.
    - `scope`: "cta", "gpu" (the default) or "sys", with `sem`: those that may write meanwhile.

    Result: the shape of `ptr`, in the dtype pointed to.
    Errors: no pointer; a mask that is not i1 or does not broadcast; `other` without a mask; an axis that the block does
    not have.
    """


@call("Memory")
def store(
    ptr: Value,
    value: Value,
    mask: Value = None,
    cache_modifier: ConstStr = "",
    eviction_policy: ConstStr = "",
    boundary_check: ConstInts = (),
    sem: ConstStr | None = None,
    scope: ConstStr | None = None,
) -> None:
    """Write memory.

    - `ptr`: a pointer, a tensor of pointers of the full shape (it is not broadcast), or a block pointer, which takes no
      mask.
    - `value`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false nothing is written.
    - `cache_modifier`: "", ".wb", ".cg", ".cs" or ".wt", as in PTX.
    - `eviction_policy`: "", "evict_normal", "evict_first" or "evict_last".
    - `boundary_check`: the axes along which a block may reach beyond its tensor; nothing is written there.
    - `sem`: "relaxed" or "release" for elements that other programs or devices read meanwhile: numbers of 16, 32 or 64
      bits. Those that acquire see what the program wrote before a release.
    - `scope`: "cta", "gpu" (the default) or "sys", with `sem`: those that may read meanwhile.

    Result: none. Two elements that are written to one address are a race: either may remain, and `simulate` reports it.
    Errors: no pointer; a value or a mask that does not broadcast to `ptr`; an axis that the block does not have.
    """


@call("Block pointers")
def make_block_ptr(
    base: Value, shape: Values, strides: Values, offsets: Values, block_shape: ConstShape, order: ConstInts
) -> Value:
    """Point to a block of a tensor in global memory.

    `load` and `store` move the block, `advance` moves the pointer. Loops carry it, and functions take and return it.

    - `base`: a pointer to the first element of the tensor.
    - `shape`: its sizes, a tuple of integers; cast to i64.
    - `strides`: along each axis from one element to the next, counted in elements; a tuple of integers, cast to i64.
    - `offsets`: the first index of the block along each axis, a tuple of integers; cast to i64.
    - `block_shape`: the shape of the block, a tuple of powers of two.
    - `order`: the axes from the one that is contiguous in memory to the slowest. The strides say the same, so it is
      checked and has no effect.

    Result: a block pointer. Its `dtype` is the type of a pointer to the block.
    Errors: tuples of unequal length; a base that is not a scalar pointer; an order that is not a permutation.
    """


@call("Block pointers")
def advance(base: Value, offsets: Values) -> Value:
    """Move a block pointer.

    - `base`: a block pointer.
    - `offsets`: added to its offsets, a tuple of integers; cast to i64.

    Result: a block pointer; `base` is not changed.
    Errors: no block pointer; another number of offsets than axes.
    """


@call("Atomics")
def atomic_add(
    ptr: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value:
    """Add to memory.

    - `ptr`: a pointer or a tensor of pointers to integers of 32 or 64 bits, or floats of 16, 32 or 64.
    - `val`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false memory is not accessed.
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`; undefined where the mask is false.
    Errors: no pointer; a pointer to another dtype; a value or a mask that does not broadcast; an unknown `sem` or
    `scope`.
    """


@call("Atomics")
def atomic_max(
    ptr: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value:
    """Replace memory by the larger of it and a value.

    - `ptr`: a pointer or a tensor of pointers to integers of 32 or 64 bits, or f32 or f64.
    - `val`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false memory is not accessed.
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`; undefined where the mask is false.
    Errors: no pointer; a pointer to another dtype; a value or a mask that does not broadcast; an unknown `sem` or
    `scope`.
    """


@call("Atomics")
def atomic_min(
    ptr: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value:
    """Replace memory by the smaller of it and a value.

    - `ptr`: a pointer or a tensor of pointers to integers of 32 or 64 bits, or f32 or f64.
    - `val`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false memory is not accessed.
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`; undefined where the mask is false.
    Errors: no pointer; a pointer to another dtype; a value or a mask that does not broadcast; an unknown `sem` or
    `scope`.
    """


@call("Atomics")
def atomic_and(
    ptr: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value:
    """Combine memory and a value by bitwise and.

    - `ptr`: a pointer or a tensor of pointers to integers of 32 or 64 bits.
    - `val`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false memory is not accessed.
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`; undefined where the mask is false.
    Errors: no pointer; a pointer to another dtype; a value or a mask that does not broadcast; an unknown `sem` or
    `scope`.
    """


@call("Atomics")
def atomic_or(
    ptr: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value:
    """Combine memory and a value by bitwise or.

    - `ptr`: a pointer or a tensor of pointers to integers of 32 or 64 bits.
    - `val`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false memory is not accessed.
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`; undefined where the mask is false.
    Errors: no pointer; a pointer to another dtype; a value or a mask that does not broadcast; an unknown `sem` or
    `scope`.
    """


@call("Atomics")
def atomic_xor(
    ptr: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value:
    """Combine memory and a value by bitwise exclusive or.

    - `ptr`: a pointer or a tensor of pointers to integers of 32 or 64 bits.
    - `val`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false memory is not accessed.
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`; undefined where the mask is false.
    Errors: no pointer; a pointer to another dtype; a value or a mask that does not broadcast; an unknown `sem` or
    `scope`.
    """


@call("Atomics")
def atomic_xchg(
    ptr: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value:
    """Exchange memory with a value.

    - `ptr`: a pointer or a tensor of pointers to integers or floats of 32 or 64 bits.
    - `val`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false memory is not accessed.
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`; undefined where the mask is false.
    Errors: no pointer; a pointer to another dtype; a value or a mask that does not broadcast; an unknown `sem` or
    `scope`.
    """


@call("Atomics")
def atomic_cas(ptr: Value, cmp: Value, val: Value, sem: ConstStr | None = None, scope: ConstStr | None = None) -> Value:
    """Compare and swap: write a value where memory holds the one expected.

    - `ptr`: a pointer or a tensor of pointers to integers or floats of 16, 32 or 64 bits.
    - `cmp`: the value expected; compared by its bits.
    - `val`: the value to write. Both are broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`.
    Errors: no pointer; values that do not broadcast; an unknown `sem` or `scope`.
    """


@call("Signals")
def wait(
    ptr: Value,
    value: Value,
    compare: ConstStr = "eq",
    sem: ConstStr = "acquire",
    scope: ConstStr = "sys",
    timeout_ns: Value = None,
) -> Value:
    """Wait until a number in memory compares with a value. One thread reads it again and again.

    - `ptr`: a pointer to an integer of 32 or 64 bits, which another program or device writes.
    - `value`: a number, cast to the dtype pointed to.
    - `compare`: "eq", "ne", "lt", "le", "gt" or "ge": the number in memory stands on the left.
    - `sem`: "acquire", or "relaxed" where the program reads nothing that was written before the signal.
    - `scope`: "cta", "gpu" or "sys": those that may write the number.
    - `timeout_ns`: nanoseconds after which the wait ends in any case; an integer, cast to i64.

    Result: i1, true; false where the time has passed.
    Errors: no single pointer; a pointer to another dtype. A wait that no program ends is an error in the interpreter
    and in native code.
    """


@call("Signals")
def signal(
    ptr: Value,
    value: Value,
    mask: Value = None,
    op: ConstStr = "set",
    sem: ConstStr = "release",
    scope: ConstStr = "sys",
) -> None:
    """Write numbers that others wait for.

    - `ptr`: a pointer or a tensor of pointers to integers of 32 or 64 bits.
    - `value`: broadcast to the shape of `ptr`, and cast to the dtype pointed to.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false memory is not accessed.
    - `op`: "set", or "add" to what is there.
    - `sem`: "release", so that those that acquire see what the program wrote before; or "relaxed".
    - `scope`: "cta", "gpu" or "sys": those that may wait.

    Result: none.
    Errors: no pointer; a pointer to another dtype; a value or a mask that does not broadcast.
    """


@call("Signals")
def fence(scope: ConstStr) -> None:
    """Order all accesses of the program before all those after it: a barrier of its threads, and for others a fence.

    A fence before relaxed signals releases, and one after relaxed waits acquires.

    - `scope`: "cta", "gpu" or "sys": those that see the order.

    Result: none.
    """


@call("Signals")
def peer(addresses: Value, rank: Value, dtype: ConstDtype) -> Value:
    """The pointer of a device out of an array of addresses, such as `buffer_ptrs_dev` of PyTorch's symmetric memory.

    - `addresses`: a pointer to addresses of 64 bits, or its address as an integer. Each is a multiple of 16 bytes.
    - `rank`: the number of the device, or a tensor of such.
    - `dtype`: what the pointer points to.

    Result: a pointer to `dtype`, in the shape of `rank`.
    Errors: addresses that are no integers of 64 bits.
    """


@call("Tensor descriptors")
def make_tensor_descriptor(
    base: Value, shape: Values, strides: Values, block_shape: ConstShape, padding_option: ConstStr = "zero"
) -> Value:
    """Describe a tensor in global memory.

    - `base`: a pointer to its first element, 16-byte aligned.
    - `shape`: its sizes, a tuple of integers; cast to i32. They are 1 or more where a block is loaded or stored.
    - `strides`: along each axis from one element to the next, counted in elements; a tuple of integers, cast to i64.
      The last is 1, the others are multiples of 16 bytes.
    - `block_shape`: a tuple of powers of two: the block that one load or store moves.
    - `padding_option`: "zero" or (of floats) "nan": the elements of a block outside of the tensor.

    Result: a descriptor. Its `shape` and `strides` are tuples of run-time integers, i32 and i64.
    Errors: tuples of unequal length; a base that is not a scalar pointer; a last stride known not to be 1.
    """


@call("Tensor descriptors")
def load_tensor_descriptor(desc: Value, offsets: Values) -> Value:
    """Read a block: `desc.load(offsets)`.

    - `desc`: a descriptor.
    - `offsets`: the first index of the block along each axis, a tuple of integers; cast to i32.

    Result: a tensor of the block's shape; outside of the tensor it holds the descriptor's padding.
    Errors: another number of offsets than axes.
    """


@call("Tensor descriptors")
def store_tensor_descriptor(desc: Value, offsets: Values, value: Value) -> None:
    """Write a block: `desc.store(offsets, value)`.

    - `desc`: a descriptor.
    - `offsets`: the first index of the block along each axis, a tuple of integers; cast to i32.
    - `value`: a tensor of the block's shape and the descriptor's dtype.

    Result: none. Elements outside of the tensor are not written.
    Errors: another number of offsets than axes; a value of another shape or dtype.
    """


@call("Tensor descriptors")
def gather_tensor_descriptor(desc: Value, x_offsets: Value, y_offset: Value) -> Value:
    """Read rows that are not neighbours: `desc.gather(x_offsets, y_offset)`.

    - `desc`: a descriptor with two axes, whose block has one row.
    - `x_offsets`: the rows, a tensor of integers with one axis; cast to i32.
    - `y_offset`: the first column, an integer; cast to i32.

    Result: a tensor with a row of the block for each of the rows; outside of the tensor it holds the padding.
    Errors: a descriptor with other blocks; rows that are no tensor with one axis.
    """


@call("Tensor descriptors")
def scatter_tensor_descriptor(desc: Value, value: Value, x_offsets: Value, y_offset: Value) -> None:
    """Write rows that are not neighbours: `desc.scatter(value, x_offsets, y_offset)`.

    - `desc`: a descriptor with two axes, whose block has one row.
    - `value`: a tensor with a row of the block for each of the rows, of the descriptor's dtype.
    - `x_offsets`: the rows, a tensor of integers with one axis; cast to i32. One of several values for a row is left.
    - `y_offset`: the first column, an integer; cast to i32.

    Result: none. Elements outside of the tensor are not written.
    Errors: a descriptor with other blocks; a value of another shape or dtype.
    """


@call("Tensor descriptors")
def reduce_tensor_descriptor(desc: Value, offsets: Values, value: Value, kind: ConstStr) -> None:
    """Combine a block in memory with a value, each element atomically: `desc.atomic_add(offsets, value)`.

    - `desc`: a descriptor.
    - `offsets`: the first index of the block along each axis, a tuple of integers; cast to i32.
    - `value`: a tensor of the block's shape and the descriptor's dtype.
    - `kind`: "add" (u32, i32, u64, f32, f16, bf16), "min" or "max" (integers of 32 or 64 bits, f16, bf16), "and", "or"
      or "xor" (integers of 32 or 64 bits). Each is a method: `desc.atomic_max`.

    Result: none. Elements outside of the tensor are not changed. The order with other accesses is not defined.
    Errors: another number of offsets than axes; a value of another shape or dtype; a dtype that `kind` does not take.
    """


@attrs.frozen
class Method:
    """The call that a method of a descriptor stands for, with the descriptor as its first argument and `constants` as
    arguments by name."""

    call: str
    constants: Mapping[str, str] = attrs.field(factory=dict[str, str])


# The methods of descriptors.
METHODS: Final[dict[str, Method]] = {
    **{name: Method(f"{name}_tensor_descriptor") for name in ("load", "store", "gather", "scatter")},
    **{
        f"atomic_{kind}": Method("reduce_tensor_descriptor", {"kind": kind})
        for kind in ("add", "min", "max", "and", "or", "xor")
    },
}
