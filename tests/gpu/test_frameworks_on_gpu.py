"""Operations of PyTorch, JAX and CuPy on a GPU: results, gradients, compiled programs, streams and CUDA graphs."""

import numpy as np
import pytest
from framework_kernels import count, increment, one_a_row, softmax
from libraries import require
from pytriton_dot import TRANSPOSED, dot, operands

import ziggurat as zg
import ziggurat.pytriton as triton
from ziggurat.frameworks import Empty
from ziggurat.frameworks.array_ops import CupyOperation

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch():
    return require("torch")


@pytest.fixture
def jax():
    actual = require("jax")
    try:
        actual.devices("cuda")
    except RuntimeError:
        pytest.skip("JAX has no CUDA")
    return actual


@pytest.fixture
def cupy():
    return require("cupy")


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
    actual = (jax.jit(loss) if jit else loss)(x)
    expected = jax.grad(lambda x: jnp.sum(jax.nn.softmax(x, 1) ** 2))(x)
    np.testing.assert_allclose(run(op, x), jax.nn.softmax(x, 1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_an_array_of_jax_that_is_written_is_a_result(jax):
    x = jax.numpy.zeros(100, "float32")
    assert zg.jax_op(increment, (2,))(x, 99, 1.5, BLOCK=64).tolist() == [1.5] * 99 + [0]
    assert x.tolist() == [0.0] * 100


def test_cupy(cupy, rng):
    x = cupy.asarray(rng.standard_normal((100, 60)), cupy.float32)
    y = run(CupyOperation(softmax, one_a_row, {"out": "x"}), x)
    assert isinstance(y, cupy.ndarray) and y.dtype == x.dtype
    expected = np.exp(x.get().astype("f8"))
    np.testing.assert_allclose(y.get(), expected / expected.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)
    counts = CupyOperation(count, (1,), "counts")
    result = counts(cupy.asarray([0, 3, 3, 1], cupy.int32), Empty((4,), cupy.int32, zeros=True), 4, BLOCK=4)
    assert result.tolist() == [1, 1, 0, 2]


def test_cupy_on_a_stream_and_in_a_cuda_graph(cupy):
    op, stream = CupyOperation(increment, (2,)), cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.full(100, 3.0, cupy.float32)
        op(x, 100, 1.0, BLOCK=64)
        stream.begin_capture()
        op(x, 100, 1.0, BLOCK=64)
        graph = stream.end_capture()
        graph.launch(stream)
        graph.launch(stream)
    stream.synchronize()
    assert x.tolist() == [6.0] * 100


def test_cupy_has_no_gradients(cupy):
    class scale(triton.function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 2 * x

    assert scale.apply(cupy.ones(3)).tolist() == [2.0] * 3
    with pytest.raises(zg.LaunchError, match="arrays of cupy have no gradients"):
        CupyOperation(softmax, one_a_row, "out", backward="auto")


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_lists_of_macros_are_tuned_at_new_sizes(request, library):
    source = """
    __global__ void add(TYPE *x, TYPE *y, TYPE *out, int n) {
      int at[SIZE] = get_program_id(0) * SIZE + 0 ... SIZE;
      bool inside[SIZE] = at < n;
      *?(inside)(out + at) = *?(inside)(x + at) + *?(inside)(y + at);
    }
    """
    actual, add = request.getfixturevalue(library), triton.kernel(source, "out")
    on = {"device": "cuda"} if library == "torch" else {}

    def choices(n, dtype=actual.float32):
        x, y = actual.ones(n, dtype=dtype, **on), actual.full((n,), 2, dtype=dtype, **on)
        grid = lambda opt: [triton.cdiv(n, opt.d("SIZE"))]  # noqa: E731
        out = add(x, y, triton.empty([n], dtype), n, grid, TYPE=dtype, SIZE=[64, 256, 1024])
        assert bool((out == 3).all())
        return [operation.kernel.choices for operation in add._operations.values()]

    assert [len(constants) for constants in choices(5000)] == [1]
    (kernel,) = (operation.kernel for operation in add._operations.values())
    record = kernel.last
    assert len(record.times) == 3
    choices(5000)
    assert kernel.last is record  # Sizes that are known are not tuned again.
    assert [len(constants) for constants in choices(70000)] == [2] and kernel.last is not record
    assert [len(constants) for constants in choices(5000, actual.float16)] == [2, 1]


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSED)
@pytest.mark.parametrize("library", ["torch", "jax", "cupy"])
def test_the_documents_product(request, library, transpose_a, transpose_b):
    a, b, expected = operands(transpose_a, transpose_b, np.random.default_rng(0), 128, 192, 64)
    actual = request.getfixturevalue(library)
    if library == "torch":
        x, y = (actual.tensor(v, dtype=actual.float16, device="cuda") for v in (a, b))
        c = dot(x, y, transpose_a, transpose_b).cpu().numpy()
    elif library == "cupy":
        x, y = (actual.asarray(v, actual.float16) for v in (a, b))
        c = dot(x, y, transpose_a, transpose_b).get()
    else:
        x, y = (actual.numpy.asarray(v, "float16") for v in (a, b))
        c = np.asarray(dot(x, y, transpose_a, transpose_b))
    np.testing.assert_allclose(c, expected, rtol=2e-2, atol=5e-2)
