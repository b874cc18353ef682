"""Triton's functions that are written in Triton's Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.types import i32, u32, u64
from ziggurat.frontends import language as zg
from ziggurat.frontends.language.function import Function, constexpr
from ziggurat.frontends.language.languages import Spelling
from ziggurat.frontends.language.signature import signature_of
from ziggurat.frontends.library import random
from ziggurat.frontends.reflection import reader
from ziggurat.frontends.triton import language_calls as tl
from ziggurat.frontends.triton.compile_time import constexpr_function
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
    tensor = x
    return tensor


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
