"""Error bounds of a kernel's arrays on a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from accuracy import Bound, bounds

import ziggurat as zg

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
    actual = bounds(several.triton(*[POINTER] * 6, 64))
    assert sorted(actual) == [2, 3, 4], "moved, compared and not written: exact"
    assert actual[2].summed and not actual[3].summed
    assert actual[3] == actual[4], "what is read back is as good as what was written"


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
    actual = bounds(through_a_loop.triton(POINTER, POINTER, zg.i32))
    assert sorted(actual) == [1]
    assert actual[1].summed and actual[1].relative > bounds(several.triton(*[POINTER] * 6, 64))[3].relative


@zg.kernel
def radius_and_angle(u_ptr, normal_ptr, twice_ptr, SIZE: zg.constexpr):
    at = zg.arange(0, SIZE)
    u = zg.load(zg.add(u_ptr, at))
    normal = zg.mul(zg.sqrt(zg.mul(-2.0, zg.log(u))), zg.cos(u))
    zg.store(zg.add(normal_ptr, at), normal)
    zg.store(zg.add(twice_ptr, at), zg.add(normal, normal))


def test_the_root_of_what_has_an_absolute_error():
    """The logarithm of a number next to 1 is off by as much as any other, and its root by much more."""
    result = bounds(radius_and_angle.triton(*[POINTER] * 3, 64))
    normal, twice = result[1], result[2]
    assert normal.rooted == twice.rooted > 0 and (normal.summed, twice.summed) == (False, True)

    k = np.arange(1, 2000)
    u = np.concatenate([1 - k * 2.0**-24, np.linspace(0.001, 0.999, 2000)])
    true, angle = -2 * np.log(u), np.cos(u)
    for error in (-(2.0**-22), 2.0**-22):  # lg2.approx, by the PTX manual.
        off = np.sqrt(np.maximum(true + 2 * np.log(2) * error, 0)) * angle
        actual, expected = off.astype(np.float32), (np.sqrt(true) * angle).astype(np.float32)
        assert normal.near(actual, expected).all()
        assert not Bound(normal.relative, normal.absolute).near(actual, expected).all()
    # It allows that where the root is small, and not elsewhere.
    assert normal.near(np.array([5e-4], np.float32), np.array([0], np.float32)).all()
    assert not normal.near(np.array([1 + 1e-5], np.float32), np.array([1], np.float32)).any()


@zg.kernel
def in_turns(x_ptr, total_ptr, alone_ptr, lock_ptr, LOCKED: zg.constexpr):
    if LOCKED:
        while zg.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
    zg.store(total_ptr, zg.load(total_ptr) + zg.load(x_ptr + zg.program_id(0)))
    zg.store(alone_ptr + zg.program_id(0), zg.load(x_ptr + zg.program_id(0)))
    if LOCKED:
        zg.debug_barrier()
        zg.atomic_xchg(lock_ptr, 0)


def test_programs_that_take_turns():
    """The order of additions under a lock is not known; without a lock there is one addition."""
    types = [POINTER] * 3 + [zg.ptr(zg.i32)]
    assert bounds(in_turns.triton(*types, False)) == {}
    actual = bounds(in_turns.triton(*types, True))
    assert list(actual) == [1] and actual[1].summed and 0 < actual[1].relative < 1e-5


def test_nearness_within_a_bound():
    x = np.array([1.0, 0.0, np.nan, np.inf, -np.inf, 1e30], np.float32)
    assert Bound(1e-6).near(x, x).all()
    assert Bound(1e-6).near(x * np.float32(1 + 2e-7), x).all()
    assert Bound(1e-6).near(x * np.float32(1.01), x).tolist() == [False, True, True, True, True, False]
    assert not Bound(1.0).near(np.zeros(6, np.float32), x)[2:5].any()
    half = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert Bound(1e-6).near(half + half * ml_dtypes.bfloat16(2**-7), half).all(), "one last place of a short type"
    assert not Bound(1e-6).near(np.array([0.1, 100], np.float32), np.array([0.0, 100], np.float32)).all()
    assert Bound(2e-3, summed=True).near(np.array([0.1, 100], np.float32), np.array([0.0, 100], np.float32)).all()
