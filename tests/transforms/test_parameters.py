"""Parameters as constants, and constants as parameters."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith
from ziggurat.transforms import kit


@zg.kernel
def divide(x_ptr, n, by, B: zg.constexpr):
    at = zg.add(x_ptr, zg.arange(0, B))
    zg.store(at, zg.add(zg.load(at), n // by + n * by))


def test_a_specialized_kernel_takes_one_argument_less_and_computes_the_same():
    model = divide.triton(zg.divisible(zg.ptr(zg.i32)), zg.i32, zg.divisible(zg.i32, 4), 4)
    known = kit.specialize(model, {1: -7})
    zg.verify(known)
    func = kit.kernel_of(known)
    assert [str(p.type) for p in func.body.parameters] == ["ptr<i32>", "i32"]
    assert func.divisibility == (16, 4)
    before, after = np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    zg.run(model, (1,), before, -7, 4)
    zg.run(known, (1,), after, 4)
    assert after.tolist() == before.tolist() == [-29, -28, -27, -26]  # -7 // 4 is -1 on the machine, not -2.


def test_nothing_known_changes_nothing():
    model = divide.triton(zg.ptr(zg.i32), zg.i32, zg.i32, 4)
    assert kit.specialize(model, {}) is model


def test_a_parameter_that_is_not_there():
    model = divide.triton(zg.ptr(zg.i32), zg.i32, zg.i32, 4)
    for number in (0, 3, "n"):
        with pytest.raises(zg.BuildError, match=f"has no numeric parameter {number!r}") as caught:
            kit.specialize(model, {number: 1})
        assert caught.value.hint == "the numbers of its numeric parameters: 1, 2"


def test_a_constant_becomes_a_parameter_again():
    model = divide.triton(zg.ptr(zg.i32), zg.i32, zg.i32, 4)
    general = kit.unspecialize(kit.specialize(model, {1: 9}), lambda op: op.value == 9)
    zg.verify(general)
    assert [str(p.type) for p in kit.kernel_of(general).body.parameters] == ["ptr<i32>", "i32", "i32"]
    for n in (9, 100):
        before, after = np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)
        zg.run(model, (1,), before, n, 4)
        zg.run(general, (1,), after, 4, n)
        assert after.tolist() == before.tolist()


def test_chosen_constants_must_be_one_number():
    model = kit.specialize(divide.triton(zg.ptr(zg.i32), zg.i32, zg.i32, 4), {1: 9, 2: 3})
    with pytest.raises(zg.BuildError, match=r"must be one number of a scalar type; got 3 : i32, 9 : i32"):
        kit.unspecialize(model, lambda op: isinstance(op, arith.ConstantOp) and op.value in (3, 9))
    with pytest.raises(zg.BuildError, match="got none"):
        kit.unspecialize(model, lambda op: False)
