"""Kernels as operators of PyTorch: eager, under autograd, `torch.compile` and `torch.export`."""

import pytest
from libraries import require

torch = require("torch")

from framework_kernels import (
    EQUAL_CONSTANTS,
    SQUARE,
    blocks,
    count,
    increment,
    one_a_row,
    one_more,
    softmax,
    squared_rows,
    sum_and_difference,
)

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

WIDTH = 33


def softmax_op(**more):
    return zg.torch_op(softmax, one_a_row, {"out": "x"}, **more)


def derivative(arguments, gradients):
    y, dy = arguments["out"], gradients["out"]
    return {"x": y * (dy - (dy * y).sum(1, keepdim=True))}


def run(op, x):
    return op(x, x.shape[1], x.stride(0), BLOCK=64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_an_output_is_made_and_returned(dtype):
    torch.manual_seed(0)
    x = torch.randn(5, WIDTH).to(dtype)
    y = run(softmax_op(), x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, torch.softmax(x, 1), rtol=4e-2 if x.element_size() == 2 else 1e-6, atol=1e-6)


def test_outputs_by_name_are_like_the_first_tensor():
    x, y = torch.randn(7), torch.randn(7)
    total, difference = zg.torch_op(sum_and_difference, (1,), ("total", "difference"))(x, y, 7, BLOCK=8)
    assert torch.equal(total, x + y) and torch.equal(difference, x - y)


@pytest.mark.parametrize(
    "rule",
    ["x", (4, 8), ((4, 8), torch.float32), lambda arguments: arguments["x"], lambda arguments: ((4, 8), zg.f32)],
    ids=["argument", "shape", "shape and dtype", "function to a tensor", "function to a pair"],
)
def test_rules_of_outputs(rule):
    x = torch.randn(4, 8)
    y = zg.torch_op(softmax, one_a_row, {"out": rule})(x, 8, 8, BLOCK=8)
    torch.testing.assert_close(y, torch.softmax(x, 1))


def test_an_operator_of_a_kernel_with_passes_has_them_and_their_gradient():
    from ziggurat.codemodel.dialects import math

    def doubled(builder, op, operands):
        if isinstance(op, math.Exp):
            return builder.add(math.Exp2(*operands))
        return None

    kernel = softmax.with_passes(lambda model: zg.transform(model, doubled))
    op = zg.torch_op(kernel, one_a_row, {"out": "x"}, backward="auto")
    x = torch.randn(4, 8, requires_grad=True)
    y = op(x, 8, 8, BLOCK=8)
    expected = torch.softmax(x * 0.6931471805599453, 1)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each[:, 0].sum(), x)[0] for each in (y, expected)))


def test_a_given_output_is_written_and_returned():
    x, out = torch.randn(4, 8), torch.zeros(4, 8)
    y = softmax_op()(x, columns=8, stride=8, BLOCK=8, out=out)
    assert y is out
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_an_input_that_is_written_is_read_from_the_model():
    op, x = zg.torch_op(increment, (2,)), torch.zeros(10)
    assert op(x, 9, 1.5, BLOCK=8) is None
    assert x.tolist() == [1.5] * 9 + [0]
    # A compiled program sees the new contents, which it would not if the operator hid that it writes x.
    compiled = torch.compile(lambda x: (op(x, 10, 1.0, BLOCK=8), x * 1)[1], fullgraph=True, backend="aot_eager")
    assert compiled(torch.zeros(10)).tolist() == [1.0] * 10


def test_a_target_of_atomics_is_written():
    counts = torch.zeros(4, dtype=torch.int32)
    x = torch.tensor([0, 3, 3, 1], dtype=torch.int32)
    op = zg.torch_op(count, (1,))
    op(x, counts, 4, BLOCK=4)
    assert counts.tolist() == [1, 1, 0, 2]
    schema = getattr(torch.ops.ziggurat, next(iter(op._definitions.values())).name).default._schema
    assert str(schema).endswith("(Tensor a0, Tensor(a1!) a1, SymInt a2) -> ()")


def test_equal_constants_of_different_types_have_operators_of_their_own():
    op, x = zg.torch_op(one_more, (1,), {"out": ((1,), torch.float64)}), torch.ones(1, dtype=torch.int32)
    assert [op(x, more).item() for more, _ in EQUAL_CONSTANTS] == [expected for _, expected in EQUAL_CONSTANTS]
    assert len(op._definitions) == 3


def test_tuned_kernels_choose_what_is_tuned():
    tuned = zg.autotune([zg.Config({"BLOCK": 8}), zg.Config({"BLOCK": 16})], key=["n"], restore_value=["x"])(increment)
    op = zg.torch_op(tuned, lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),))
    compiled = torch.compile(lambda x: (op(x, 20, 1.0), x * 1)[1], fullgraph=True, backend="aot_eager")
    for call in (lambda x: op(x, 20, 1.0), compiled):
        x = torch.zeros(20)
        call(x)
        assert x.tolist() == [1.0] * 20


def test_compiled_programs_take_new_shapes():
    op = softmax_op()
    compiled = torch.compile(lambda x: run(op, x * 2) + 1, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape in ((5, 33), (3, 60), (8, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), torch.softmax(x * 2, 1) + 1)


def test_exported_programs():
    op = softmax_op()

    class Model(torch.nn.Module):
        def forward(self, x):
            return run(op, x)

    x = torch.randn(5, WIDTH)
    exported = torch.export.export(Model(), (x,))
    assert "ziggurat.softmax" in exported.graph_module.code
    torch.testing.assert_close(exported.module()(x), torch.softmax(x, 1))
    sizes = {"x": {0: torch.export.Dim("rows"), 1: torch.export.Dim("columns", max=64)}}
    exported, x = torch.export.export(Model(), (x,), dynamic_shapes=sizes), torch.randn(7, 9)
    torch.testing.assert_close(exported.module()(x), torch.softmax(x, 1))


def test_a_gradient_given_by_a_function():
    op = softmax_op(backward=derivative)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: run(op, x), x)


def test_the_derived_gradient():
    op = softmax_op(backward="auto")
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: run(op, x), x)


def test_the_derived_gradient_of_a_tuned_kernel():
    op = zg.torch_op(zg.triton_c(SQUARE, SIZE=[16, 32]), blocks, "y", backward="auto")
    for call in (op, torch.compile(op, fullgraph=True, backend="aot_eager")):
        x = torch.arange(30.0, requires_grad=True)
        call(x, 30).sum().backward()
        assert torch.equal(x.grad, 2 * x)


@triton.autotune([triton.Config({"SIZE": 8}), triton.Config({"SIZE": 16})], key=["n"])
@triton.jit
def squares(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    values = tl.load(x + at, at < n)
    tl.store(y + at, values * values, at < n)


@pytest.mark.parametrize("tuned", [False, True])
@pytest.mark.parametrize("size", [24, 32])
def test_heuristics_compute_as_at_a_launch(tuned: bool, size: int):
    """`EVEN` leaves the masks out where the blocks fill the tensor, and the gradient computes it as well."""
    configs = [triton.Config({"SIZE": 8}), triton.Config({"SIZE": 16})] if tuned else [triton.Config({"SIZE": 16})]

    @triton.autotune(configs, key=["n"])
    @triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["SIZE"] == 0})
    @triton.jit
    def cubes(x, y, n, SIZE: tl.constexpr, EVEN: tl.constexpr):
        at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        values = tl.load(x + at) if EVEN else tl.load(x + at, at < n)
        tl.store(y + at, values * values * values, None if EVEN else at < n)

    op = zg.torch_op(cubes, blocks, "y", backward="auto")
    for call in (op, op, torch.compile(op, fullgraph=True, backend="aot_eager")):
        x = torch.arange(float(size), requires_grad=True)
        y = call(x, size)
        y.sum().backward()
        assert torch.equal(y, x**3) and torch.equal(x.grad, 3 * x * x)


def test_a_kernel_that_triton_s_tuner_tunes():
    op = zg.torch_op(squares, blocks, "y", backward="auto")
    x = torch.arange(30.0, requires_grad=True)
    op(x, 30).sum().backward()
    assert torch.equal(x.grad, 2 * x)


def test_the_derived_gradient_of_two_outputs():
    op = zg.torch_op(sum_and_difference, (1,), ("total", "difference"), backward="auto")
    x, y = (torch.randn(7, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda x, y: op(x, y, 7, BLOCK=8), (x, y))
    op(x, y, 7, BLOCK=8)[0].sum().backward()
    assert x.grad.tolist() == [1.0] * 7


def test_the_derived_gradient_of_elements_that_share_memory():
    op = zg.torch_op(squared_rows, one_a_row, "out", backward="auto")
    row = torch.randn(1, 8, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(4, 8, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda row: op(row.expand(4, 8), 0, BLOCK=8) * weights, row)


def test_inputs_that_are_not_contiguous_are_addressed_by_the_strides_that_the_kernel_gets():
    op = zg.torch_op(squared_rows, one_a_row, "out", backward="auto")
    x = torch.randn(4, 16, dtype=torch.float64, requires_grad=True)
    y = op(x[:, :8], 16, BLOCK=8)
    assert y.is_contiguous()
    torch.testing.assert_close(y, x[:, :8] ** 2)
    assert torch.autograd.gradcheck(lambda x: op(x[:, :8], 16, BLOCK=8), x)


@pytest.mark.parametrize("backward", ["auto", derivative])
def test_gradients_in_compiled_programs(backward):
    op = softmax_op(backward=backward)
    compiled = torch.compile(lambda x: run(op, x * 1).square().sum(), fullgraph=True, backend="aot_eager")
    x = torch.randn(4, WIDTH, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    compiled(x).backward()
    torch.softmax(y, 1).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_torch_agrees_that_the_operator_is_sound():
    op = softmax_op(backward=derivative)
    x = torch.randn(4, 8, requires_grad=True)
    run(op, x)
    operator = getattr(torch.ops.ziggurat, next(iter(op._definitions.values())).name)
    torch.library.opcheck(operator, (x, [4, 8], 8, 8))


def test_an_operator_without_a_gradient_says_so():
    x = torch.randn(4, 8, requires_grad=True)
    with pytest.raises(zg.LaunchError, match="'softmax' has no gradient"):
        run(zg.torch_op(softmax, one_a_row, "out"), x).sum().backward()


def test_vmap_is_refused():
    with pytest.raises(zg.LaunchError, match=r"cannot run under torch\.vmap.*axis of its grid"):
        torch.vmap(lambda x: zg.torch_op(softmax, (1,), "out")(x, 8, 8, BLOCK=8))(torch.randn(4, 8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: zg.torch_op(len, (1,)), "must be made of a kernel"),
        (lambda: zg.torch_op(softmax, (1,), "ot"), "no parameter 'ot'"),
        (lambda: zg.torch_op(softmax, (1,), "out", backward=3), 'must be "auto" or a function; got 3'),
        (lambda: zg.torch_op(softmax, (1,), "x")(torch.ones(4), 4, 4, BLOCK=4), "'x' is an output .* not store to it"),
        (
            lambda: zg.torch_op(softmax, (1,), "out")(torch.ones(4), 4),
            r"'stride'\n.*\(x, columns, stride, BLOCK\)",
        ),
        (lambda: zg.torch_op(softmax, (1,), "out")(torch.ones(4), 4, 4, BLOK=4), "no parameter 'BLOK'"),
        (lambda: zg.torch_op(softmax, (1,), "out")(torch.ones(4), 4, 4, n=4), "no parameter 'n'"),
        (
            lambda: zg.torch_op(increment, (1,), backward="auto")(torch.ones(4), 4, 1.0, BLOCK=4),
            "writes its argument 'x' in place, and so cannot have a gradient",
        ),
    ],
)
def test_bad_operators(make, message):
    with pytest.raises(zg.LaunchError, match=message):
        make()


@pytest.mark.parametrize("result", [None, (1.0,), torch.ones(4)], ids=["nothing", "tuple", "tensor"])
def test_gradients_without_names_are_refused(result):
    op = softmax_op(backward=lambda arguments, gradients: result)
    with pytest.raises(zg.LaunchError, match=r"must return a dict of .* by name; got .*\n.*{\"x\": …}"):
        run(op, torch.randn(4, 8, requires_grad=True)).sum().backward()


def test_a_gradient_of_no_parameter_is_refused():
    op = softmax_op(backward=lambda arguments, gradients: {"y": gradients["out"]})
    with pytest.raises(zg.LaunchError, match="gives a gradient of 'y'"):
        run(op, torch.randn(4, 8, requires_grad=True)).sum().backward()
