"""Triton's functions that are written in Triton's Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.types import i32, i64, u32, u64
from ziggurat.frontends import language as zg
from ziggurat.frontends.language.constants import constexpr as constant
from ziggurat.frontends.language.dtypes import pointer_type
from ziggurat.frontends.language.function import Function, constexpr
from ziggurat.frontends.language.languages import Spelling
from ziggurat.frontends.language.signature import signature_of
from ziggurat.frontends.library import random
from ziggurat.frontends.reflection import reader
from ziggurat.frontends.triton import language_calls as tl
from ziggurat.frontends.triton.compile_time import TritonFunction, constexpr_function
from ziggurat.frontends.triton.language import TRITON
from ziggurat.frontends.triton.spelling import METHODS, SPELLED, declare_spelling

__all__ = ["METHODS", "SPELLED"]


def in_triton(*, method: bool = False) -> Callable[[Callable[..., Any]], Spelling]:
    """Decorator of a function in Triton's Python that is the meaning of its name."""

    def declare(fn: Callable[..., Any]) -> Spelling:
        body = Function(fn, reader(fn))
        body.language = TRITON
        return declare_spelling(Spelling(signature_of(fn, "Triton", 1, "tl"), "", lambda bound: bound, body), method)

    return declare


@in_triton()
def to_tensor(x: Any) -> Any:
    value = x
    return value


@in_triton()
def zeros_like(input: Any) -> Any:
    return zg.zeros(input.shape, input.dtype)


@in_triton()
def broadcast(input: Any, other: Any) -> Any:
    shape: constexpr = (tl.zeros(input.shape, i32) + tl.zeros(other.shape, i32)).shape
    return zg.broadcast(input, shape), zg.broadcast(other, shape)


@constexpr_function
def _halves_in_front(rank: int, dim: int) -> tuple[int, ...]:
    """The order of axes that puts the last one, along which two tensors are joined, before the axis `dim`."""
    return (*range(dim % rank), rank, *range(dim % rank, rank))


@constexpr_function
def _twice(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """The shape with the axis `dim` twice as long."""
    at = dim % len(shape)
    return (*shape[:at], 2 * shape[at], *shape[at + 1 :])


@in_triton()
def cat(input: Any, other: Any, can_reorder: constexpr = False, dim: constexpr = 0) -> Any:
    if dim == 0:
        return zg.cat(input, other)
    both = zg.permute(zg.join(input, other), _halves_in_front(len(input.shape), dim))
    return zg.reshape(both, _twice(input.shape, dim))


@in_triton()
def bitonic_merge(x: Any, dim: constexpr = None, descending: constexpr = False) -> Any:
    return zg.sort(x, dim, descending)


@in_triton()
def sort_impl(x: Any, k: constexpr = None, dim: constexpr = None, descending: constexpr = False) -> Any:
    return zg.sort(x, dim, descending) if k is None else zg.topk(x, k, dim, descending)


@in_triton()
def condition(arg1: Any, disable_licm: constexpr = False) -> Any:
    return arg1


# Triton 3.9 reads and writes shared flags by calls of their own.


@in_triton(method=True)
def atomic_load(pointer: Any, mask: Any = None, sem: constexpr = None, scope: constexpr = None) -> Any:
    tl.static_assert(
        sem is None or sem == "acquire" or sem == "relaxed", "atomic_load only supports acquire and relaxed semantics"
    )
    return zg.load(pointer, mask, sem="acquire" if sem is None else sem, scope=scope)


@in_triton(method=True)
def atomic_store(pointer: Any, val: Any, mask: Any = None, sem: constexpr = None, scope: constexpr = None) -> None:
    tl.static_assert(
        sem is None or sem == "release" or sem == "relaxed", "atomic_store only supports release and relaxed semantics"
    )
    zg.store(pointer, val, mask, sem="release" if sem is None else sem, scope=scope)


@constexpr_function
def _is_number(pointer: Any) -> bool:
    """Whether one pointer to an integer of 32 or 64 bits is of this type."""
    return pointer.is_ptr() and pointer.element_ty.is_int() and pointer.element_ty.primitive_bitwidth >= 32


@TritonFunction
def _waiting(equal: Any) -> Any:
    """Whether an element is false."""
    if len(equal.shape) == 0:
        return equal == 0
    return zg.min(zg.cast(zg.ravel(equal), i32)) == 0


@in_triton(method=True)
def atomic_poll(
    pointer: Any, expected_value: Any, sem: constexpr = None, scope: constexpr = None, timeout_ns: Any = None
) -> Any:
    if _is_number(pointer.type):
        order: constexpr = "acquire" if sem is None else sem
        return zg.wait(pointer, expected_value, "eq", order, "gpu" if scope is None else scope, timeout_ns)
    value = atomic_load(pointer, None, sem, scope)
    expected = zg.zeros(value.shape, value.dtype) + zg.cast(expected_value, value.dtype)
    equal = value == expected
    if timeout_ns is None:
        while _waiting(equal):
            equal = equal | (atomic_load(pointer, equal == 0, sem, scope) == expected)
    else:
        start = zg.globaltimer()
        while _waiting(equal) & (zg.globaltimer() - start < timeout_ns):
            equal = equal | (atomic_load(pointer, equal == 0, sem, scope) == expected)
    return equal


@in_triton()
def expect_zero(x: Any, mask: Any) -> Any:
    zg.device_assert((x == 0) | (mask == 0), "expect_zero expected x == 0 where mask is true")
    return x


# Descriptors of Triton 3.0 to 3.3. A kernel has one as a pointer to these words, or as a tuple of all but the mark; its
# tensor has no gaps, and one of a single axis is one row.
DESCRIPTOR_WORDS = ("mark", "base", "rows", "columns")
DESCRIPTOR_MARK = constant(int.from_bytes(b"ziggurat", "little"))


@in_triton()
def _experimental_reinterpret_tensor_descriptor(desc_ptr: Any, block_shape: constexpr, dtype: constexpr) -> Any:
    tl.static_assert(len(block_shape) <= 2, "a block of an experimental descriptor has one or two axes")
    if not hasattr(desc_ptr, "rows"):
        words = desc_ptr.to(pointer_type(i64))
        zg.device_assert(zg.load(words) == DESCRIPTOR_MARK, "the memory of a descriptor was not filled")
        base, rows, columns = zg.load(words + 1), zg.load(words + 2), zg.load(words + 3)
    else:
        base, rows, columns = desc_ptr
    start = base.to(pointer_type(dtype))
    if len(block_shape) == 1:
        return zg.make_tensor_descriptor(start, (columns,), (1,), block_shape)
    return zg.make_tensor_descriptor(start, (rows, columns), (columns, 1), block_shape)


@in_triton()
def _experimental_descriptor_load(desc_pointer: Any, offsets: Any, shape: constexpr, dtype: constexpr) -> Any:
    descriptor = _experimental_reinterpret_tensor_descriptor(desc_pointer, shape, dtype)
    return zg.load_tensor_descriptor(descriptor, offsets)


@in_triton()
def _experimental_descriptor_store(desc_pointer: Any, value: Any, offsets: Any) -> None:
    descriptor = _experimental_reinterpret_tensor_descriptor(desc_pointer, value.shape, value.dtype)
    zg.store_tensor_descriptor(descriptor, offsets, value)


@in_triton()
def experimental_device_tensormap_create2d(
    desc_ptr: Any, global_address: Any, load_size: constexpr, global_size: Any, element_ty: constexpr
) -> None:
    words = desc_ptr.to(pointer_type(i64))
    zg.store(words, DESCRIPTOR_MARK)
    zg.store(words + 1, zg.cast(global_address, i64))
    zg.store(words + 2, zg.cast(global_size[0], i64))
    zg.store(words + 3, zg.cast(global_size[1], i64))


@in_triton()
def experimental_device_tensormap_create1d(
    desc_ptr: Any, global_address: Any, load_size: constexpr, global_size: Any, element_ty: constexpr
) -> None:
    experimental_device_tensormap_create2d(desc_ptr, global_address, (1, load_size), (1, global_size), element_ty)


@in_triton()
def experimental_tensormap_fenceproxy_acquire(desc_ptr: Any) -> None:
    zg.debug_barrier()


@in_triton(method=True)
def softmax(x: Any, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False) -> Any:
    axis: constexpr = 0 if dim is None else dim
    powers = zg.exp(x - zg.max(x, axis, keep_dims=True))
    return zg.fdiv(powers, zg.sum(powers, axis, keep_dims=True), ieee_rounding)


@in_triton()
def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: constexpr = 10) -> Any:
    tl.static_assert(c0.dtype == u32 or c0.dtype == u64, "dtype not supported in philox_impl")
    return random.philox_rounds(c0, c1, c2, c3, k0, k1, n_rounds)


for _function in (random.pair_uniform_to_normal, random.uint_to_uniform_float):
    declare_spelling(Spelling(signature_of(_function.fn, "Triton", 1, "tl"), "", lambda bound: bound, _function))
