"""8-bit floats of Triton's language that no op knows: fp8e4b15, and those of other makers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.runtime.driver import HostDriver

CODES = np.arange(256, dtype=np.uint8)
# Every code as a number: 4 bits of an exponent of bias 15, 3 of a mantissa, nothing that is infinite or NaN.
EXPONENTS, MANTISSAS = (CODES >> 3 & 15).astype(int), CODES & 7
SIZES = np.where(EXPONENTS, (8 + MANTISSAS) * 2.0 ** (EXPONENTS - 18), MANTISSAS * 2.0**-17)
NUMBERS = np.where(CODES & 128, -SIZES, SIZES)


def narrowed(numbers: Any) -> Any:
    """The codes of f16 numbers: at most 1.75, halves away from zero, NaN as 1.75."""
    sizes = np.minimum(np.nan_to_num(np.abs(numbers.astype(np.float64)), nan=9.0, posinf=9.0), 1.75)
    largest = np.searchsorted(SIZES[:127], sizes, side="right") - 1
    above = np.minimum(largest + 1, 126)
    code = np.where(sizes - SIZES[largest] >= SIZES[above] - sizes, above, largest)
    return (np.where(largest == 126, 126, code) | np.where(np.signbit(numbers), 128, 0)).astype(np.uint8)


@triton.jit
def widen(codes, half, single):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    x = tl.load(codes + at).to(tl.float8e4b15, bitcast=True)
    tl.static_assert(x.dtype == tl.float8e4b15 and x.dtype.is_fp8())
    tl.store(half + at, x.to(tl.float16))
    tl.store(single + at, x)


def test_every_code_becomes_its_number(launch: Any):
    half, single = np.zeros(256, np.float16), np.zeros(256, np.float32)
    launch(widen, 4, [CODES, half, single])
    assert (half == NUMBERS).all() and (single == NUMBERS).all()


@triton.jit
def narrow(x, codes):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(codes + at, tl.load(x + at).to(tl.float8e4b15).to(tl.uint8, bitcast=True))


def test_every_half_is_rounded(launch: Any):
    x, codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16), np.zeros(1 << 16, np.uint8)
    launch(narrow, 1024, [x, codes], thorough=False)
    assert (codes == narrowed(x)).all()


@triton.jit
def filled(codes, NUMBER: tl.constexpr):
    tl.store(codes + tl.arange(0, 2), tl.full((2,), NUMBER, tl.float8e4b15).to(tl.uint8, bitcast=True))


@pytest.mark.parametrize(
    ("number", "code"), [(1.0624999, 0x78), (1.0625, 0x79), (-1.0, 0xF8), (2.0**-17, 1), (9.0, 126)]
)
def test_constants_are_cut_as_single_floats_are(launch: Any, number: float, code: int):
    codes = np.zeros(2, np.uint8)
    launch(filled, 1, [codes], NUMBER=number)
    assert codes.tolist() == [code, code]


def test_single_floats_are_cut_to_halves(launch: Any):
    x = np.array([*NUMBERS, 1.0624, 1.0625, 1.0626, 3e38, np.inf, -np.inf, np.nan, 1e-30], np.float32)
    x = np.resize(x, 320)
    codes = np.zeros(320, np.uint8)
    launch(narrow, 5, [x, codes])
    bits = np.clip(np.abs(np.where(np.isnan(x), 9, x)), 0, 9).view(np.uint32) & ~np.uint32(0x1FFF)
    assert (codes == narrowed(np.copysign(bits.view(np.float32).astype(np.float16), x))).all()


@triton.jit
def pick(x, flag):
    if flag > 1:
        return x
    return tl.zeros(x.shape, x.dtype)


@triton.jit
def moved(codes, x, out, n):
    to = codes.to(tl.pointer_type(tl.float8e4b15), bitcast=True)
    at = tl.arange(0, 16)
    tl.store(to + at, tl.load(x + at), mask=at < 8)
    tl.debug_barrier()  # The threads that read an element need not be those that wrote it.
    numbers = tl.load(to + at, mask=at < 12, other=1.5)
    total = tl.zeros((16,), tl.float32)
    for _ in range(n):
        numbers = tl.reshape(tl.trans(tl.reshape(numbers, [4, 4])), [16])
        numbers, same = tl.join(numbers, numbers).split()
        total += pick(same, n).to(tl.float32)
    tl.store(out + at, total)
    tl.store(out + 16, tl.full((), 0.25, tl.float8e4b15).to(tl.float32))


def test_it_is_loaded_stored_and_moved(launch: Any):
    x, out = np.linspace(-2, 2, 16).astype(np.float16), np.zeros(17, np.float32)
    codes = CODES[:16].copy()
    launch(moved, 1, [codes, x, out, 2])
    assert (codes[:8] == narrowed(x[:8])).all() and (codes[8:] == CODES[8:16]).all()
    expected = np.where(np.arange(16) < 12, NUMBERS[codes], 1.5)
    assert out.tolist() == [*(expected + expected.reshape(4, 4).T.ravel()), 0.25]


@triton.jit
def product(x, y, z):
    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    a, b = tl.load(x + at).to(tl.float8e4b15, bitcast=True), tl.load(y + at).to(tl.float8e4b15)
    tl.store(z + at, tl.dot(a, b))


def test_a_product_is_one_of_halves(launch: Any):
    x, y = np.resize(CODES, (32, 32)), np.random.default_rng(0).uniform(-1, 1, (32, 32)).astype(np.float16)
    z = np.zeros((32, 32), np.float32)
    with pytest.warns(zg.ZigguratWarning, match="the use of fp8e4b15 is deprecated on Hopper"):
        launch(product, 1, [x, y, z])
    np.testing.assert_allclose(z, NUMBERS[x] @ NUMBERS[narrowed(y)], rtol=1e-5, atol=1e-4)


@triton.jit
def added(out):
    x = tl.zeros((16,), tl.float8e4b15)
    tl.store(out, tl.sum((x + x).to(tl.float32)))


@triton.jit
def from_integers(out):
    tl.store(out, tl.arange(0, 16).to(tl.float8e4b15).to(tl.float32))


@triton.jit
def of_another_maker(out):
    tl.store(out, tl.zeros((16,), tl.float8e4b8))


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (added, "does not work on fp8e4b15"),
        (from_integers, "fp8e4b15 is converted to and from fp16 and fp32 only"),
        (of_another_maker, "type fp8e4b8 not supported in this architecture. The supported fp8 dtypes are"),
    ],
)
def test_what_it_is_not_for_is_refused(kernel: Any, words: str):
    with pytest.raises(triton.CompilationError) as error_info:
        kernel.triton(zg.ptr(zg.f32))
    assert words in str(error_info.value)


def test_tensors_are_read_as_it(monkeypatch: pytest.MonkeyPatch):
    torch = require("torch")
    monkeypatch.setattr(triton.runtime.driver, "active", HostDriver())  # Tensors in host memory, on any machine.
    out = torch.zeros(256)

    @triton.jit
    def read(x, out):
        at = tl.arange(0, 256)
        tl.store(out + at, tl.load(x + at))

    codes = torch.from_numpy(CODES.copy())
    launch = read[(1,)](triton.reinterpret(codes, tl.float8e4b15), out)
    assert (out.numpy() == NUMBERS).all() and launch.src.signature["x"] == "*fp8e4b15"
    with pytest.raises(triton.CompilationError, match="type fp8e5b16 not supported in this architecture"):
        read[(1,)](triton.reinterpret(codes, tl.float8e5b16), out)
