"""Masks and offsets near the ends of the integers, natively and interpreted."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cpu.compile import compile_cpu
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.types import ScalarType, i32, i64, u32, u64

N = 64


@zg.kernel
def below(out_ptr, start, end):
    """Writes 1 where an index is below the end; `start` and `end` have one type."""
    at = zg.arange(0, N)
    index = zg.add(zg.cast(at, start.dtype), start)
    mask = zg.compare(index, end, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(out_ptr, at), 1, mask)


@zg.kernel
def remainders(out_ptr, start, end):
    """Writes 1 where the remainder of an index by the end is."""
    index = zg.add(zg.cast(zg.arange(0, N), start.dtype), start)
    place = zg.mod(index, end)
    mask = zg.and_(zg.greater_equal(place, 0), zg.less(place, N))
    zg.store(zg.add(out_ptr, zg.mod(index, end)), 1, mask)


@pytest.mark.parametrize("kernel", [below, remainders])
@pytest.mark.parametrize("type_", [i32, i64, u32, u64])
def test_indices_may_wrap_around(kernel: zg.Kernel, type_: ScalarType):
    low, high = type_.limits
    middle = high // 2
    numbers = [n for n in (-10, 0, 10, 40, low, low + 30, middle + 1, middle - 5, high - 5, high) if n >= low]
    model = kernel.triton(zg.ptr(zg.i32), type_, type_)
    native = NativeKernel(compile_cpu(model), kernel.name)
    for start in numbers:
        for end in numbers:
            if kernel is remainders and end <= 0:
                continue
            results = [np.zeros(N, np.int32) for _ in range(2)]
            native.launch((1, 1, 1), ["out", "start", "end"], [results[0], start, end])
            run(model, None, (1,), [results[1], start, end])
            np.testing.assert_array_equal(*results, err_msg=f"from {start}, below {end}")
