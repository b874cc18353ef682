"""`fast_math` gives up the interpreter's bits, and keeps within the bounds of docs/accuracy.md."""

import numpy as np
import pytest

import ziggurat as zg

ROWS, SIZE = 64, 1024


@zg.kernel
def softmax(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at))
    powers = zg.exp(zg.sub(x, zg.max(x, axis=0)))
    zg.store(zg.add(out_ptr, at), zg.div(powers, zg.sum(powers, axis=0)))


@zg.kernel
def exp(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(out_ptr, at), zg.exp(zg.load(zg.add(x_ptr, at))))


@zg.kernel
def exp2(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(out_ptr, at), zg.exp2(zg.load(zg.add(x_ptr, at))))


@zg.kernel
def log(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(out_ptr, at), zg.log(zg.load(zg.add(x_ptr, at))))


def test_softmax_with_sums_in_any_order():
    x = np.random.default_rng(0).standard_normal((ROWS, SIZE)).astype(np.float32)
    exact, fast = np.empty_like(x), np.empty_like(x)
    softmax[ROWS,](x, exact, SIZE)
    softmax[ROWS,](x, fast, SIZE, fast_math=True)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    expected = wide / wide.sum(axis=1, keepdims=True)
    assert (fast != exact).any()  # Another order of the sums.
    assert np.abs(fast / expected - 1).max() < 1e-6


@pytest.mark.parametrize(
    "kernel, function, low, high",
    [
        (exp, np.exp, -80, 80),
        (exp, np.exp, -87.3, -80),
        (exp, np.exp, 80, 88.7),
        (exp2, np.exp2, -126, 128),
        (log, np.log, 2, 1e30),
    ],
)
def test_functions_of_f32(kernel, function, low: float, high: float):
    x = np.random.default_rng(1).uniform(low, high, 1 << 16).astype(np.float32)
    out = np.empty_like(x)
    kernel[64,](x, out, 1024, fast_math=True)
    expected = function(x.astype(np.float64))
    ulp = np.spacing(np.abs(expected).astype(np.float32))
    assert (np.abs(out - expected) / ulp).max() <= 1.1


def test_special_numbers():
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 200.0, -200.0, 1.0] * 8, np.float32)
    out = np.empty_like(x)
    exp[1,](x, out, 64, fast_math=True)
    assert np.array_equal(out[:7], [np.inf, 0, np.nan, 1, 1, np.inf, 0], equal_nan=True)


def test_the_ends_of_the_range_and_payloads_of_nan():
    """The numbers beside the largest number with a finite power, and NaN of all kinds."""
    top = np.float32(88.72283)
    x = np.arange(0x7FC00000, 0x7FC00000 + 64 * 32, 32).astype(np.uint32).view(np.float32)
    x[:2] = top, np.nextafter(top, np.float32(np.inf))
    out = np.empty_like(x)
    exp[1,](x, out, 64, fast_math=True)
    assert np.isfinite(out[0]) and out[1] == np.inf and np.isnan(out[2:]).all()


def test_the_option_of_compile_is_another_kernel():
    types = (zg.ptr(zg.f32), zg.ptr(zg.f32), SIZE)
    exact, fast = (softmax.compile(*types, target="cpu", fast_math=given) for given in (False, True))
    assert exact.asm != fast.asm
    x = np.ones((1, SIZE), np.float32)
    out = np.empty_like(x)
    fast[1,](x, out)
    assert (out == 1 / SIZE).all()


@zg.kernel
def counted(x_ptr, out_ptr, seen_ptr, BLOCK: zg.constexpr):
    turn = zg.atomic_add(seen_ptr, 1)
    x = zg.load(zg.add(x_ptr, zg.add(turn * BLOCK, zg.arange(0, BLOCK))))
    zg.atomic_add(out_ptr, zg.sum(x, axis=0))


@pytest.mark.parametrize("fast_math", (False, True))
def test_atomics_on_all_threads(fast_math: bool):
    """Each program takes another block, whatever the order; only with `fast_math` may the sums round in another way."""
    x = np.random.default_rng(2).standard_normal((4096, 64)).astype(np.float32)
    out, seen = np.zeros(1, np.float32), np.zeros(1, np.int32)
    types = [zg.ptr(zg.f32), zg.ptr(zg.f32), zg.ptr(zg.i32), 64]
    compiled = counted.compile(*types, target="cpu", fast_math=fast_math)
    assert compiled.code.ordered is not fast_math
    threads = zg.get_num_threads()
    try:
        zg.set_num_threads(4)
        counted[4096,](x, out, seen, 64, fast_math=fast_math)
    finally:
        zg.set_num_threads(threads)
    assert seen[0] == 4096 and abs(out[0] - x.sum(dtype=np.float64)) < 1e-2
    if not fast_math:
        expected, again = np.zeros(1, np.float32), np.zeros(1, np.int32)
        counted[4096,](x, expected, again, 64, interpret=True)
        assert out[0] == expected[0]
