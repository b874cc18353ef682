"""PyTriton with TensorFlow: eager and in a `tf.function`, under a gradient tape."""

import numpy as np
import pytest
from libraries import require

tf = require("tensorflow")

from pytriton_dot import TRANSPOSED, dot, operands


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSED)
@pytest.mark.parametrize("graph", [False, True])
def test_the_documents_product_and_its_gradients(transpose_a, transpose_b, graph):
    a, b, _ = operands(transpose_a, transpose_b, np.random.default_rng(0), 16, 32, 16)
    arguments = [tf.constant(x, tf.float32) for x in (a, b)]

    def gradients(product):
        def computed(a, b):
            with tf.GradientTape() as tape:
                tape.watch([a, b])
                loss = tf.reduce_sum(tf.square(product(a, b)))
            return tape.gradient(loss, [a, b])

        return (tf.function(computed) if graph else computed)(*arguments)

    mine = gradients(lambda a, b: dot(a, b, transpose_a, transpose_b))
    expected = gradients(lambda a, b: tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b))
    for result, reference in zip(mine, expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-4)
