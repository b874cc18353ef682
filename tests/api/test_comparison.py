"""`zg.testing.assert_same`."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith


@zg.kernel
def twice(x, out):
    at = zg.arange(0, 8)
    zg.store(zg.add(out, at), zg.add(zg.load(zg.add(x, at)), zg.load(zg.add(x, at))))


MODEL = twice.triton(zg.ptr(zg.f32), zg.ptr(zg.f32))
INPUTS = [np.arange(8, dtype=np.float32), np.zeros(8, np.float32)]


def test_models_that_do_the_same():
    zg.testing.assert_same(MODEL, zg.simplify(MODEL), INPUTS)
    assert not INPUTS[1].any()  # What the models wrote is taken back.


def test_models_that_differ():
    def multiply(builder, op, operands):
        return builder.add(arith.MulF(*operands)) if isinstance(op, arith.AddF) else None

    with pytest.raises(AssertionError) as error:
        zg.testing.assert_same(MODEL, zg.transform(MODEL, multiply), INPUTS)
    message = str(error.value)
    assert "argument 1 differs after the second model" in message
    assert "arith.addf" in message and "+" in message and "arith.mulf" in message


def test_small_differences_may_pass():
    zg.testing.assert_same(MODEL, MODEL, INPUTS, rtol=1e-6)


@zg.kernel
def far(x, out):
    zg.store(zg.add(out, 8), zg.load(x))


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_model_that_fails_is_named(which):
    models = [MODEL, far.triton(zg.ptr(zg.f32), zg.ptr(zg.f32))]
    with pytest.raises(zg.MemoryAccessError, match=rf"the {which} model: program \(0, 0, 0\) writes arg1\[8\]"):
        zg.testing.assert_same(*(models if which == "second" else models[::-1]), INPUTS)


@zg.kernel
def fill(desc, VALUE: zg.constexpr):
    desc.store((0, 0), zg.full((4, 16), VALUE, zg.f32))


def test_arrays_of_descriptors_are_compared():
    models = [fill.triton(zg.descriptor((4, 16), zg.f32), value) for value in (2.0, 7.0)]
    array = np.ones((4, 16), np.float32)
    with pytest.raises(AssertionError, match="argument 0 differs"):
        zg.testing.assert_same(*models, [zg.TensorDescriptor(array, (4, 16))])
    assert (array == 1).all()


@zg.kernel
def store_both(a, b, FIRST: zg.constexpr):
    if FIRST:
        zg.store(a, 1.0)
        zg.store(b, 2.0)
    else:
        zg.store(b, 2.0)
        zg.store(a, 1.0)


class Wrapper:
    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array


def test_inputs_keep_their_memory():
    models = [store_both.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), first) for first in (True, False)]
    array = np.zeros(1, np.float32)
    zg.testing.assert_same(*models, [array, np.zeros(1, np.float32)])
    with pytest.raises(AssertionError, match="argument 0 differs"):
        zg.testing.assert_same(*models, [array, array])
    with pytest.raises(AssertionError, match="argument 0 differs"):
        zg.testing.assert_same(*models, (wrapper for wrapper in (Wrapper(array), Wrapper(array))))
    assert not array.any()


def test_a_grid_without_programs_shows_nothing():
    with pytest.raises(zg.LaunchError, match="must have a program; got 0"):
        zg.testing.assert_same(MODEL, MODEL, INPUTS, grid=0)
