"""Derivatives of operators of PyTorch: forward mode, `torch.func`, second derivatives, and what is refused."""

import pytest
from libraries import require

torch = require("torch")

import torch.autograd.forward_ad as forward_ad
from framework_kernels import increment, one_a_row, softmax, squared_rows, sum_and_difference

import ziggurat as zg


@pytest.fixture(autouse=True)
def without_levels():
    """A failed test leaves its level of forward mode."""
    yield
    torch._dynamo.reset()
    while forward_ad._current_level >= 0:
        forward_ad.exit_dual_level()


func = torch.func
functional = torch.autograd.functional


@zg.kernel
def log_rows(x, out, columns, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    mask = zg.less(at, columns)
    row = zg.mul(zg.program_id(0), columns)
    zg.store(zg.add(out, zg.add(row, at)), zg.log(zg.load(zg.add(x, zg.add(row, at)), mask, 0.0)), mask)


def softmax_op(backward="auto"):
    return zg.torch_op(softmax, one_a_row, "out", backward=backward)


def rows(op):
    return lambda x: op(x, x.shape[1], x.shape[1], BLOCK=8)


def by_hand(arguments, gradients):
    y, dy = arguments["out"], gradients["out"]
    return {"x": y * (dy - (dy * y).sum(1, keepdim=True))}


def strided(op):
    """The squares of the first columns of a matrix, whose rows have a stride that the kernel gets."""
    return lambda x: op(x[:, :4], x.shape[1], BLOCK=4)


LOG = zg.torch_op(log_rows, one_a_row, "out", backward="auto")
# An operator and what it computes.
FUNCTIONS = {
    "softmax": (rows(softmax_op()), lambda x: torch.softmax(x, 1)),
    "strided": (strided(zg.torch_op(squared_rows, one_a_row, "out", backward="auto")), lambda x: x[:, :4] ** 2),
    "log": (
        lambda x: LOG(x * x + 1, x.shape[1], BLOCK=8),
        lambda x: (x * x + 1).log(),
    ),
}


def dual(function, x, v):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, v))).tangent


def loss(function):
    return lambda x: function(x).sin().sum()


def zero_gradient(function, x):
    """The gradient of a gradient that is zero in places, by which it depends on the gradient of the output."""
    x = x.clone().requires_grad_()
    weights = torch.zeros_like(function(x)).requires_grad_()
    (first,) = torch.autograd.grad(function(x), x, weights, create_graph=True)
    return torch.autograd.grad(first.cos().sum() + first.sum(), weights)[0]


DERIVATIVES = {
    "grad": lambda f, x, v: func.grad(loss(f))(x),
    "grad_and_value": lambda f, x, v: func.grad_and_value(loss(f))(x),
    "vjp": lambda f, x, v: func.vjp(loss(f), x)[1](torch.tensor(2.0, dtype=x.dtype)),
    "jacrev": lambda f, x, v: func.jacrev(f)(x),
    "jvp": lambda f, x, v: func.jvp(f, (x,), (v,)),
    "jacfwd": lambda f, x, v: func.jacfwd(f)(x),
    "linearize": lambda f, x, v: func.linearize(f, x)[1](v),
    "dual numbers": dual,
    "forward-mode jacobian": lambda f, x, v: functional.jacobian(f, x, strategy="forward-mode", vectorize=True),
    "vectorized jacobian": lambda f, x, v: functional.jacobian(f, x, vectorize=True),
    "hessian": lambda f, x, v: func.hessian(loss(f))(x),
    "reverse over reverse": lambda f, x, v: func.jacrev(func.jacrev(loss(f)))(x),
    "reverse over forward": lambda f, x, v: func.jacrev(func.jacfwd(loss(f)))(x),
    "forward over forward": lambda f, x, v: func.jacfwd(func.jacfwd(loss(f)))(x),
    "functional hessian": lambda f, x, v: functional.hessian(loss(f), x),
    "zero gradients": lambda f, x, v: zero_gradient(f, x),
}
COMPILED = {
    "jvp": lambda f, x, v: torch.compile(lambda x: func.jvp(f, (x,), (v,)), backend="aot_eager")(x),
    "jacfwd": lambda f, x, v: torch.compile(func.jacfwd(f), backend="aot_eager")(x),
    "grad": lambda f, x, v: torch.compile(func.grad(loss(f)), backend="aot_eager", fullgraph=True)(x),
    "dual numbers": lambda f, x, v: torch.compile(dual, backend="aot_eager")(f, x, v),
    "eager dual numbers": lambda f, x, v: torch.compile(dual, backend="eager")(f, x, v),
}


@pytest.mark.parametrize("derivative", COMPILED)
def test_compiled_derivatives(derivative):
    x, v = torch.randn(2, 3, 5, dtype=torch.float64)
    result, expected = (COMPILED[derivative](function, x, v) for function in FUNCTIONS["softmax"])
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_derivatives(name, derivative):
    torch.manual_seed(0)
    x, v = torch.randn(2, 3, 5, dtype=torch.float64)
    result, expected = (DERIVATIVES[derivative](function, x, v) for function in FUNCTIONS[name])
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_by_differences(name):
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    function, _ = FUNCTIONS[name]
    assert torch.autograd.gradcheck(function, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, x, check_fwd_over_rev=True)


def test_two_inputs_and_outputs():
    op = zg.torch_op(sum_and_difference, (1,), ("total", "difference"), backward="auto")
    a, b, da, db = torch.randn(4, 7)
    call, expected = (lambda a, b: op(a, b, 7, BLOCK=8)), (lambda a, b: (a + b, a - b))
    torch.testing.assert_close(func.jvp(call, (a, b), (da, db)), func.jvp(expected, (a, b), (da, db)))
    torch.testing.assert_close(func.jvp(lambda a: call(a, b), (a,), (da,))[1], (da, da))
    torch.testing.assert_close(func.jacrev(call, (0, 1))(a, b), func.jacrev(expected, (0, 1))(a, b))


def test_elements_that_share_memory():
    op = zg.torch_op(squared_rows, one_a_row, "out", backward="auto")
    row, weights = torch.randn(1, 8, dtype=torch.float64), torch.randn(4, 8, dtype=torch.float64)
    x, factors = torch.randn(6, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    expanded = lambda row: op(row.expand(4, 8), 0, BLOCK=8) * weights  # noqa: E731
    windows = lambda x: op(x.unfold(0, 2, 1), 1, BLOCK=2) * factors  # noqa: E731
    for function, argument in ((expanded, row), (windows, x)):
        argument = argument.requires_grad_()
        assert torch.autograd.gradcheck(function, argument)
        assert torch.autograd.gradgradcheck(function, argument)
        with pytest.raises(zg.LaunchError, match="no forward-mode derivative, as its elements share memory"):
            func.jvp(function, (argument.detach(),), (argument.detach(),))


def test_a_gradient_by_hand_has_a_gradient():
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    function = rows(softmax_op(by_hand))
    assert torch.autograd.gradgradcheck(function, x)
    torch.testing.assert_close(func.jacrev(function)(x.detach()), func.jacrev(FUNCTIONS["softmax"][1])(x.detach()))


FORWARD = ["jvp", "jacfwd", "linearize", "dual numbers", "forward-mode jacobian", "hessian"]


@pytest.mark.parametrize("backward", [None, by_hand])
@pytest.mark.parametrize("derivative", FORWARD)
def test_forward_mode_without_a_derived_gradient_is_refused(backward, derivative):
    x, v = torch.randn(2, 3, 5)
    with pytest.raises(zg.LaunchError, match=r"'softmax' has no forward-mode derivative\n.*backward=.auto."):
        DERIVATIVES[derivative](rows(softmax_op(backward)), x, v)


@pytest.mark.parametrize("backward", [None, by_hand])
def test_a_level_of_forward_mode_without_tangents_is_fine(backward):
    x, v = torch.randn(2, 3, 5)
    with forward_ad.dual_level():
        forward_ad.make_dual(v, v)
        torch.testing.assert_close(rows(softmax_op(backward))(x), torch.softmax(x, 1))
    torch.testing.assert_close(
        func.jvp(lambda v: rows(softmax_op(backward))(x) * v, (v,), (v,))[1], torch.softmax(x, 1) * v
    )


@pytest.mark.parametrize("derivative", ["grad", "grad_and_value", "vjp", "jacrev"])
def test_an_operator_without_a_gradient_is_refused(derivative):
    x, v = torch.randn(2, 3, 5)
    with pytest.raises(zg.LaunchError, match=r"'softmax' has no gradient\n.*backward=.auto."):
        DERIVATIVES[derivative](rows(softmax_op(None)), x, v)


def test_a_derivative_that_is_zero():
    @zg.kernel
    def steps(x, out):
        at = zg.arange(0, 8)
        zg.store(zg.add(out, at), zg.where(zg.greater(zg.load(zg.add(x, at)), 0.0), 1.0, 2.0))

    op, x = zg.torch_op(steps, (1,), "out", backward="auto"), torch.randn(8)
    assert func.grad(lambda x: op(x).sum())(x).tolist() == [0.0] * 8
    assert func.jvp(op, (x,), (x,))[1].tolist() == [0.0] * 8
    assert func.hessian(lambda x: op(x).sum())(x).count_nonzero() == 0


def test_a_second_gradient_that_cannot_be_derived_is_an_error_of_the_kernel():
    @zg.kernel
    def sorted_rows(x, out):
        at = zg.arange(0, 8)
        zg.store(zg.add(out, at), zg.sort(zg.load(zg.add(x, at))))

    x = torch.randn(8, requires_grad=True)
    with pytest.raises(zg.ZigguratError, match="has no gradient"):
        zg.torch_op(sorted_rows, (1,), "out", backward="auto")(x).sum().backward()


def test_what_is_written_in_place_loses_no_derivative_silently():
    op, x = zg.torch_op(increment, (1,)), torch.randn(8, requires_grad=True)
    with pytest.raises(zg.LaunchError, match="'increment' writes its argument 'x' in place, which gets no derivative"):
        op(x * 2, 8, 1.0, BLOCK=8)
    with forward_ad.dual_level(), pytest.raises(zg.LaunchError, match="in place, which gets no derivative"):
        op(forward_ad.make_dual(torch.ones(8), torch.ones(8)), 8, 1.0, BLOCK=8)
    with torch.no_grad():
        y = x * 2
        op(y, 8, 1.0, BLOCK=8)
    torch.testing.assert_close(y, x.detach() * 2 + 1)


@pytest.mark.parametrize("transform", [lambda f: f, lambda f: func.grad(loss(f))], ids=["call", "gradient"])
def test_a_batch_is_refused(transform):
    with pytest.raises(zg.LaunchError, match=r"'softmax' cannot run under torch\.vmap"):
        torch.vmap(transform(FUNCTIONS["softmax"][0]))(torch.randn(2, 3, 5))


def test_jacobians_of_two_arguments_have_their_rows_first():
    op = zg.torch_op(sum_and_difference, (1,), ("total", "difference"), backward="auto")
    x, y = torch.randn(2, 4, dtype=torch.float64)
    rolled = torch.eye(4, dtype=torch.float64).roll(1, 0)
    for output, sign in ((0, 1), (1, -1)):
        first, second = torch.func.jacrev(lambda x, y: op(x, y, 4, BLOCK=4)[output].roll(1), argnums=(0, 1))(x, y)  # noqa: B023
        assert torch.equal(first, rolled) and torch.equal(second, sign * rolled)
    first = torch.func.jacrev(lambda x: op(x, y, 4, BLOCK=4)[0].roll(1))(x)
    assert torch.equal(first, rolled)


@zg.kernel
def signs(x, out):
    zg.store(out, zg.cast(zg.less(0.0, zg.load(x)), zg.i32))


def test_integers_that_are_written_lose_no_derivative():
    out = torch.zeros(1, dtype=torch.int32)
    zg.torch_op(signs, (1,))(torch.ones(1, requires_grad=True), out)
    assert out.tolist() == [1]
