"""Hints that are written as statements: `tl.multiple_of(x, 16)` holds for x from there on."""

import numpy as np

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl


@triton.jit
def add_rows(x_ptr, out_ptr, offset, stride, steps, HINTED: tl.constexpr):
    at = tl.arange(0, 128)
    x_ptrs = x_ptr + offset + at
    total = tl.zeros((128,), tl.float32)
    for _ in range(steps):
        if HINTED:
            tl.multiple_of(x_ptrs, 16)
        total += tl.load(x_ptrs)
        x_ptrs += stride
    tl.store(out_ptr + at, total)


@triton.jit
def a_constant(out_ptr, stride, BLOCK: tl.constexpr):
    tl.multiple_of(BLOCK, 8)
    tl.multiple_of(stride, 2)
    tl.store(out_ptr + tl.arange(0, BLOCK), stride)


TYPES = (zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32, zg.i32)


def test_a_hint_reaches_the_pointers_of_a_loop() -> None:
    wide = {hinted: "ld.global.v4" in add_rows.compile(*TYPES, hinted, num_warps=1).ptx for hinted in (False, True)}
    assert wide == {False: False, True: True}


def test_hints_change_no_result() -> None:
    x, out = np.arange(512, dtype=np.float32), np.zeros(128, np.float32)
    add_rows[(1,)](x, out, 128, 128, 3, HINTED=True)
    assert np.array_equal(out, x.reshape(4, 128)[1:].sum(0))


def test_hints_of_arguments_and_constants() -> None:
    out = np.zeros(16, np.int32)
    a_constant[(1,)](out, 4, BLOCK=16)
    assert np.array_equal(out, np.full(16, 4))
    a_constant[(1,)](out, 1, BLOCK=16)  # An argument of 1 is a constant.
    assert np.array_equal(out, np.ones(16))
