"""PyTriton with PyTorch: eager, under autograd and `torch.compile`."""

import numpy as np
import pytest
from libraries import require

torch = require("torch")

from pytriton_dot import TRANSPOSED, dot, operands


def tensors(transpose_a, transpose_b, dtype=torch.float32):
    a, b, _ = operands(transpose_a, transpose_b, np.random.default_rng(0), 16, 32, 16)
    return [torch.tensor(x, dtype=dtype, requires_grad=True) for x in (a, b)]


def product(a, b, transpose_a, transpose_b):
    return (a.T if transpose_a else a) @ (b.T if transpose_b else b)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSED)
@pytest.mark.parametrize("compiled", [False, True])
def test_the_documents_product_and_its_gradients(transpose_a, transpose_b, compiled):
    def loss(a, b):
        return dot(a, b, transpose_a, transpose_b).square().sum()

    call = torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss
    a, b = tensors(transpose_a, transpose_b)
    call(a, b).backward()
    x, y = tensors(transpose_a, transpose_b)
    product(x, y, transpose_a, transpose_b).square().sum().backward()
    torch.testing.assert_close(a.grad, x.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(b.grad, y.grad, rtol=1e-4, atol=1e-4)


def test_half_precision():
    a, b = (x.detach() for x in tensors(False, True, torch.float16))
    torch.testing.assert_close(dot(a, b, False, True), a @ b.T, rtol=1e-2, atol=1e-2)
