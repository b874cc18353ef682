"""Read, combine and write back in one atomic step. Elements with the same address are processed one after the other."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstStr, Value
from ziggurat.frontends.language.signature import call

__all__ = [
    "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor",
]  # fmt: skip


@call("Atomics")
def atomic_add(
    ptr: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value:
    """Add to memory.

    - `ptr`: a pointer or a tensor of pointers to integers of 32 or 64 bits, or floats of 16, 32 or 64.
    - `val`: broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
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
    - `val`: broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
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
    - `val`: broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
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
    - `val`: broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
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
    - `val`: broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
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
    - `val`: broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
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
    - `val`: broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
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
    - `val`: the value to write. Both are broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
    - `sem`: "relaxed", "acquire", "release" or "acq_rel" (the default).
    - `scope`: "cta", "gpu" (the default) or "sys".

    Result: the previous value in memory, in the shape of `ptr`.
    Errors: no pointer; values that do not broadcast; an unknown `sem` or `scope`.
    """
