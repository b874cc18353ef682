"""Annotations of parameters in explicit kernels: types that an argument has, at every launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.types import TensorType

BLOCK = TensorType((16,), zg.f32)


@zg.kernel
def scale(x, out, s: zg.f64):
    zg.store(out, zg.mul(zg.load(x), s))


@zg.kernel
def quoted(x, out, s: "zg.f64"):  # noqa: UP037
    zg.store(out, zg.mul(zg.load(x), s))


@zg.kernel
def integers(out, n: zg.i64, u: zg.u8, b: zg.i16 = 7):
    zg.static_assert(n.dtype == zg.i64 and u.dtype == zg.u8 and b.dtype == zg.i16)
    zg.store(out, n * n + zg.cast(u, zg.i64) + zg.cast(b, zg.i64))


@zg.kernel
def halves(x: zg.ptr(zg.f16), out, d: np.ndarray = None, t: anything = None, f: float = 1.0, i: int = 2):  # noqa: F821
    zg.store(out, zg.cast(zg.load(x), zg.f32) * f + zg.cast(i, zg.f32))


MODES = [{}, {}, {"interpret": True}, {"strict": True}]  # The second launch by native code is warm.


@pytest.mark.parametrize("kernel", [scale, quoted])
@pytest.mark.parametrize("number", [0.1, np.float32(0.1), np.float64(0.1), 3, True])
def test_a_number_has_the_declared_type(kernel: Any, number: Any):
    x, out = np.ones(1), np.zeros(1)
    for mode in MODES:
        out[:] = 0
        kernel[(1,)](x, out, number, **mode)
        assert out[0] == float(number)


@pytest.mark.parametrize("first", [(3, 4), (1 << 40, 200), (16, 16)])
def test_integers_must_fit_in_the_declared_type(first: tuple[int, int]):
    out = np.zeros(1, np.int64)
    for mode in MODES:
        integers[(1,)](out, *first, **mode)
        assert out[0] == np.int64((first[0] ** 2 + first[1] + 7) % 2**64)
        for n, u in ((1, 300), (1, -1), (1, 2.5), (1.5, 1), (1 << 63, 1)):
            with pytest.raises(zg.LaunchError, match=r"'[nu]' of 'integers' is declared as (i64|u8).*; got"):
                integers[(1,)](out, n, u, **mode)


def test_arrays_must_be_of_the_declared_type():
    out = np.zeros(1, np.float32)
    for mode in MODES:
        halves[(1,)](np.ones(1, np.float16), out, **mode)
        assert out[0] == 3
        with pytest.raises(zg.LaunchError, match="'x' of 'halves' is declared as ptr<f16>; got ptr<f32>"):
            halves[(1,)](np.ones(1, np.float32), out, **mode)
        with pytest.raises(zg.LaunchError, match="'x' of 'halves' is declared as ptr<f16>; got the number 3"):
            halves[(1,)](3, out, **mode)


def test_compilation_takes_the_declared_types():
    p = zg.ptr(zg.f64)
    assert "(%0 : ptr<f64>, %1 : ptr<f64>, %2 : f64)" in str(scale.triton(p, p))
    assert scale.triton(p, p, zg.f64) is scale.triton(p, p)
    with pytest.raises(zg.LaunchError, match="'s' of 'scale' is declared as f64; got f32"):
        scale.compile(p, p, zg.f32, target="sm_90a")


def test_types_that_no_argument_has_are_errors_at_the_annotation():
    @zg.kernel
    def wrong(x: BLOCK, out):
        zg.store(out, 1.0)

    words = "the annotation of 'x' must be the type of an argument; got tensor<x16"
    with pytest.raises(zg.KernelTypeError, match=words) as caught:
        wrong[(1,)](np.ones(16, np.float32), np.ones(1, np.float32))
    assert caught.value.location is not None and caught.value.location.source_line().strip().startswith("def wrong")


def test_annotations_see_the_function_around_the_kernel():
    wide = zg.f64

    @zg.kernel
    def inner(out, s: wide):
        zg.static_assert(wide == zg.f64)
        zg.store(out, s)

    out = np.zeros(1)
    inner[(1,)](out, 0.1)
    assert out[0] == 0.1


def test_operations_of_frameworks_convert_numbers():
    torch = pytest.importorskip("torch")
    operation = zg.torch_op(scale, 1, outputs={"out": "x"})
    assert operation(torch.ones(1, dtype=torch.float64), 0.1).item() == 0.1


@pytest.mark.gpu
def test_launches_on_a_gpu_convert_numbers():
    x, out = zg.to_device(np.ones(1)), zg.to_device(np.zeros(1))
    whole = zg.to_device(np.zeros(1, np.int64))
    for _ in range(80):  # The later ones are by native code.
        scale[(1,)](x, out, 0.1)
        integers[(1,)](whole, 3, 4)
    assert out.numpy()[0] == 0.1 and whole.numpy()[0] == 20
    scale[(1,)](x, out, 3)
    assert out.numpy()[0] == 3
    for n, u in ((1, 300), (3, -1), (3, 2.5), (1.5, 4), (1 << 63, 4)):
        with pytest.raises(zg.LaunchError, match="is declared as"):
            integers[(1,)](whole, n, u)
    integers[(1,)](whole, 1 << 20, 255)
    assert whole.numpy()[0] == (1 << 40) + 262
