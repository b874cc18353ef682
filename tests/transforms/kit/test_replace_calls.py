"""Replacing calls in Triton and in Python models."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, py
from ziggurat.transforms import kit


@zg.function
def activation(x):
    return zg.maximum(x, 0.0)


@zg.kernel
def apply(out, x):
    at = zg.arange(0, 8)
    zg.store(zg.add(out, at), activation(zg.load(zg.add(x, at))))


def test_a_helper_function_is_replaced():
    model = apply.triton(zg.ptr(zg.f32), zg.ptr(zg.f32))
    squared = kit.replace_calls(
        model, lambda name: name.startswith("activation"), lambda b, arguments: b.add(arith.MulF(*2 * arguments))
    )
    zg.verify(squared)
    assert len(squared.functions()) == 1  # type: ignore[attr-defined]
    x, out = np.arange(-4, 4, dtype=np.float32), np.zeros(8, np.float32)
    zg.run(squared, 1, out, x)
    assert np.array_equal(out, x * x)


def test_a_call_of_the_language_is_replaced():
    model = apply.model
    changed = kit.replace_calls(model, "zg.load", lambda b, arguments: b.add(py.Invoke(arguments, "zg.other")))
    names = [op.callee for op in changed.walk() if isinstance(op, py.Invoke)]
    assert "zg.other" in names and "zg.load" not in names


def test_a_call_that_is_not_there():
    model = apply.triton(zg.ptr(zg.f32), zg.ptr(zg.f32))
    assert kit.replace_calls(model, lambda name: name == "nothing", lambda b, arguments: arguments[0]) is model
    with pytest.raises(zg.BuildError, match="the model calls no such function as 'nothing'") as error:
        kit.replace_calls(model, "nothing", lambda b, arguments: arguments[0])
    assert error.value.hint == "it calls activation_tensor<x8, f32>_tensor<x8, f32>"
    with pytest.raises(zg.BuildError, match=r"the model calls no such function as 'zg\.lode'"):
        kit.replace_calls(apply.model, "zg.lode", lambda b, arguments: arguments[0])


def test_the_name_without_the_types_will_do():
    model = apply.triton(zg.ptr(zg.f32), zg.ptr(zg.f32))
    negated = kit.replace_calls(model, "activation", lambda b, arguments: b.add(arith.NegF(*arguments)))
    assert len(negated.functions()) == 1  # type: ignore[attr-defined]
    x, out = np.arange(-4, 4, dtype=np.float32), np.zeros(8, np.float32)
    zg.run(negated, 1, out, x)
    assert np.array_equal(out, -x)


@zg.kernel
def apply_two(out, x):
    at = zg.arange(0, 8)
    value = activation(zg.load(zg.add(x, at)))
    zg.store(zg.add(out, at), zg.add(value, activation(zg.sum(value, 0))))


@zg.function
def scaled(x, by: zg.constexpr):
    return zg.mul(x, by)


@zg.function
def scaled_twice(x):
    return zg.mul(zg.mul(x, 2.0), 2.0)


@zg.kernel
def apply_scaled(out, x):
    zg.store(out, zg.add(scaled(zg.load(x), 3.0), scaled_twice(zg.load(x))))


def test_a_name_that_begins_another_one():
    model = apply_scaled.triton(zg.ptr(zg.f32), zg.ptr(zg.f32))
    changed = kit.replace_calls(model, "scaled", lambda b, arguments: arguments[0])
    x, out = np.ones(1, np.float32), np.zeros(1, np.float32)
    zg.run(changed, 1, out, x)
    assert out[0] == 5.0
    with pytest.raises(zg.BuildError, match="calls no such function as 'scaled_tw'"):
        kit.replace_calls(model, "scaled_tw", lambda b, arguments: arguments[0])
    python = kit.replace_calls(apply_scaled.model, "zg.load", lambda b, arguments: arguments[0])
    with pytest.raises(zg.BuildError, match="no such function"):
        kit.replace_calls(python, "zg.l", lambda b, arguments: arguments[0])


def test_a_name_of_several_functions_is_refused():
    model = apply_two.triton(zg.ptr(zg.f32), zg.ptr(zg.f32))
    with pytest.raises(zg.BuildError, match="calls several functions of that name as 'activation'") as error:
        kit.replace_calls(model, "activation", lambda b, arguments: arguments[0])
    assert "activation_f32_f32" in str(error.value.hint)


@zg.function
def constant_first(N: zg.constexpr, x):
    return zg.mul(x, 2.0)


@pytest.mark.parametrize("number", [3, -3, 2.5, True, None, (1, 2)])
def test_an_instance_may_begin_with_the_value_of_a_constexpr(number):
    @zg.kernel
    def apply_constant(out, x, N: zg.constexpr):
        zg.store(out, constant_first(N, zg.load(x)))

    model = apply_constant.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), number)
    changed = kit.replace_calls(model, "constant_first", lambda b, arguments: arguments[0])
    x, out = np.ones(1, np.float32), np.zeros(1, np.float32)
    zg.run(changed, 1, out, x)
    assert out[0] == 1.0
    with pytest.raises(zg.BuildError, match="calls no such function as 'constant'"):
        kit.replace_calls(model, "constant", lambda b, arguments: arguments[0])
