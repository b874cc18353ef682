"""Accesses to arrays that end within the elements of a thread: the other threads access vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.codemodel.dialects import tt

F16, I8, F32 = (zg.divisible(zg.ptr(element), 16) for element in (zg.f16, zg.i8, zg.f32))


@zg.kernel
def chosen(x, y, out, n, N: zg.constexpr):
    at = zg.program_id(0) * N + zg.arange(0, N)
    inside = at < n
    a = zg.load(x + at, inside, other=-1.5)
    zg.store(out + at, zg.where(zg.load(y + at, inside, other=1) != 0, a, 3 - a), inside)


@zg.kernel
def doubled(x, start, end, N: zg.constexpr):
    """In place, where the mask is a conjunction, and the bound the first operand."""
    at = zg.arange(0, N)
    inside = (end > at) & (at <= start)
    zg.store(x + at, zg.load(x + at, inside, eviction_policy="evict_first") * 2, inside)


@zg.kernel
def late(x, out, n, N: zg.constexpr):
    """Masks whose true elements come last."""
    at = zg.arange(0, N)
    zg.store(out + at, zg.load(x + at, at >= n), at >= n)


def accesses(compiled: Any) -> list[tuple[int, bool]]:
    ops = compiled.stages["gpu"].walk()
    return [(op.width, op.ragged) for op in ops if isinstance(op, tt.Load | tt.Store)]


@pytest.mark.parametrize("n", [0, 1, 7, 8, 1021, 1024, 1029, 2048])
def test_threads_inside_of_an_array_access_vectors(n: int) -> None:
    compiled = chosen.compile(F16, I8, F16, zg.i32, 1024, num_warps=4, target="sm_90a")
    assert accesses(compiled) == [(8, True)] * 3
    # Both loads begin in one branch.
    first, second = compiled.ptx.index("ld.global.v4.b32"), compiled.ptx.index("ld.global.v2.b32")
    assert "bra" not in compiled.ptx[min(first, second) : max(first, second)]
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal(n).astype(np.float16), generator.integers(0, 2, n).astype(np.int8)
    out = np.full(n, 9, np.float16)
    compiled.simulate[2,](x, y, out, n)  # An access after the end of an array is an error.
    np.testing.assert_array_equal(out, np.where(y != 0, x, (3 - x.astype(np.float32)).astype(np.float16)))


@pytest.mark.parametrize(("start", "end"), [(5, 9), (300, 261), (-1, 512), (511, 511)])
def test_conjunctions_of_bounds(start: int, end: int) -> None:
    compiled = doubled.compile(F32, zg.i32, zg.i32, 512, num_warps=4, target="sm_90a")
    assert accesses(compiled) == [(4, True)] * 2
    x = np.arange(512, dtype=np.float32)
    compiled.simulate[1,](x, start, end)
    at = np.arange(512)
    np.testing.assert_array_equal(x, np.where((at < end) & (at <= start), 2 * at, at))


def test_other_masks_are_looked_at_for_each_element() -> None:
    compiled = late.compile(F32, F32, zg.i32, 512, num_warps=4, target="sm_90a")
    assert accesses(compiled) == [(1, False)] * 2
    x, out = np.arange(512, dtype=np.float32), np.zeros(512, np.float32)
    compiled.simulate[1,](x, out, 77)
    np.testing.assert_array_equal(out, np.where(np.arange(512) >= 77, x, 0))


@zg.kernel
def first_of(x, y, z, out, n, N: zg.constexpr):
    """The second load needs the result of the first one, and the third one neither."""
    at = zg.arange(0, N)
    inside = at < n
    a = zg.load(x + at, inside, other=0)
    b = zg.load(y + at, inside, other=a * 2)
    zg.store(out + at, a + b + zg.load(z + at, inside), inside)


def test_a_load_that_needs_an_earlier_one_does_not_begin_with_it() -> None:
    compiled = first_of.compile(F32, F32, F32, F32, zg.i32, 512, num_warps=4, target="sm_90a")
    assert accesses(compiled) == [(4, True)] * 4
    assert compiled.ptx.count("ld.global.v4.b32") == 3
    x, out = np.arange(500, dtype=np.float32), np.zeros(500, np.float32)
    compiled.simulate[1,](x, x + 1, x + 2, out, 500)
    np.testing.assert_array_equal(out, 3 * x + 3)


def test_a_load_does_not_begin_before_a_barrier_that_orders_it() -> None:
    compiled = chosen.compile(F16, I8, F16, zg.i32, 1024, num_warps=4, target="sm_90a")
    text = str(compiled.stages["gpu"])
    second = text.rindex("\n", 0, text.rindex("tt.load"))
    ordered = zg.parse(f"{text[:second]}\n        gpu.barrier;{text[second:]}")
    llvm = to_llvm(ordered)
    first, barrier, second = (llvm.index(part) for part in ("load <4 x i32>", "bar.sync", "load <2 x i32>"))
    assert first < barrier < second
