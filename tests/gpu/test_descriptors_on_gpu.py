"""Launches with descriptors as arguments on a GPU, against NumPy and against the same launch in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from libraries import require

import ziggurat as zg
from ziggurat.backend.launch.arrays import elements

pytestmark = pytest.mark.gpu


@zg.kernel
def move_1d(x_desc, y_desc, i, k):
    y_desc.store((k,), x_desc.load((i,)))


@zg.kernel
def move_2d(x_desc, y_desc, i, j, k, m):
    y_desc.store((k, m), x_desc.load((i, j)))


@zg.kernel
def move_3d(x_desc, y_desc, i, j, k, a, b, c):
    y_desc.store((a, b, c), x_desc.load((i, j, k)))


MOVES = {1: move_1d, 2: move_2d, 3: move_3d}


def there(array: np.ndarray, block: Any, **options: Any) -> tuple[Any, zg.TensorDescriptor]:
    """The whole of a padded array on the GPU, and the descriptor of what is not padding."""
    whole = array if array.base is None else array.base
    values = zg.to_device(np.ascontiguousarray(whole))
    strides = [stride // array.itemsize for stride in array.strides]
    return values, zg.TensorDescriptor(values, block, shape=array.shape, strides=strides, **options)


def wide(shape: tuple[int, ...], room: int, dtype: Any, fill: float = 0) -> np.ndarray:
    return np.full((*shape[:-1], room), fill).astype(dtype)[..., : shape[-1]]


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


def both(x: np.ndarray, y: np.ndarray, block: Any, at: Any, padding: str = "zero", **options: Any) -> None:
    """Move a block in memory and on the GPU; the whole arrays are equal then, with what lies behind the rows."""
    kernel = MOVES[len(block)]
    _, source = there(x, block, padding=padding)
    values, target = there(y, block)
    kernel[1](source, target, *at, **options)
    kernel[1](zg.TensorDescriptor(x, block, padding=padding), zg.TensorDescriptor(y, block), *at)
    same(zg.to_host(values), y if y.base is None else y.base)


DTYPES = [np.float16, np.float32, np.float64, np.int8, np.int64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("at", [(0, 0, 0, 0), (3, 5, 1, 2), (-3, -20, 4, 8), (30, 60, -9, -7), (500, 0, 0, 0)])
def test_elements_and_places(dtype, at, rng):
    x = wide((37, 75), 96, dtype)
    x[...] = rng.integers(-8, 8, x.shape).astype(dtype)
    both(x, wide((40, 70), 80, dtype, fill=3), (16, 32), at)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("at", [(0, 0, 0, 0), (30, 60, 1, 2), (-3, -20, 4, 8)])
def test_padding_with_nan(dtype, at, rng):
    x = wide((37, 75), 96, dtype)
    x[...] = rng.standard_normal(x.shape).astype(dtype)
    both(x, wide((40, 70), 80, dtype, fill=3), (16, 32), at, "nan")


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("block", [(1, 8), (8, 8), (64, 64), (64, 128), (512, 16), (128, 256), (2, 16), (256, 32)])
def test_blocks(block, warps, rng):
    """Rows of 16 bytes to 512; more rows than one copy moves."""
    x = wide((300, 210), 224, np.float16)
    x[...] = rng.standard_normal(x.shape).astype(np.float16)
    both(x, wide((280, 250), 256, np.float16), block, (3, 7, 5, 1), num_warps=warps)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_one_axis_and_three(padding, rng):
    for at in ((0, 0), (-5, 3), (90, -2)):
        both(rng.standard_normal(100, np.float32), np.zeros(77, np.float32), (32,), at, padding)
    x = wide((3, 9, 20), 32, np.float32)
    x[...] = rng.standard_normal(x.shape)
    for at in ((0, 0, 0, 0, 0, 0), (1, -2, 5, -1, 3, 0), (2, 8, 19, 0, 0, 0)):
        both(x, wide((2, 11, 17), 24, np.float32, fill=3), (2, 8, 16), at, padding)


@zg.kernel
def scaled(x_desc, out_desc, factor, M: zg.constexpr, N: zg.constexpr):
    at = (zg.program_id(0) * M, zg.program_id(1) * N)
    out_desc.store(at, zg.cast(zg.mul(x_desc.load(at), factor), out_desc.dtype))


def test_repeated_launches(rng):
    """The same route with other addresses, shapes, strides, paddings and blocks, and back again."""
    shapes = [(64, 64), (50, 72), (64, 64), (17, 8)]
    for block, padding in (((16, 32), "zero"), ((16, 32), "nan"), ((32, 16), "zero"), ((16, 32), "zero")):
        for shape in shapes:
            x = rng.standard_normal(shape, np.float32)
            out = zg.to_device(np.full(shape, np.nan, np.float32))
            grid = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
            source = zg.TensorDescriptor(zg.to_device(x), block, padding=padding)
            scaled[grid](source, zg.TensorDescriptor(out, block), 2.0, M=block[0], N=block[1])
            np.testing.assert_array_equal(zg.to_host(out), 2 * x)


def test_what_an_array_holds_when_the_kernel_runs(rng):
    """A descriptor is of the memory, not of what was there when it was made."""
    x, out = zg.to_device(np.zeros((16, 32), np.float32)), zg.to_device(np.zeros((16, 32), np.float32))
    first, second = zg.TensorDescriptor(x, (16, 32)), zg.TensorDescriptor(out, (16, 32))
    other = rng.standard_normal((16, 32), np.float32)
    source = zg.TensorDescriptor(zg.to_device(other), (16, 32))
    scaled[(1, 1)](source, first, 3.0, M=16, N=32)
    scaled[(1, 1)](first, second, 2.0, M=16, N=32)
    np.testing.assert_array_equal(zg.to_host(out), 2 * (3 * other))


@zg.kernel
def mixed(x_desc, y_ptr, unused_desc, n, out_desc, N: zg.constexpr):
    keep = zg.arange(0, N)
    y = zg.load(zg.add(y_ptr, keep), zg.compare(keep, n, zg.CompareKind.LESS_THAN), other=0.0)
    total = zg.zeros((8, N), zg.f32)
    for row in range(0, n, 8):
        total = zg.add(total, zg.add(x_desc.load((row, 0)), y))
    out_desc.store((0, 0), total)


@pytest.mark.parametrize("n", [1, 16, 40])
def test_descriptors_among_other_arguments(n, rng):
    """In loops, beside pointers and numbers (1 is compiled in), with one that nobody uses."""
    x, y = rng.standard_normal((40, 64), np.float32), rng.standard_normal(64, np.float32)
    results: list[np.ndarray] = []
    for move in (np.copy, zg.to_device):
        arrays = [move(array) for array in (x, y, x, np.zeros((8, 64), np.float32))]
        descriptor = [zg.TensorDescriptor(arrays[index], (8, 64)) for index in (0, 2, 3)]
        mixed[1](descriptor[0], arrays[1], descriptor[1], n, descriptor[2], N=64)
        results.append(arrays[3] if isinstance(arrays[3], np.ndarray) else zg.to_host(arrays[3]))
    np.testing.assert_array_equal(results[0], results[1])


@zg.kernel
def row_products(a_desc, b_desc, c_desc, K, M: zg.constexpr, N: zg.constexpr, BLOCK_K: zg.constexpr):
    row, column = zg.program_id(0) * M, zg.program_id(1) * N
    total = zg.zeros((M, N), zg.f32)
    for k in range(0, K, BLOCK_K):
        total = zg.dot(a_desc.load((row, k)), zg.trans(b_desc.load((column, k))), total)
    c_desc.store((row, column), total)


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("shape", [(128, 128, 128), (150, 136, 208), (64, 64, 16)])
def test_products_of_blocks(shape, dtype, warps, rng):
    m, n, k = shape
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(dtype)
    c = zg.to_device(np.full((m, n), np.nan, np.float32))
    descriptor = [zg.TensorDescriptor(zg.to_device(x), (64, 64)) for x in (a, b)]
    grid = (-(-m // 64), -(-n // 64))
    row_products[grid](*descriptor, zg.TensorDescriptor(c, (64, 64)), k, M=64, N=64, BLOCK_K=64, num_warps=warps)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    # The matrix units keep few bits of the sums of 8-bit floats.
    np.testing.assert_allclose(zg.to_host(c), expected, rtol=1e-3, atol=5e-2 if a.itemsize == 1 else 1e-2)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_products_see_the_padding(padding, rng):
    """The rows of A end within a block: zeros add nothing, and NaN shows in every sum."""
    a, b = rng.standard_normal((64, 72)).astype(np.float16), rng.standard_normal((64, 128)).astype(np.float16)
    c = zg.to_device(np.zeros((64, 64), np.float32))
    left = zg.TensorDescriptor(zg.to_device(a), (64, 64), padding=padding)
    right = zg.TensorDescriptor(zg.to_device(b), (64, 64))
    row_products[(1, 1)](left, right, zg.TensorDescriptor(c, (64, 64)), 128, M=64, N=64, BLOCK_K=64)
    actual = zg.to_host(c)
    if padding == "nan":
        assert np.isnan(actual).all()
    else:
        np.testing.assert_allclose(actual, a.astype(float) @ b[:, :72].astype(float).T, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_tensors_of_torch(name, padding):
    torch = require("torch")
    dtype = getattr(torch, name)
    x = torch.randn(100, 144, device="cuda", dtype=dtype)[:, :130]
    out = torch.full((120, 160), 7, device="cuda", dtype=dtype)[:, :150]
    source = zg.TensorDescriptor(x, (32, 64), padding=padding)
    assert source.strides == (144, 1) and source.element in elements().values()
    for _ in range(2):
        scaled[(4, 3)](source, zg.TensorDescriptor(out, (32, 64)), 1.0, M=32, N=64)
    expected = torch.full_like(out, float("nan") if padding == "nan" else 0)
    expected[:100, :130] = x
    assert torch.equal(out.nan_to_num(-5.0), expected.nan_to_num(-5.0))
    assert (out._base[:, 150:] == 7).all(), "the room behind the rows is not written"


def test_a_stream_of_torch():
    """A descriptor's launch is on the stream that torch is on."""
    torch = require("torch")
    x = torch.zeros(64, 64, device="cuda")
    out = torch.zeros_like(x)
    descriptor = [zg.TensorDescriptor(tensor, (32, 32)) for tensor in (x, out)]
    scaled[(2, 2)](*descriptor, 2.0, M=32, N=32)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)  # A launch on another stream would not wait for this.
        x += 1
        scaled[(2, 2)](*descriptor, 2.0, M=32, N=32)
    stream.synchronize()
    assert (out == 2).all()


def test_arrays_on_host_and_gpu():
    here, on_gpu = np.zeros((16, 32), np.float32), zg.to_device(np.zeros((16, 32), np.float32))
    with pytest.raises(zg.LaunchError, match="'out_desc' of 'scaled' must be on a GPU, as 'x_desc' is"):
        scaled[(1, 1)](*(zg.TensorDescriptor(x, (16, 32)) for x in (on_gpu, here)), 2.0, M=16, N=32)
    with pytest.raises(zg.KernelTypeError, match="has no method 'load'") as error:
        scaled[(1, 1)](on_gpu, zg.TensorDescriptor(on_gpu, (16, 32)), 2.0, M=16, N=32)
    assert "zg.TensorDescriptor" in str(error.value.hint)
