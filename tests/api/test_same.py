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
    assert not INPUTS[1].any()  # The models run on copies.


def test_models_that_differ():
    def multiply(builder, op, operands):
        return builder.add(arith.MulF(*operands)) if isinstance(op, arith.AddF) else None

    with pytest.raises(AssertionError) as caught:
        zg.testing.assert_same(MODEL, zg.transform(MODEL, multiply), INPUTS)
    message = str(caught.value)
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
