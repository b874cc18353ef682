"""Functions of the bits of integers: their types, and all numbers of 8 bits."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.library.bits import BITS

CASES = {
    **{f"zg.{name}(t)": "tensor<x16, i32>" for name in BITS},
    "zg.popc(n)": "i32",
    "zg.clz(zg.cast(t, zg.u64))": "tensor<x16, i32>",
    "zg.brev(zg.cast(t, zg.i8))": "tensor<x16, i8>",
    **{f"zg.{name}(f)": f"error: zg.{name} takes integers" for name in BITS},
    **{f"zg.{name}(p)": f"error: zg.{name} takes integers" for name in BITS},
    **{f"zg.{name}(5)": "error: an integer of a known width" for name in BITS},
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])


@zg.kernel
def counted(x_ptr, set_ptr, zeros_ptr, turned_ptr, N: zg.constexpr):
    at = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(set_ptr, at), zg.popc(x))
    zg.store(zg.add(zeros_ptr, at), zg.clz(x))
    zg.store(zg.add(turned_ptr, at), zg.brev(x))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_every_byte(dtype: type):
    x = np.arange(256, dtype=np.uint8).view(dtype)
    ones, zeros, turned = np.zeros(256, np.int32), np.zeros(256, np.int32), np.zeros(256, dtype)
    counted[(1,)](x, ones, zeros, turned, 256)
    texts = [f"{number:08b}" for number in range(256)]
    assert ones.tolist() == [text.count("1") for text in texts]
    assert zeros.tolist() == [len(text) - len(text.lstrip("0")) for text in texts]
    assert turned.view(np.uint8).tolist() == [int(text[::-1], 2) for text in texts]
