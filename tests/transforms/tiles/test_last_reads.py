"""Reads of what the program has read before: which of them are marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from left_out import with_and_without

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import CacheModifier, EvictionPolicy
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.tiles.last_reads import mark_last_reads
from ziggurat.transforms.tiles.prepare import prepare

F32, I32 = zg.ptr(zg.f32), zg.i32


@zg.kernel
def twice(x_ptr, out_ptr, n, cache: zg.constexpr = "", eviction: zg.constexpr = "", other: zg.constexpr = 0):
    """The row twice, a loop each; `other` is the distance of the second reading."""
    row = x_ptr + zg.program_id(0) * n
    total = zg.zeros((), zg.f32)
    for start in range(0, n, 64):
        total += zg.sum(zg.load(zg.add(row + start, zg.arange(0, 64))), 0)
    for start in range(0, n, 64):
        x = zg.load(zg.add(row + start + other, zg.arange(0, 64)), cache_modifier=cache, eviction_policy=eviction)
        zg.store(zg.add(out_ptr + zg.program_id(0) * n + start, zg.arange(0, 64)), zg.sub(x, total))


@zg.kernel
def of_all(x_ptr, out_ptr, n):
    """Every program reads the same row."""
    total = zg.zeros((), zg.f32)
    for start in range(0, n, 64):
        total += zg.sum(zg.load(zg.add(x_ptr + start, zg.arange(0, 64))), 0)
    for start in range(0, n, 64):
        x = zg.load(zg.add(x_ptr + start, zg.arange(0, 64)))
        zg.store(zg.add(out_ptr + zg.program_id(0) * n + start, zg.arange(0, 64)), zg.sub(x, total))


@zg.kernel
def again(x_ptr, out_ptr, n):
    """The second loop reads the same elements in each iteration."""
    at = zg.add(zg.program_id(0) * 64, zg.arange(0, 64))
    total = zg.load(zg.add(x_ptr, at))
    for _ in range(n):
        total = zg.add(zg.exp(total), zg.load(zg.add(x_ptr, at)))
        zg.store(zg.add(out_ptr, at), total)


@zg.kernel
def with_dot(x_ptr, out_ptr, n):
    """Programs share the blocks of products."""
    at = zg.add(zg.expand(zg.arange(0, 16), 1), zg.expand(zg.arange(0, 16), 0))
    at = zg.add(at, zg.program_id(0) * 256)
    for _ in range(n):
        zg.store(zg.add(out_ptr, at), zg.load(zg.add(x_ptr, at)))
    zg.store(zg.add(out_ptr, at), zg.dot(zg.load(zg.add(x_ptr, at)), zg.load(zg.add(x_ptr, at))))


def policies(kernel: Any, *arguments: Any) -> list[tuple[CacheModifier, EvictionPolicy]]:
    model = prepare(kernel.triton(F32, F32, I32, *arguments))
    result = mark_last_reads(model)
    verify(result)
    loads = [op for op in result.walk() if isinstance(op, tt.Load)]
    return [(op.cache, op.eviction) for op in loads]


PLAIN = (CacheModifier.NONE, EvictionPolicy.NORMAL)
FIRST = (CacheModifier.NONE, EvictionPolicy.FIRST)


@pytest.mark.parametrize("cache", ["", ".ca"])
def test_the_last_read_goes_first(cache: str) -> None:
    assert policies(twice, cache) == [PLAIN, FIRST]


@pytest.mark.parametrize(
    ("kernel", "arguments", "expected"),
    [
        (twice, (".cg",), [PLAIN, (CacheModifier.CG, EvictionPolicy.NORMAL)]),
        (twice, ("", "evict_last"), [PLAIN, (CacheModifier.NONE, EvictionPolicy.LAST)]),
        (twice, ("", "", 1), [PLAIN, PLAIN]),
        (of_all, (), [PLAIN, PLAIN]),
        (again, (), [PLAIN, PLAIN]),
        (with_dot, (), [PLAIN, PLAIN]),
    ],
    ids=["a cache is asked for", "a policy is asked for", "other elements", "of all", "again", "with a dot"],
)
def test_other_reads_stay(kernel: Any, arguments: Any, expected: list[Any]) -> None:
    assert policies(kernel, *arguments) == expected


def test_the_results_are_those_without_hints() -> None:
    def given() -> tuple[np.ndarray, list[Any]]:
        x, result = np.random.default_rng(7).standard_normal(768).astype(np.float32), np.zeros(768, np.float32)
        return result, [x, result, 192]

    types = [F32, F32, I32, "", "", 0]
    hinted, plain, true = with_and_without("last_reads", twice, types, given, (4,), num_warps=2)
    np.testing.assert_array_equal(hinted, plain)
    np.testing.assert_allclose(hinted, true, rtol=1e-4, atol=1e-4)
