"""Operations of NumPy, and what all libraries share."""

import numpy as np
import pytest
from framework_kernels import SQUARE, blocks, count, increment, one_a_row, softmax, squared_rows, sum_and_difference

import ziggurat as zg
from ziggurat.frameworks import Empty
from ziggurat.frameworks.array_ops import ArrayOperation
from ziggurat.frameworks.operation import sizes_in


def test_numpy():
    x = np.random.default_rng(0).standard_normal((5, 33))
    y = ArrayOperation(softmax, one_a_row, "out")(x, 33, 33, BLOCK=64)
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(y, expected)


@pytest.mark.parametrize("sizes", [[16], [16, 32]])
def test_macros_that_are_tuned_are_no_arguments(sizes):
    kernel = zg.triton_c(SQUARE, SIZE=sizes)
    x = np.arange(30, dtype=np.float32)
    np.testing.assert_array_equal(ArrayOperation(kernel, blocks, "y")(x, 30), x * x)


def test_an_empty_array_with_zeros_is_one():
    x = np.array([0, 3, 3, 1], np.int32)
    counts = ArrayOperation(count, (1,), "counts")(x, Empty((4,), np.int32, zeros=True), 4, BLOCK=4)
    assert counts.tolist() == [1, 1, 0, 2]


def test_accesses_are_read_from_the_model():
    pointer = zg.ptr(zg.f32)
    op = ArrayOperation(softmax, (1,))
    kinds = {"x": pointer, "out": pointer, "columns": zg.i32, "stride": zg.i32, "BLOCK": 8}
    assert op.accesses(kinds).writes == ("out",)
    assert op.accesses(kinds).reads == ("x",)
    kinds = {"x": pointer, "n": zg.i32, "by": zg.f32, "BLOCK": 8}
    assert ArrayOperation(increment, (1,)).accesses(kinds).writes == ("x",)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("y", "must be like an argument that is an array; got 'y'"), (None, "must have a shape and a dtype")],
)
def test_outputs_without_a_shape(rule, message):
    with pytest.raises(zg.LaunchError, match=message):
        ArrayOperation(softmax, (1,), {"out": rule})(None, 8, 8, BLOCK=8)


VIEWS = {
    "step": lambda x: x[::2],
    "reversed": lambda x: x[::-1],
    "transposed": lambda x: x[:100].reshape(10, 10).T,
    "a field of records": lambda x: np.rec.fromarrays([x.astype("i1"), x], names="a,b").b,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_views_are_read_and_written_as_what_they_are(view):
    x, grid = np.arange(120.0), lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)
    part, expected = view(x), view(x) + 1.5
    ArrayOperation(increment, grid)(part, part.size, 1.5, BLOCK=16)
    np.testing.assert_array_equal(part, expected)
    (total, _) = ArrayOperation(sum_and_difference, (1,), ("total", "difference"))(
        part, part.copy(), part.size, BLOCK=128
    )
    np.testing.assert_array_equal(total, 2 * expected)


def test_broadcast_arrays_and_given_strides():
    row, x = np.broadcast_to(np.arange(10.0), (5, 10)), np.arange(160.0).reshape(10, 16)
    (total, _) = ArrayOperation(sum_and_difference, (1,), ("total", "difference"))(row, row, 50, BLOCK=64)
    np.testing.assert_array_equal(total, 2 * row)
    np.testing.assert_array_equal(ArrayOperation(squared_rows, one_a_row, "out")(x[:, :8], 16, BLOCK=8), x[:, :8] ** 2)
    with pytest.raises(zg.LaunchError, match="'x' must be contiguous, or the kernel must get all its strides"):
        ArrayOperation(softmax, one_a_row, "out")(x.T, 10, 1, BLOCK=16)


def test_sizes_of_a_shape():
    for shape, sizes in ((4, (4,)), ((4, 2), (4, 2)), ([0], (0,)), ((), ())):
        assert sizes_in(shape, "x") == sizes
    for shape in ((4, "x"), ("x", 4), (None, 3), (2.0, 3), "4", None, 1.5):
        with pytest.raises(zg.LaunchError, match="x must have a shape of integers"):
            sizes_in(shape, "x")


def test_heuristics_compute_as_at_a_launch():
    x = np.random.default_rng(0).standard_normal((5, 33))
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    kernel = zg.heuristics({"BLOCK": lambda arguments: 1 << (arguments["columns"] - 1).bit_length()})(softmax)
    np.testing.assert_allclose(ArrayOperation(kernel, one_a_row, "out")(x, 33, 33), expected)
    with pytest.raises(zg.LaunchError, match=r"'BLOCK' of 'softmax' is computed by zg\.heuristics"):
        ArrayOperation(kernel, one_a_row, "out")(x, 33, 33, BLOCK=64)
