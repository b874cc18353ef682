"""Kernels as operations of TensorFlow: eager, in a `tf.function`, and under a gradient tape."""

import numpy as np
import pytest
from libraries import require

tf = require("tensorflow")

from framework_kernels import increment, one_a_row, softmax

import ziggurat as zg
from ziggurat.frameworks.tensorflow_ops import TensorflowOperation


def derivative(arguments, gradients):
    y, dy = arguments["out"], gradients["out"]
    return {"x": y * (dy - tf.reduce_sum(dy * y, 1, keepdims=True))}


def run(op, x):
    return op(x, 33, 33, BLOCK=64)


def modes(function):
    """The function as it is, and as a graph."""
    return [function, tf.function(function)]


def sample(dtype=np.float64):
    return tf.constant(np.random.default_rng(0).standard_normal((5, 33)), dtype)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_an_output_is_made_and_returned(dtype):
    op, x = TensorflowOperation(softmax, one_a_row, {"out": "x"}), tf.cast(sample(), dtype)
    expected = tf.nn.softmax(tf.cast(x, tf.float64))
    for call in modes(lambda x: run(op, x)):
        y = call(x)
        assert y.dtype == dtype and y.shape == x.shape
        np.testing.assert_allclose(tf.cast(y, tf.float64), expected, rtol=2e-2 if dtype.size == 2 else 1e-5)


def test_an_array_that_is_written_is_a_result():
    op, x = TensorflowOperation(increment, (2,)), tf.zeros(10)
    for call in modes(lambda x: op(x, 9, 1.5, BLOCK=8)):
        assert call(x).numpy().tolist() == [1.5] * 9 + [0]
    assert x.numpy().tolist() == [0.0] * 10


@pytest.mark.parametrize("backward", [derivative, "auto"])
def test_gradients(backward):
    op, x = TensorflowOperation(softmax, one_a_row, "out", backward), sample()

    def gradient(function):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(function(x)))
        return tape.gradient(loss, x)

    expected = gradient(tf.nn.softmax)
    for call in modes(lambda x: run(op, x)):
        np.testing.assert_allclose(gradient(call), expected, rtol=1e-9, atol=1e-12)


def by_hand(arguments, gradients):
    y, dy = arguments["out"], gradients["out"]
    return {"x": y * (dy - tf.reduce_sum(dy * y, 1, keepdims=True))}


@pytest.mark.parametrize("backward", ["auto", by_hand])
def test_second_derivatives_and_forward_mode(backward):
    op = TensorflowOperation(softmax, one_a_row, "out", backward=backward)
    x = tf.constant(np.random.default_rng(0).standard_normal((3, 5)))

    def second(function):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(tf.sin(function(x)))
            z = tf.reduce_sum(inner.gradient(y, x) ** 2)
        return outer.gradient(z, x)

    def forward(function):
        with tf.autodiff.ForwardAccumulator(x, tf.cos(x)) as accumulator:
            y = function(x)
        return accumulator.jvp(y)

    for derivative in (second, forward):
        result, expected = derivative(lambda x: op(x, 5, 5, BLOCK=8)), derivative(tf.nn.softmax)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


def test_forward_mode_without_a_gradient_is_refused():
    op, x = TensorflowOperation(softmax, one_a_row, "out"), tf.ones((3, 5))
    with pytest.raises(zg.LaunchError, match="'softmax' has no gradient"):
        with tf.autodiff.ForwardAccumulator(x, x) as accumulator:
            accumulator.jvp(op(x, 5, 5, BLOCK=8))
