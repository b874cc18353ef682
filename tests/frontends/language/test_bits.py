"""Functions of the bits of integers: all numbers of 8 bits, and their instructions."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg

BITS = ("popc", "clz", "brev")


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
    ones, zeros, reversed_bits = np.zeros(256, np.int32), np.zeros(256, np.int32), np.zeros(256, dtype)
    counted[(1,)](x, ones, zeros, reversed_bits, 256)
    texts = [f"{number:08b}" for number in range(256)]
    assert ones.tolist() == [text.count("1") for text in texts]
    assert zeros.tolist() == [len(text) - len(text.lstrip("0")) for text in texts]
    assert reversed_bits.view(np.uint8).tolist() == [int(text[::-1], 2) for text in texts]


@pytest.mark.parametrize(("dtype", "suffix"), [(zg.i32, "b32"), (zg.u32, "b32"), (zg.i64, "b64"), (zg.u64, "b64")])
def test_each_is_one_instruction(dtype, suffix: str):
    pointers = (zg.ptr(dtype), zg.ptr(zg.i32), zg.ptr(zg.i32), zg.ptr(dtype))
    ptx = counted.compile(*pointers, 128, target="sm_90a").ptx
    assert [ptx.count(f"{name}.{suffix}") for name in BITS] == [1, 1, 1]
    model = counted.triton(*pointers, 128)
    assert [str(model).count(name) for name in ("math.ctpop", "math.ctlz", "math.bitreverse")] == [1, 1, 1]


def test_constants_are_folded():
    @zg.kernel
    def kernel(x_ptr):
        zg.store(x_ptr, zg.popc(zg.cast(-1, zg.i16)) + zg.clz(zg.cast(1, zg.u8)) + zg.brev(zg.cast(1, zg.i32)))

    text = str(zg.simplify(kernel.triton(zg.ptr(zg.i32))))
    assert "math." not in text and str(16 + 7 - 2**31) in text


def test_triton_has_the_functions_of_libdevice():
    text = zg.to_mlir(counted.triton(zg.ptr(zg.i64), zg.ptr(zg.i32), zg.ptr(zg.i32), zg.ptr(zg.i64), 128))
    assert [text.count(f"__nv_{name}ll") for name in BITS] == [1, 1, 1]
