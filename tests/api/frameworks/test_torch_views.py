"""Tensors of PyTorch that are not contiguous, that negate, or that are empty, as arguments, outputs and gradients."""

import pytest
from libraries import require

torch = require("torch")

from framework_kernels import count, increment, one_a_row, softmax, squared_rows, sum_and_difference

import ziggurat as zg

X = torch.arange(120.0)
# Views that a kernel without strides gets, by name.
VIEWS = {
    "step": lambda x: x[::2],
    "transposed": lambda x: x[:64].reshape(8, 8).t(),  # The stride is the block's size as well.
    "permuted": lambda x: x[:60].reshape(3, 4, 5).permute(2, 0, 1),
    "columns": lambda x: x.reshape(12, 10)[:, :5],
    "expanded": lambda x: x[:10].expand(5, 10),
    "channels last": lambda x: x.reshape(1, 4, 5, 6).contiguous(memory_format=torch.channels_last),
    "negated": lambda x: torch._neg_view(x),
    "imaginary part of a conjugate": lambda x: torch.complex(x, x).conj().imag,
    "empty": lambda x: x[:0].reshape(3, 0).t(),
    "number": lambda x: x[3],
}


def blocks(meta):
    return (zg.cdiv(meta["n"], meta["BLOCK"]),)


@zg.kernel
def doubled(x, out, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.less(at, n)
    zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at), mask, 0.0), 2.0), mask)


@zg.kernel
def picked(x, out, stride: zg.constexpr, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(out, at), zg.load(zg.add(x, zg.mul(at, stride))))


DOUBLED = zg.torch_op(doubled, blocks, "out", backward="auto")


def double(x):
    return DOUBLED(x, x.numel(), BLOCK=8)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_views_are_made_contiguous(view, backend):
    torch._dynamo.reset()
    x = VIEWS[view](X)
    call = double if backend is None else torch.compile(double, backend=backend, fullgraph=True)
    y = call(x)
    assert y.is_contiguous()
    torch.testing.assert_close(y, x.resolve_neg() * 2)


@pytest.mark.parametrize("view", VIEWS)
def test_gradients_of_views(view):
    x = X.clone().requires_grad_()
    weights = torch.randn(VIEWS[view](X).shape)
    (double(VIEWS[view](x)) * weights).sum().backward()
    y = X.clone().requires_grad_()
    (VIEWS[view](y) * 2 * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_gradients_of_outputs_that_are_not_contiguous():
    x = torch.randn(5, 33, requires_grad=True)
    op, weights = zg.torch_op(softmax, one_a_row, "out", backward="auto"), torch.randn(33, 5).t()
    for loss in (torch.sum, lambda y: (y * weights).sum(), lambda y: (y[::2].t() ** 2).sum(), lambda y: y.sum(0)[3]):
        (result,) = torch.autograd.grad(loss(op(x, 33, 33, BLOCK=64)), x)
        (expected,) = torch.autograd.grad(loss(torch.softmax(x, 1)), x)
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
def test_strides_that_the_kernel_gets_are_kept(backend):
    torch._dynamo.reset()
    op = zg.torch_op(squared_rows, one_a_row, "out")
    call = lambda x: op((x + 1)[:, :8], 33, BLOCK=8) * 2  # noqa: E731
    x = torch.randn(5, 33)
    result = (call if backend is None else torch.compile(call, backend=backend, fullgraph=True))(x)
    torch.testing.assert_close(result, (x + 1)[:, :8] ** 2 * 2)


def test_compiled_in_strides_have_names_that_say_so():
    op = zg.torch_op(picked, (1,), {"out": (8,)})
    assert torch.equal(op(X[::4], stride=4, BLOCK=8), X[:32:4])


@pytest.mark.parametrize("shape", [(33, 5), (8, 8)])
def test_some_of_the_strides_are_refused(shape):
    x = torch.randn(shape).t()
    with pytest.raises(zg.LaunchError, match="'x' must be contiguous, or the kernel must get all its strides; got"):
        zg.torch_op(softmax, one_a_row, "out")(x, x.shape[1], x.stride(0), BLOCK=64)


@pytest.mark.parametrize("view", ["step", "transposed", "permuted", "columns"])
@pytest.mark.parametrize("compiled", [False, True])
def test_views_that_are_written(view, compiled):
    torch._dynamo.reset()
    op = zg.torch_op(increment, blocks)

    def add(x):
        part = VIEWS[view](x)
        op(part, part.numel(), 1.5, BLOCK=8)
        return x * 1

    x, expected = X.clone(), X.clone()
    VIEWS[view](expected).add_(1.5)
    result = (torch.compile(add, backend="aot_eager", fullgraph=True) if compiled else add)(x)
    assert torch.equal(result, expected) and torch.equal(x, expected)


def test_an_output_that_is_given_and_not_contiguous():
    x, out = torch.randn(5, 8), torch.zeros(8, 5).t()
    y = zg.torch_op(softmax, one_a_row, "out")(x, columns=8, stride=8, BLOCK=8, out=out)
    assert y is out
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_a_negated_view_that_is_written_is_refused():
    with pytest.raises(zg.LaunchError, match="'x' of 'increment' must be no negative view, as it is written"):
        zg.torch_op(increment, blocks)(torch._neg_view(torch.zeros(8)), 8, 1.0, BLOCK=8)


def test_versions_of_tensors_that_are_written():
    op, x = zg.torch_op(increment, blocks), torch.zeros(8)
    y = (x.requires_grad_() * 1).square()  # Autograd has saved the product.
    product = y.grad_fn._saved_self
    with torch.no_grad():
        for _ in range(3):
            op(product, 8, 1.0, BLOCK=8)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_integers():
    counts = zg.torch_op(count, (1,))
    x, indices = torch.tensor([0, 9, 3, 9, 3, 9], dtype=torch.int32)[::2], torch.zeros(8, dtype=torch.int32)
    counts(x, indices[::2], 3, BLOCK=4)
    assert indices.tolist() == [1, 0, 0, 0, 0, 0, 2, 0]


def test_calls_of_one_form_take_turns():
    """A later call with such arguments takes a route of its own: other kinds must not take it."""
    op = zg.torch_op(sum_and_difference, (1,), ("total", "difference"))
    x, y = torch.randn(2, 8)
    for _ in range(3):
        assert torch.equal(op(x, y, 8, BLOCK=8)[0], x + y)
        assert torch.equal(op(x.double(), y.double(), 8, BLOCK=8)[0], x.double() + y.double())
        assert torch.equal(op(x, y, n=5, BLOCK=8)[1][:5], x[:5] - y[:5])
        assert torch.equal(op(x[::2], y[1::2], 4, BLOCK=8)[0], x[::2] + y[1::2])
        assert torch.equal(op(y=y, x=x, BLOCK=16, n=8)[1], x - y)
        assert torch.equal(op(torch.nn.Parameter(x), y, 8, BLOCK=8)[0], x + y)
        with torch.inference_mode():
            assert torch.equal(op(x, y, 8, BLOCK=8)[0], x + y)
        with pytest.raises(zg.LaunchError, match="must fit in 64 bits"):
            op(x, y, 2**70, BLOCK=8)


@zg.kernel
def both_incremented(x, y):
    zg.store(x, zg.add(zg.load(x), 1.0))
    zg.store(y, zg.add(zg.load(y), 1.0))


def test_one_negated_view_among_those_that_are_written_is_refused():
    op = zg.torch_op(both_incremented, (1,))
    for views in ((torch._neg_view(torch.zeros(1)), torch.zeros(1)), (torch.zeros(1), torch._neg_view(torch.zeros(1)))):
        with pytest.raises(zg.LaunchError, match="must be no negative view, as it is written"):
            op(*views)


def test_a_later_call_takes_the_route_of_the_first(monkeypatch):
    op, x = zg.torch_op(sum_and_difference, (1,), ("total", "difference")), torch.randn(8)
    assert op._routes == {}
    op(x, x, 8, BLOCK=8)
    assert len(op._routes) == 1
    monkeypatch.setattr(op, "arguments", None)
    assert torch.equal(op(x, x, 8, BLOCK=8)[0], 2 * x)
    monkeypatch.undo()
    total = torch.zeros(8)
    op(x, x, n=8, total=total, BLOCK=8)  # The caller gives an output: no route.
    assert len(op._routes) == 1 and torch.equal(total, 2 * x)
    op(x, x, 8, BLOCK=16)
    assert len(op._routes) == 2


def test_numbers_have_the_types_that_launches_give_them():
    op = zg.torch_op(increment, blocks)
    op(torch.zeros(8), 8, 1.5, BLOCK=8)
    (definition,) = op._definitions.values()
    assert definition.kinds == {"x": zg.ptr(zg.f32), "n": zg.i32, "by": zg.f32, "BLOCK": 8}
