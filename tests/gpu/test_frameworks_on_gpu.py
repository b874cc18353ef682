"""Operations of PyTorch and JAX on a GPU: results, gradients, compiled programs, streams and CUDA graphs."""

import numpy as np
import pytest
from framework_kernels import increment, one_a_row, softmax
from pytriton_dot import TRANSPOSED, dot, operands

import ziggurat as zg

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def jax():
    found = pytest.importorskip("jax", reason="JAX is not installed")
    try:
        found.devices("cuda")
    except RuntimeError:
        pytest.skip("JAX has no CUDA")
    return found


def run(op, x):
    return op(x, x.shape[1], x.shape[1], BLOCK=64)


@pytest.mark.parametrize("compiled", [False, True])
def test_torch_with_a_derived_gradient(torch, compiled):
    op = zg.torch_op(softmax, one_a_row, {"out": "x"}, backward="auto")
    call = torch.compile(lambda x: run(op, x * 1), fullgraph=True, backend="aot_eager") if compiled else op
    x = torch.randn(100, 60, device="cuda", requires_grad=True)
    y = call(x) if compiled else run(op, x)
    y.square().sum().backward()
    z = x.detach().clone().requires_grad_()
    torch.softmax(z, 1).square().sum().backward()
    torch.testing.assert_close(y, torch.softmax(z, 1), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(x.grad, z.grad, rtol=1e-4, atol=1e-5)


def test_torch_on_a_stream_and_in_a_cuda_graph(torch):
    op, x = zg.torch_op(increment, (2,)), torch.zeros(100, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x.fill_(3.0)
        op(x, 100, 1.0, BLOCK=64)
    stream.synchronize()
    assert x.tolist() == [4.0] * 100
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        op(x, 100, 1.0, BLOCK=64)
    graph.replay()
    graph.replay()
    assert x.tolist() == [6.0] * 100


@pytest.mark.parametrize("jit", [False, True])
def test_jax_with_a_derived_gradient(jax, jit):
    jnp = jax.numpy
    op = zg.jax_op(softmax, one_a_row, {"out": "x"}, backward="auto")
    x = jnp.asarray(np.random.default_rng(0).standard_normal((100, 60)), "float32")
    assert next(iter(x.devices())).platform == "gpu"
    loss = jax.grad(lambda x: jnp.sum(run(op, x) ** 2))
    found = (jax.jit(loss) if jit else loss)(x)
    expected = jax.grad(lambda x: jnp.sum(jax.nn.softmax(x, 1) ** 2))(x)
    np.testing.assert_allclose(run(op, x), jax.nn.softmax(x, 1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_array_of_jax_that_is_written_is_a_result(jax):
    x = jax.numpy.zeros(100, "float32")
    assert zg.jax_op(increment, (2,))(x, 99, 1.5, BLOCK=64).tolist() == [1.5] * 99 + [0]
    assert x.tolist() == [0.0] * 100


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSED)
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_the_documents_product(request, library, transpose_a, transpose_b):
    a, b, expected = operands(transpose_a, transpose_b, np.random.default_rng(0), 128, 192, 64)
    found = request.getfixturevalue(library)
    if library == "torch":
        x, y = (found.tensor(v, dtype=found.float16, device="cuda") for v in (a, b))
        c = dot(x, y, transpose_a, transpose_b).cpu().numpy()
    else:
        x, y = (found.numpy.asarray(v, "float16") for v in (a, b))
        c = np.asarray(dot(x, y, transpose_a, transpose_b))
    np.testing.assert_allclose(c, expected, rtol=2e-2, atol=5e-2)
