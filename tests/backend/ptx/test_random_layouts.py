"""Every type through random layouts and the ops that move elements, on a simulated GPU, against the interpreter.

All launches of the language's tests go through random layouts with `pytest tests/language --random-layouts SEED`, and
`--on-gpu` or `--simulated`; here is what there is time for each time.
"""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from random_layouts import scatter

import ziggurat as zg
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.compiler.compiled import Compiled
from ziggurat.transforms.gpu import gpu_passes
from ziggurat.transforms.gpu.hazards import hazards

SIZE = 64
DTYPES: dict[str, Any] = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64,
}  # fmt: skip
K = zg.CompareKind


@zg.kernel
def moved(x_ptr, y_ptr, N: zg.constexpr):
    """Elementwise ops, shapes, a select by a comparison."""
    at = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, at))
    square = zg.reshape(zg.add(x, x), (N // 8, 8))
    transposed = zg.reshape(zg.trans(square), (N,))
    pairs = zg.join(transposed, x)
    first, second = zg.split(pairs)
    zg.store(zg.add(y_ptr, at), zg.where(zg.compare(second, first, K.LESS_THAN), first, zg.sub(second, first)))


@zg.function
def larger(a, b):
    return zg.maximum(a, b)


@zg.kernel
def combined(x_ptr, y_ptr, N: zg.constexpr):
    """Reductions and scans along both axes, broadcast again, and a reversal by a gather."""
    at = zg.arange(0, N)
    x = zg.reshape(zg.load(zg.add(x_ptr, at)), (N // 8, 8))
    low = zg.expand(zg.min(x, axis=0), 0)
    high = zg.expand(zg.max(x, axis=1), 1)
    along = zg.associative_scan(zg.maximum(x, low), 0, larger)
    flat = zg.reshape(zg.where(zg.compare(along, high, K.EQUAL), low, along), (N,))
    zg.store(zg.add(y_ptr, at), zg.gather(flat, zg.sub(N - 1, at), 0))


@zg.kernel
def ordered(x_ptr, y_ptr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(y_ptr, at), zg.sort(zg.load(zg.add(x_ptr, at))))


@zg.kernel
def counted(x_ptr, counts_ptr, old_ptr, N: zg.constexpr):
    """A histogram, and atomics whose old values are kept."""
    at = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, at))
    counts = zg.histogram(x, 16)
    bins = zg.arange(0, 16)
    old = zg.atomic_add(zg.add(counts_ptr, bins), counts)
    zg.store(zg.add(old_ptr, bins), old)
    zg.atomic_add(zg.add(counts_ptr, zg.add(16, bins)), zg.mul(bins, counts), zg.compare(bins, 7, K.GREATER_THAN))


@zg.kernel
def multiplied(a_ptr, b_ptr, c_ptr, N: zg.constexpr):
    """A product of small integers, exact in any order of its sums."""
    rows = zg.expand(zg.arange(0, N), 1)
    at = zg.add(zg.mul(rows, N), zg.expand(zg.arange(0, N), 0))
    product = zg.dot(zg.load(zg.add(a_ptr, at)), zg.load(zg.add(b_ptr, at)))
    zg.store(zg.add(c_ptr, at), zg.sub(product, zg.expand(zg.sum(product, 1), 1)))


def compiled(kernel: Any, types: list[Any], num_warps: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """Place with the step that draws layouts after the one that assigns them."""
    assigning = ("assign", dict(gpu_passes.PLACE)["assign"])
    drawing = ("scatter", lambda op, _: scatter(op, seed))
    monkeypatch.setattr(gpu_passes, "PHASES", gpu_passes.replaced("assign", assigning, drawing))
    binary = kernel.compile(*types, num_warps=num_warps)
    zg.verify(binary.stages["gpu"])
    assert hazards(binary.stages["gpu"]) == []
    return binary


def check(kernel: Any, arrays: list[Any], size: int, num_warps: int, seed: int, monkeypatch: Any) -> None:
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    types = [zg.ptr(getattr(zg, names[array.dtype])) for array in arrays]
    binary = compiled(kernel, [*types, size], num_warps, seed, monkeypatch)
    actual, expected = ([array.copy() for array in arrays] for _ in range(2))
    simulate(binary.stages["llvm"], num_warps=num_warps, shared=binary.shared, grid=(1,), arguments=actual)
    kernel[(1,)](*expected, size, interpret=True)
    for item, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(item.view(np.uint8), other.view(np.uint8))


def numbers(dtype: Any, *shape: int) -> Any:
    """Small whole numbers, of which sums and differences are exact in every type."""
    return np.random.default_rng(0).integers(0, 30, shape).astype(dtype)


# Each kernel with two of three counts of warps for a type: both kernels together with all three.
@pytest.mark.parametrize(
    ("kernel", "dtype", "num_warps"),
    [
        pytest.param(
            kernel, dtype, (1, 4, 8)[(at + more) % 3], id=f"{kernel.name}-{dtype}-{(1, 4, 8)[(at + more) % 3]}"
        )
        for first, kernel in enumerate((moved, combined))
        for at, dtype in enumerate(DTYPES)
        for more in (first, first + 1)
    ],
)
def test_every_type(kernel, dtype, num_warps, monkeypatch):
    x = numbers(DTYPES[dtype], SIZE)
    seed = zlib.crc32(f"{kernel.name} {dtype} {num_warps}".encode())
    check(kernel, [x, np.zeros_like(x)], SIZE, num_warps, seed, monkeypatch)


@pytest.mark.parametrize(("dtype", "num_warps", "size"), [("i16", 1, 32), ("f32", 4, 32), ("i32", 8, 512)])
def test_sorting(dtype, num_warps, size, monkeypatch):
    x = numbers(DTYPES[dtype], size)
    check(ordered, [x, np.zeros_like(x)], size, num_warps, num_warps, monkeypatch)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_counting(num_warps, seed, monkeypatch):
    x = numbers(np.int32, SIZE) % 16
    check(counted, [x, np.zeros(32, np.int32), np.zeros(16, np.int32)], SIZE, num_warps, seed, monkeypatch)


@pytest.mark.parametrize(
    ("dtype", "size", "num_warps"), [("f16", 16, 1), ("f32", 16, 1), ("f16", 16, 4), ("i8", 32, 4)]
)
def test_products(dtype, size, num_warps, monkeypatch):
    a, b = numbers(DTYPES[dtype], 2, size, size) % 5
    total = np.int32 if dtype == "i8" else np.float32
    check(multiplied, [a, b, np.zeros((size, size), total)], size, num_warps, num_warps, monkeypatch)
