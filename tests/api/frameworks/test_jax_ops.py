"""Kernels as operations of JAX: eager, under `jax.jit` and `jax.grad`."""

import numpy as np
import pytest
from libraries import require

jax = require("jax")

from framework_kernels import (
    EQUAL_CONSTANTS,
    SQUARE,
    blocks,
    increment,
    one_a_row,
    one_more,
    softmax,
    sum_and_difference,
)

import ziggurat as zg

jnp = jax.numpy


@pytest.fixture(autouse=True)
def with_64_bits():
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield


def derivative(arguments, gradients):
    y, dy = arguments["out"], gradients["out"]
    return {"x": y * (dy - (dy * y).sum(1, keepdims=True))}


def run(op, x):
    return op(x, x.shape[1], x.shape[1], BLOCK=64)


def sample(*shape, dtype="float64"):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("jit", [False, True])
def test_an_output_is_made_and_returned(dtype, jit):
    op = zg.jax_op(softmax, one_a_row, {"out": "x"})
    x = sample(5, 33, dtype=dtype)
    call = jax.jit(lambda x: run(op, x)) if jit else lambda x: run(op, x)
    assert call(x).dtype == x.dtype
    np.testing.assert_allclose(
        np.asarray(call(x), "f8"), np.asarray(jax.nn.softmax(x, 1), "f8"), rtol=2e-2 if x.itemsize == 2 else 1e-6
    )


def test_equal_constants_of_different_types_have_functions_of_their_own():
    op, x = zg.jax_op(one_more, (1,), {"out": ((1,), "float64")}), jnp.ones(1, "int32")
    assert [op(x, more).item() for more, _ in EQUAL_CONSTANTS] == [expected for _, expected in EQUAL_CONSTANTS]
    assert len(op._definitions) == 3


def test_tuned_kernels_choose_what_is_tuned():
    tuned = zg.autotune([zg.Config({"BLOCK": 8}), zg.Config({"BLOCK": 16})], key=["n"], restore_value=["x"])(increment)
    op = zg.jax_op(tuned, lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),))
    assert jax.jit(lambda x: op(x, 20, 1.0))(jnp.zeros(20)).tolist() == [1.0] * 20


def test_an_array_that_is_written_is_a_result():
    op = zg.jax_op(increment, (2,))
    x = jnp.zeros(10, "float32")
    assert op(x, 9, 1.5, BLOCK=8).tolist() == [1.5] * 9 + [0]
    assert jax.jit(lambda x: op(x, 10, 1.0, BLOCK=8))(x).tolist() == [1.0] * 10
    assert x.tolist() == [0.0] * 10


@pytest.mark.parametrize("backward", [derivative, "auto"])
@pytest.mark.parametrize("jit", [False, True])
def test_gradients(backward, jit):
    op = zg.jax_op(softmax, one_a_row, "out", backward=backward)
    loss = jax.grad(lambda x: jnp.sum(run(op, x) ** 2))
    x = sample(4, 9)
    result = (jax.jit(loss) if jit else loss)(x)
    np.testing.assert_allclose(result, jax.grad(lambda x: jnp.sum(jax.nn.softmax(x, 1) ** 2))(x), rtol=1e-9, atol=1e-12)


def test_the_derived_gradient_of_a_tuned_kernel():
    op = zg.jax_op(zg.triton_c(SQUARE, SIZE=[16, 32]), blocks, "y", backward="auto")
    gradient = jax.jit(jax.grad(lambda x: op(x, 30).sum()))
    np.testing.assert_array_equal(gradient(jnp.arange(30.0, dtype="float32")), 2 * np.arange(30.0))


def test_the_derived_gradient_of_two_outputs():
    op = zg.jax_op(sum_and_difference, (1,), ("total", "difference"), backward="auto")
    x, y = sample(7), sample(7)
    result = jax.grad(lambda x, y: jnp.sum(op(x, y, 7, BLOCK=8)[1] * x), (0, 1))(x, y)
    np.testing.assert_allclose(result[0], 2 * x - y)
    np.testing.assert_allclose(result[1], -x)


def test_a_fault_of_the_kernel_is_the_error_of_the_operation():
    with pytest.raises(Exception, match=r"reads x\[10\], but x has 10 elements"):
        zg.jax_op(increment, (2,))(jnp.zeros(10), 12, 1.0, BLOCK=8)


def test_errors_of_compiling_come_while_tracing():
    with pytest.raises(zg.KernelValueError, match="power of two"):
        jax.jit(lambda x: zg.jax_op(increment, (2,))(x, 9, 1.0, BLOCK=7))(jnp.zeros(10))


def test_a_traced_number_is_refused():
    op = zg.jax_op(increment, (2,))
    with pytest.raises(zg.LaunchError, match="'n' of 'increment' must be a Python number"):
        jax.jit(lambda x, n: op(x, n, 1.0, BLOCK=8))(jnp.zeros(10), 9)


def test_vmap_is_refused():
    op = zg.jax_op(increment, (1,))
    with pytest.raises(NotImplementedError, match="vmap"):
        jax.vmap(lambda x: op(x, 4, 1.0, BLOCK=4))(jnp.zeros((3, 4)))


SECOND = {
    "gradient of a gradient": lambda f, x: jax.grad(lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(f(x)))(x) + 1) ** 2)(
        x
    ),
    "in a jitted function": lambda f, x: jax.jit(jax.grad(lambda x: jnp.sum(jax.grad(lambda x: f(x)[0, 0])(x) ** 2)))(
        x
    ),
    "jacobian": lambda f, x: jax.jacrev(f)(x),
    "jacobian of a gradient": lambda f, x: jax.jacrev(jax.grad(lambda x: jnp.sum(jnp.sin(f(x)))))(x),
}


@pytest.mark.parametrize("backward", [derivative, "auto"])
@pytest.mark.parametrize("second", SECOND.values(), ids=list(SECOND))
def test_gradients_of_gradients(backward, second):
    op, x = zg.jax_op(softmax, one_a_row, "out", backward=backward), sample(3, 5)
    result, expected = second(lambda x: run(op, x), x), second(lambda x: jax.nn.softmax(x, 1), x)
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backward", [None, derivative, "auto"])
@pytest.mark.parametrize("forward", [jax.jacfwd, jax.hessian], ids=["jacfwd", "hessian"])
def test_forward_mode_is_refused(backward, forward):
    op = zg.jax_op(softmax, one_a_row, "out", backward=backward)
    with pytest.raises((TypeError, ValueError), match=r"forward-mode|cannot be differentiated"):
        forward(lambda x: jnp.sum(run(op, x)))(sample(3, 5))
