"""Which arrays of a kernel are exact on a GPU, and how far the others may be off."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import ziggurat as zg
from ziggurat.backend.ptx.accuracy import Bound, bounds

POINTER = zg.ptr(zg.f32)


@zg.kernel
def several(x_ptr, moved_ptr, sum_ptr, exp_ptr, back_ptr, count_ptr, SIZE: zg.constexpr):
    at = zg.arange(0, SIZE)
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(moved_ptr, at), zg.mul(zg.add(x, 1.0), 2.0))
    zg.store(sum_ptr, zg.sum(x))
    zg.store(count_ptr, zg.max(x))
    zg.store(zg.add(exp_ptr, at), zg.exp(x))
    zg.store(zg.add(back_ptr, at), zg.load(zg.add(exp_ptr, at)))


def test_each_array_has_the_bound_of_what_is_stored_in_it():
    found = bounds(several.triton(*[POINTER] * 6, 64))
    assert sorted(found) == [2, 3, 4], "moved, compared and not written: exact"
    assert found[2].summed and not found[3].summed
    assert found[3] == found[4], "what is read back is as good as what was written"


@zg.kernel
def through_a_loop(x_ptr, out_ptr, n):
    total = 0.0
    for i in range(n):
        total = total + zg.exp(zg.load(x_ptr + i))
    zg.store(out_ptr, total)
    plain = 0.0
    for i in range(n):
        plain = plain + zg.load(x_ptr + i)
    zg.store(x_ptr, plain)


def test_errors_add_up_in_loops_and_only_where_they_are():
    found = bounds(through_a_loop.triton(POINTER, POINTER, zg.i32))
    assert sorted(found) == [1]
    assert found[1].summed and found[1].relative > bounds(several.triton(*[POINTER] * 6, 64))[3].relative


def test_what_is_near():
    x = np.array([1.0, 0.0, np.nan, np.inf, -np.inf, 1e30], np.float32)
    assert Bound(1e-6).near(x, x).all()
    assert Bound(1e-6).near(x * np.float32(1 + 2e-7), x).all()
    assert Bound(1e-6).near(x * np.float32(1.01), x).tolist() == [False, True, True, True, True, False]
    assert not Bound(1.0).near(np.zeros(6, np.float32), x)[2:5].any()
    half = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert Bound(1e-6).near(half + half * ml_dtypes.bfloat16(2**-7), half).all(), "one last place of a short type"
    assert not Bound(1e-6).near(np.array([0.1, 100], np.float32), np.array([0.0, 100], np.float32)).all()
    assert Bound(2e-3, summed=True).near(np.array([0.1, 100], np.float32), np.array([0.0, 100], np.float32)).all()
