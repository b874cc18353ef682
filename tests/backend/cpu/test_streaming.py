"""Stores around the caches: whole lines, and what is before and after them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu, vector_bytes
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.jit.loading import host
from ziggurat.backend.launch.grids import padded
from ziggurat.codemodel.errors import MemoryAccessError
from ziggurat.transforms.cpu import vectorize

pytestmark = pytest.mark.skipif(vector_bytes(host()[1]) < 32, reason="stores that stream come with AVX2")
TYPES = {np.float32: zg.f32, np.float16: zg.f16, np.float64: zg.f64, np.int8: zg.i8}


@zg.kernel
def scaled(x_ptr, out_ptr, n, ROW: zg.constexpr):
    at = zg.add(zg.program_id(0) * ROW, zg.arange(0, ROW))
    mask = zg.less(at, n)
    x = zg.load(zg.add(x_ptr, at), mask)
    zg.store(zg.add(out_ptr, at), zg.add(x, x), mask)


@zg.kernel
def squares(x_ptr, out_ptr, ROW: zg.constexpr):
    """A kernel without masks streams rows that begin with lines."""
    at = zg.add(zg.program_id(0) * ROW, zg.arange(0, ROW))
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.mul(x, x))


MODEL = scaled.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 1024)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vectorize, "STREAMED", 1)


def placed(size: int, dtype: Any, offset: int) -> tuple[Any, Any]:
    """An array that begins so many elements after a cache line, and the array around it."""
    room = np.full(size + 256, 77, dtype)
    start = -room.ctypes.data % 64 // room.itemsize + 64 + offset
    return room[start : start + size], room


@pytest.mark.parametrize(
    "options", [CpuOptions(), CpuOptions("haswell", "+avx,+avx2,+fma,+f16c")], ids=["host", "avx2"]
)
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_that_begin_anywhere(dtype: Any, options: CpuOptions):
    pointer, size = zg.ptr(TYPES[dtype]), np.dtype(dtype).itemsize
    code = compile_cpu(scaled.triton(pointer, pointer, zg.i32, 1024), options)
    lanes = 2 * vector_bytes(code.features) // max(4, size)
    assert ("!nontemporal" in code.llvm) == (lanes * size % 64 == 0)
    kernel = NativeKernel(code, code.symbol)
    for n in (2048, 1999, 1030, 1024, 1001, 130, 64, 1):
        for offset in (0, 1, 4, 15, 31):
            out, room = placed(n, dtype, offset)
            x = (np.arange(n) % 50).astype(dtype)
            kernel.launch(padded((-(-n // 1024),)), ["x", "out", "n"], [x, out, n])
            np.testing.assert_array_equal(out, x + x)
            out[:] = 77
            assert (room == 77).all()


@pytest.mark.parametrize("offset", [0, 4, 16])
def test_a_store_without_a_mask(offset: int):
    x = np.arange(2048, dtype=np.float32)
    out, room = placed(2048, np.float32, offset)
    code = run_cpu(squares.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), 512), (4,), [x, out])
    assert "!nontemporal" in code.llvm
    np.testing.assert_array_equal(out, x * x)
    assert (room == 77).sum() == 256


def test_an_array_that_is_read_as_well_does_not_stream():
    x, _ = placed(2048, np.float32, 0)
    expected = x + x
    run_cpu(MODEL, (2,), [x, x, 2048])
    np.testing.assert_array_equal(x, expected)


def test_a_stray_store_is_an_error():
    x, out = np.ones(4096, np.float32), np.zeros(1500, np.float32)
    with pytest.raises(MemoryAccessError, match="1500"):
        run_cpu(MODEL, (4,), [x, out, 4096])
    assert (out[:1024] == 2).all()


def test_no_stream_without_its_instructions():
    assert "nontemporal" not in compile_cpu(MODEL, CpuOptions("x86-64-v2", "+sse4.2,+popcnt")).llvm
