"""PyTriton with JAX: eager, under `jax.grad` and `jax.jit`."""

import numpy as np
import pytest
from libraries import require

jax = require("jax")

from pytriton_dot import TRANSPOSED, dot, operands

jnp = jax.numpy


@pytest.fixture(autouse=True)
def on_the_cpu():
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSED)
@pytest.mark.parametrize("jit", [False, True])
def test_the_documents_product_and_its_gradients(transpose_a, transpose_b, jit):
    def loss(product):
        gradient = jax.grad(lambda a, b: jnp.sum(product(a, b) ** 2), (0, 1))
        return jax.jit(gradient) if jit else gradient

    def expected(a, b):
        return (a.T if transpose_a else a) @ (b.T if transpose_b else b)

    a, b, _ = operands(transpose_a, transpose_b, np.random.default_rng(0), 16, 32, 16)
    arguments = jnp.asarray(a, "float32"), jnp.asarray(b, "float32")
    for mine, theirs in zip(
        loss(lambda a, b: dot(a, b, transpose_a, transpose_b))(*arguments), loss(expected)(*arguments), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
