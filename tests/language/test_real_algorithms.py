"""Whole kernels that compute by scans, searches, counting and loops over scalars, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg

LESS = zg.CompareKind.LESS_THAN
AT_LEAST = zg.CompareKind.GREATER_THAN_OR_EQUAL


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def close(actual, expected, rtol=1e-5, atol=1e-5):
    np.testing.assert_allclose(np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol, atol)


@zg.function
def segmented(a, a_starts, b, b_starts):
    return zg.where(b_starts, b, a + b), a_starts or b_starts


@zg.function
def linear(a0, b0, a1, b1):
    """x -> a0 x + b0, then a1 x + b1."""
    return a0 * a1, b0 * a1 + b1


@zg.kernel
def scans(x_ptr, start_ptr, decay_ptr, sums_ptr, state_ptr, REVERSE: zg.constexpr, SIZE: zg.constexpr):
    at = zg.arange(0, SIZE)
    x = zg.load(zg.add(x_ptr, at))
    sums, _ = zg.associative_scan((x, zg.load(zg.add(start_ptr, at))), 0, segmented, reverse=REVERSE)
    zg.store(zg.add(sums_ptr, at), sums)
    decay = zg.load(zg.add(decay_ptr, at))
    state = zg.associative_scan((decay, x), axis=0, combine_fn=linear, reverse=REVERSE)[1]
    zg.store(zg.add(state_ptr, at), state)


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_tuples(reverse, rng, launch):
    n = 32
    x, starts = rng.standard_normal(n).astype(np.float32), rng.random(n) < 0.2
    decay = rng.random(n).astype(np.float32)
    sums, state = np.zeros(n, np.float32), np.zeros(n, np.float32)
    launch(scans, 1, [x, starts, decay, sums, state], REVERSE=reverse, SIZE=n)
    expected, states = np.zeros(n), np.zeros(n)
    total = hidden = 0.0
    for i in range(n)[::-1] if reverse else range(n):
        total = x[i] if starts[i] else total + x[i]
        hidden = hidden * decay[i] + x[i]
        expected[i], states[i] = total, hidden
    close(sums, expected)
    close(state, states)


@zg.kernel
def histogram(x_ptr, bins_ptr, low, high, n, BINS: zg.constexpr, SIZE: zg.constexpr):
    step = zg.num_programs(0) * SIZE
    start = zg.program_id(0) * SIZE
    while start < n:
        at = zg.add(start, zg.arange(0, SIZE))
        x = zg.load(zg.add(x_ptr, at), zg.compare(at, n, LESS), other=float("nan"))
        inside = zg.and_(zg.compare(x, low, AT_LEAST), zg.compare(x, high, LESS))
        bin = zg.cast(zg.floor(zg.mul(zg.sub(x, low), BINS / (high - low))), zg.i32)
        bin = zg.clamp(zg.where(inside, bin, 0), 0, BINS - 1)
        zg.atomic_add(zg.add(bins_ptr, bin), 1, inside)
        start += step


def test_histogram(rng, launch):
    x = rng.standard_normal(1000).astype(np.float32)
    x[::100] = np.nan
    bins = np.zeros(10, np.int64)
    launch(histogram, 3, [x, bins, -2.0, 3, len(x)], BINS=10, SIZE=64)
    assert (bins == np.histogram(x[~np.isnan(x)], 10, (-2, 3))[0]).all()


@zg.kernel
def copy_far(x_ptr, out_ptr, stride, SIZE: zg.constexpr):
    row = zg.program_id(0)
    far = zg.cast(row, zg.i64) * stride
    columns = zg.arange(0, SIZE)
    zg.store(zg.add(out_ptr + row * SIZE, columns), zg.load(zg.add(x_ptr + far, columns)))


def test_offsets_of_64_bits():
    """Rows that are 2³⁰ elements apart: the third is out of reach of 32 bits. Most of the memory is never touched."""
    size, apart = 8, 2**30
    x = np.zeros(3 * apart + size, np.uint8)
    for row in range(4):
        x[row * apart : row * apart + size] = np.arange(size) + 10 * row
    out = np.zeros((4, size), np.uint8)
    copy_far[4,](x, out, apart, SIZE=size)
    assert (out == np.arange(size) + 10 * np.arange(4)[:, None]).all()


@zg.function
def logsumexp(a_top, a_sum, b_top, b_sum):
    top = max(a_top, b_top)
    return top, a_sum * zg.exp(a_top - top) + b_sum * zg.exp(b_top - top)


@zg.function
def longer(a, b):
    return a if abs(a) > abs(b) else b


@zg.function
def along(x, combine, axis: zg.constexpr = 0):
    return zg.reduce(x, axis, combine)


@zg.function
def both(x, first, second: zg.constexpr):
    return along(x, first), along((x, zg.full(x.shape, 1.0, x.dtype)), combine=second)


@zg.kernel
def reduced_by(x_ptr, out_ptr, SIZE: zg.constexpr):
    x = zg.load(zg.add(x_ptr, zg.arange(0, SIZE)))
    far, (top, total) = both(x, longer, logsumexp)
    zg.store(out_ptr, far)
    zg.store(out_ptr + 1, top + zg.log(total))


def test_functions_passed_on(rng, launch):
    x, out = rng.standard_normal(64).astype(np.float32), np.zeros(2, np.float32)
    launch(reduced_by, 1, [x, out], SIZE=64)
    assert out[0] == x[np.abs(x).argmax()]
    close(out[1], np.log(np.exp(x).sum()))


@zg.function
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    delta = mean_b - mean_a
    share = n_b / n if n > 0 else 0.0
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@zg.kernel
def moments(x_ptr, mean_ptr, variance_ptr, n, SIZE: zg.constexpr):
    mean, m2, count = 0.0, 0.0, 0.0
    for start in range(0, n, SIZE):
        at = zg.add(start, zg.arange(0, SIZE))
        mask = zg.compare(at, n, LESS)
        x = zg.load(zg.add(x_ptr + zg.program_id(0) * n, at), mask, other=0.0)
        part = zg.reduce((x, zg.zeros((SIZE,), zg.f32), zg.cast(mask, zg.f32)), 0, welford)
        mean, m2, count = welford(mean, m2, count, part[0], part[1], part[2])
    zg.store(mean_ptr + zg.program_id(0), mean)
    zg.store(variance_ptr + zg.program_id(0), m2 / count)


def test_moments_in_one_pass(rng, launch):
    x = (rng.standard_normal((3, 75)) + 100).astype(np.float32)
    mean, variance = np.zeros((2, 3), np.float32)
    launch(moments, 3, [x, mean, variance, 75], SIZE=32)
    close(mean, x.astype(np.float64).mean(1))
    close(variance, x.astype(np.float64).var(1), 1e-3)


@zg.kernel
def bisect(sorted_ptr, wanted_ptr, out_ptr, n, SIZE: zg.constexpr):
    """The insertion point of each number: all lanes search at once, until all intervals are empty."""
    at = zg.arange(0, SIZE)
    key = zg.load(zg.add(wanted_ptr, at))
    low = zg.zeros((SIZE,), zg.i32)
    high = zg.full((SIZE,), n, zg.i32)
    steps = 0
    while zg.max(zg.sub(high, low)) > 0 and steps < 40:
        middle = zg.shr(zg.add(low, high), 1)
        busy = zg.compare(low, high, LESS)
        below = zg.compare(zg.load(zg.add(sorted_ptr, middle), busy, other=0), key, LESS)
        low = zg.where(zg.and_(busy, below), zg.add(middle, 1), low)
        high = zg.where(zg.and_(busy, zg.invert(below)), middle, high)
        steps += 1
    zg.store(zg.add(out_ptr, at), low)
    zg.device_assert(steps <= 7, "one step a bit")


def test_binary_search(rng, launch):
    numbers = np.sort(rng.integers(0, 1000, 100)).astype(np.int32)
    keys = rng.integers(-5, 1005, 32).astype(np.int32)
    out = np.zeros(32, np.int32)
    launch(bisect, 1, [numbers, keys, out, 100], SIZE=32)
    assert (out == np.searchsorted(numbers, keys)).all()


@zg.kernel
def conv1d(x_ptr, w_ptr, out_ptr, n, WIDTH: zg.constexpr, SIZE: zg.constexpr):
    at = zg.add(zg.program_id(0) * SIZE, zg.arange(0, SIZE))
    acc = zg.zeros((SIZE,), zg.f32)
    for tap in zg.static_range(-(WIDTH // 2), WIDTH // 2 + 1):
        place = zg.add(at, tap)
        inside = zg.and_(zg.compare(place, 0, AT_LEAST), zg.compare(place, n, LESS))
        weight = zg.load(w_ptr + (tap + WIDTH // 2))
        acc = zg.fma(zg.load(zg.add(x_ptr, place), inside, other=0.0), weight, acc)
    zg.store(zg.add(out_ptr, at), acc, zg.compare(at, n, LESS))


def test_convolution(rng, launch):
    x, w, out = rng.standard_normal(50), rng.standard_normal(5), np.zeros(50, np.float32)
    x, w = x.astype(np.float32), w.astype(np.float32)
    launch(conv1d, 4, [x, w, out, 50], WIDTH=5, SIZE=16)
    close(out, np.convolve(x, w[::-1], "same"))


@zg.kernel
def collatz(n_ptr, steps_ptr, top_ptr, LIMIT: zg.constexpr):
    """Scalars only: branches in a loop in a branch, one carried variable that is a constant on one path."""
    n = zg.cast(zg.load(n_ptr + zg.program_id(0)), zg.i64)
    steps, top = 0, n
    if n > 0:
        while n != 1 and steps < LIMIT:
            if n % 2 == 0:
                n //= 2
            else:
                n = 3 * n + 1
                if n > top:
                    top = n
            steps += 1
    else:
        steps = -1
    zg.store(steps_ptr + zg.program_id(0), steps)
    zg.store(top_ptr + zg.program_id(0), top)


def test_collatz(launch):
    n = np.array([0, 1, 2, 3, 7, 27, 97, -4], np.int32)
    steps, top = np.zeros(8, np.int32), np.zeros(8, np.int64)
    launch(collatz, 8, [n, steps, top], LIMIT=1000)
    assert steps.tolist() == [-1, 0, 1, 7, 16, 111, 118, -1]
    assert top.tolist() == [0, 1, 2, 16, 52, 9232, 9232, -4]
