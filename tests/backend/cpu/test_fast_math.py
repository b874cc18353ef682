"""`fast_math` gives up the interpreter's bits, and keeps within the bounds of docs/reference/accuracy.md."""

import math
import platform
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest
from native_machines import host_without

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu, to_assembly, vector_bytes
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.jit.loading import host

ROWS, SIZE = 64, 1024
WIDE = vector_bytes(host()[1]) == 64  # Vectors of AVX-512.


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


@zg.kernel
def tanh(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(out_ptr, at), zg.tanh(zg.load(zg.add(x_ptr, at))))


@zg.kernel
def erf(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(out_ptr, at), zg.erf(zg.load(zg.add(x_ptr, at))))


@zg.kernel
def shares(x_ptr, divisor_ptr, out_ptr, BLOCK: zg.constexpr):
    row = zg.program_id(0)
    at = zg.add(row * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(out_ptr, at), zg.div(zg.load(zg.add(x_ptr, at)), zg.load(zg.add(divisor_ptr, row))))


def test_quotients_by_one_number_of_a_row():
    """They are within 2 ulp; divisors that have no ordinary reciprocal divide."""
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, SIZE)).astype(np.float32)
    divisors = np.exp2(random.uniform(-59, 60, ROWS)).astype(np.float32)
    divisors[:6] = 0, np.inf, np.nan, 1e-44, -3e38, -0.0
    fast = np.empty_like(x)
    shares[ROWS,](x, divisors, fast, SIZE, fast_math=True)
    with np.errstate(all="ignore"):
        exact = x / divisors[:, None]
    np.testing.assert_array_equal(fast[:6], exact[:6])
    assert (fast != exact).sum() > 64 or platform.machine() not in ("x86_64", "AMD64")  # Without AVX2 it divides.
    np.testing.assert_array_max_ulp(fast[6:], exact[6:], 2)


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
    "kernel, function, low, high, most",
    [
        (exp, np.exp, -80, 80, 1.1),
        (exp, np.exp, -87.3, -80, 1.1),
        (exp, np.exp, 80, 88.7, 1.1),
        (exp2, np.exp2, -126, 128, 1.1),
        (log, np.log, 2, 1e30, 1.1),
        (tanh, np.tanh, -12, 12, 0.51 if WIDE else 1.8),
        (erf, np.vectorize(math.erf), -5, 5, 0.51 if WIDE else 1.2),
    ],
)
def test_functions_of_f32(kernel, function, low: float, high: float, most: float):
    x = np.random.default_rng(1).uniform(low, high, 1 << 16).astype(np.float32)
    out = np.empty_like(x)
    kernel[64,](x, out, 1024, fast_math=True)
    expected = function(x.astype(np.float64))
    ulp = np.spacing(np.abs(expected).astype(np.float32))
    assert (np.abs(out - expected) / ulp).max() <= most


@pytest.mark.parametrize("kernel", [exp, exp2, log])
def test_functions_of_f64_are_exact(kernel):
    x = np.random.default_rng(1).uniform(0.1, 80, 4096)
    exact, fast = np.empty_like(x), np.empty_like(x)
    kernel[4,](x, exact, 1024)
    kernel[4,](x, fast, 1024, fast_math=True)
    np.testing.assert_array_equal(fast, exact)


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
    exact, fast = (softmax.compile(*types, target="cpu", fast_math=argument) for argument in (False, True))
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
    out, values = np.zeros(1, np.float32), np.zeros(1, np.int32)
    types = [zg.ptr(zg.f32), zg.ptr(zg.f32), zg.ptr(zg.i32), 64]
    compiled = counted.compile(*types, target="cpu", fast_math=fast_math)
    assert compiled.code.ordered is not fast_math
    threads = zg.get_num_threads()
    try:
        zg.set_num_threads(4)
        counted[4096,](x, out, values, 64, fast_math=fast_math)
    finally:
        zg.set_num_threads(threads)
    assert values[0] == 4096 and abs(out[0] - x.sum(dtype=np.float64)) < 1e-2
    if not fast_math:
        expected, again = np.zeros(1, np.float32), np.zeros(1, np.int32)
        counted[4096,](x, expected, again, 64, interpret=True)
        assert out[0] == expected[0]


@zg.kernel
def dots(
    a_ptr, b_ptr, c_ptr, out_ptr, depth, columns, N: zg.constexpr, TRANSPOSED: zg.constexpr, DOUBLED: zg.constexpr
):
    """c + a · b in steps of 16 along k, masked. With `DOUBLED` the operands are computed and not only loaded."""
    rows, inner, n = zg.expand(zg.arange(0, 32), 1), zg.arange(0, 16), zg.arange(0, N)
    c_at = zg.add(zg.mul(rows, N), zg.expand(n, 0))
    c = zg.load(zg.add(c_ptr, c_at))
    for start in range(0, depth, 16):
        k = zg.add(inner, start)
        across, down = zg.expand(k, 0), zg.expand(k, 1)
        a = zg.load(zg.add(a_ptr, zg.add(zg.mul(rows, depth), across)), zg.less(across, depth), other=0.0)
        if TRANSPOSED:
            rest = zg.expand(n, 1)
            inside = zg.and_(zg.less(across, depth), zg.less(rest, columns))
            b = zg.trans(zg.load(zg.add(b_ptr, zg.add(zg.mul(rest, depth), across)), inside, other=0.0))
        else:
            above = zg.expand(n, 0)
            inside = zg.and_(zg.less(down, depth), zg.less(above, columns))
            b = zg.load(zg.add(b_ptr, zg.add(zg.mul(down, columns), above)), inside, other=0.0)
        if DOUBLED:
            a, b = zg.add(a, a), zg.add(b, b)
        c = zg.dot(a, b, c)
    zg.store(zg.add(out_ptr, c_at), c)


def dots_model(n: int, transposed: bool, doubled: bool = False) -> Any:
    p, q = zg.ptr(zg.bf16), zg.ptr(zg.f32)
    return dots.triton(p, p, q, q, zg.i32, zg.i32, n, transposed, doubled)


def flushed(x: Any) -> Any:
    return np.where(np.abs(x) < 2.0**-126, 0, x)


def by_pairs(a: Any, b: Any, c: Any) -> Any:
    """The results of vdpbf16ps. Products of bf16, and here their sums with f32, are exact in f64."""
    a, b = (flushed(x.astype(np.float64)) for x in (a, b))
    for k in range(0, a.shape[1], 2):
        for at in (k + 1, k):
            if at < a.shape[1]:
                c = flushed((flushed(c).astype(np.float64) + a[:, at, None] * b[at]).astype(np.float32))
    return c


@pytest.mark.skipif("+avx512bf16" not in host()[1].split(","), reason="this machine does not multiply pairs of bf16")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "n, columns, depth, doubled",
    [
        (64, 64, 32, False),
        (64, 64, 32, True),
        (128, 128, 16, False),
        (64, 50, 27, False),
        (8, 7, 32, True),
        (4, 4, 16, False),
    ],
)
def test_dots_of_bf16_are_chains_of_pairs(n: int, columns: int, depth: int, doubled: bool, transposed: bool):
    random = np.random.default_rng(n)
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((32, depth), (depth, n)))
    b[:, columns:] = 0
    c = random.standard_normal((32, n)).astype(np.float32)
    model, factor = dots_model(n, transposed, doubled), 2 if doubled else 1
    machine = host_without("amx")  # Where there are matrix units, pairs are slower.
    fast, exact = (compile_cpu(model, attrs.evolve(machine, fast_math=argument)) for argument in (True, False))
    for scale in (1.0, 2.0**-65):  # Then products are subnormal.
        x, y, z = a * a.dtype.type(scale), b * b.dtype.type(scale), c * np.float32(scale**2)
        packed = np.ascontiguousarray(y[:, :columns].T if transposed else y[:, :columns])
        actual = np.empty_like(c), np.empty_like(c)
        for out, code in zip(actual, (fast, exact), strict=True):
            NativeKernel(code, "dots").launch((1, 1, 1), "abcodn", [x, packed, z, out, depth, columns])
        np.testing.assert_array_equal(actual[0], by_pairs(x * factor, y * factor, z))
        assert (actual[0] != actual[1]).any()  # Another order of the sums, and subnormal ones.


@zg.kernel
def product_of_tiles(
    a_ptr, b_ptr, out_ptr, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, TRANSPOSED: zg.constexpr
):
    rows, inner, columns = zg.arange(0, M), zg.arange(0, K), zg.arange(0, N)
    a = zg.load(zg.add(a_ptr, zg.add(zg.mul(zg.expand(rows, 1), K), zg.expand(inner, 0))))
    if TRANSPOSED:
        b = zg.trans(zg.load(zg.add(b_ptr, zg.add(zg.mul(zg.expand(columns, 1), K), zg.expand(inner, 0)))))
    else:
        b = zg.load(zg.add(b_ptr, zg.add(zg.mul(zg.expand(inner, 1), N), zg.expand(columns, 0))))
    c_at = zg.add(out_ptr, zg.add(zg.mul(zg.expand(rows, 1), N), zg.expand(columns, 0)))
    zg.store(c_at, zg.dot(a, b, zg.load(c_at)))


def by_tiles(a: Any, b: Any, c: Any) -> Any:
    """The results of tdpbf16ps, which sums even and odd numbers along k apart, in runs of a tile's."""
    a, b = (flushed(x.astype(np.float64)) for x in (a, b))
    step = min(32, a.shape[1])
    for start in range(0, a.shape[1], step):
        halves = []
        for first in (0, 1):
            total = np.zeros(c.shape, np.float32)
            for k in range(start + first, start + step, 2):
                total = flushed((total.astype(np.float64) + a[:, k, None] * b[k]).astype(np.float32))
            halves.append(total)
        c = flushed(flushed(c) + flushed(halves[0] + halves[1]))
    return c


@pytest.mark.skipif("+amx-bf16" not in host()[1].split(","), reason="this machine has no matrix units for bf16")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [(16, 16, 32), (32, 64, 64), (64, 32, 16), (64, 16, 128)], ids=str)
def test_dots_of_bf16_by_tiles(sizes: tuple[int, int, int], transposed: bool):
    m, n, k = sizes
    if transposed and k % 32:
        pytest.skip("tiles of half a row are not transposed")
    random = np.random.default_rng(m)
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    c = random.standard_normal((m, n)).astype(np.float32)
    p = zg.ptr(zg.bf16)
    code = compile_cpu(product_of_tiles.triton(p, p, zg.ptr(zg.f32), m, n, k, transposed), CpuOptions(fast_math=True))
    assert "tdpbf16ps" in code.llvm and "tilerelease" in code.llvm
    for scale in (1.0, 2.0**-65):
        x, y, out = a * a.dtype.type(scale), b * b.dtype.type(scale), c * np.float32(scale**2)
        expected = by_tiles(x, y, out)
        packed = np.ascontiguousarray(y.T) if transposed else y
        NativeKernel(code, "product_of_tiles").launch((1, 1, 1), "abo", [x, packed, out])
        np.testing.assert_array_equal(out, expected)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="machines of x86-64")
@pytest.mark.parametrize("transposed", [False, True])
def test_the_instructions_for_pairs_of_bf16(transposed: bool):
    wide = "+avx,+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
    for cpu, features, fast_math, paired in (
        ("cooperlake", wide + ",+avx512bf16", True, True),
        ("znver4", wide + ",+avx512bf16", True, True),
        ("znver4", wide + ",+avx512bf16", False, False),
        ("sapphirerapids", wide + ",+avx512bf16,+amx-bf16", True, False),
        ("skylake-avx512", wide, True, False),
    ):
        options = CpuOptions(cpu, features, fast_math=fast_math)
        assert ("vdpbf16ps" in to_assembly(compile_cpu(dots_model(64, transposed), options).llvm, options)) == paired
