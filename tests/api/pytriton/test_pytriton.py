"""PyTriton with NumPy, and what all libraries share; the other libraries have files of their own."""

from typing import Any

import numpy as np
import pytest
import triton_c_listings
from libraries import require
from pytriton_dot import TRANSPOSED, dot, operands

import ziggurat as zg
import ziggurat.pytriton as triton
from ziggurat.pytriton.functions import Context

ADD = """
__global__ void add(TYPE *x, TYPE *y, TYPE *total, TYPE *difference, int n) {
    int at[SIZE] = get_program_id(0) * SIZE + 0 ... SIZE;
    bool inside[SIZE] = at < n;
    TYPE a[SIZE] = *?(inside)(x + at);
    TYPE b[SIZE] = *?(inside)(y + at);
    *?(inside)(total + at) = a + b;
    *?(inside)(difference + at) = a - b;
}
"""


def grid(n):
    return lambda opt: [triton.cdiv(n, opt.d("SIZE"))]


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSED)
def test_the_documents_product(transpose_a, transpose_b):
    a, b, expected = operands(transpose_a, transpose_b, np.random.default_rng(0))
    np.testing.assert_allclose(
        dot(a.astype("f4"), b.astype("f4"), transpose_a, transpose_b=transpose_b), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSED)
def test_the_program_in_the_document_runs(transpose_a, transpose_b):
    program: dict[str, Any] = {}
    exec(triton_c_listings.program_of_pytriton(), program)
    a, b, expected = operands(transpose_a, transpose_b, np.random.default_rng(0), 64, 32, 96)
    a, b = a.astype("f4"), b.astype("f4")
    np.testing.assert_allclose(program["dot"](a, b, transpose_a, transpose_b), expected, rtol=1e-4, atol=1e-4)
    context = Context()
    program["_dot"].forward(context, a, b, transpose_a, transpose_b)
    dy = np.random.default_rng(1).standard_normal((64, 32), np.float32)
    da, db, *rest = program["_dot"].backward(context, dy)
    left, right = (a.T if transpose_a else a), (b.T if transpose_b else b)
    dleft, dright = dy @ right.T, left.T @ dy
    np.testing.assert_allclose(da, dleft.T if transpose_a else dleft, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(db, dright.T if transpose_b else dright, rtol=1e-4, atol=1e-4)
    assert rest == [None] * 7


@pytest.mark.parametrize("size", [16, [16, 32]], ids=["one", "tuned"])
@pytest.mark.parametrize("as_dictionary", [False, True])
def test_outputs_in_their_order(size, as_dictionary):
    kernel = triton.kernel(ADD, ["total", "difference"])
    x, y = np.arange(40, dtype="f4"), np.ones(40, "f4")
    outputs = [triton.empty([40], np.float32) for _ in range(2)]
    macros = {"TYPE": "float", "SIZE": size}
    call = [x, y, *outputs, 40, grid(40)]
    total, difference = kernel(*call, macros) if as_dictionary else kernel(*call, **macros)
    assert (total == x + y).all() and (difference == x - y).all()


def test_the_number_of_warps_may_be_tuned():
    x = np.arange(100, dtype=np.float32)
    total, _ = triton.kernel(ADD, ["total", "difference"])(
        x, x, triton.empty([100], x.dtype), triton.empty([100], x.dtype), 100, grid(100),
        TYPE="float", num_warps=[2, 4], SIZE=[32, 64],
    )  # fmt: skip
    np.testing.assert_array_equal(total, x + x)


def test_an_array_given_for_an_output_is_returned():
    x, total, difference = np.arange(8, dtype="f4"), np.zeros(8, "f4"), np.zeros(8, "f4")
    result = triton.kernel(ADD, ["total"])(x, x, total, difference, 8, grid(8), TYPE=np.float32, SIZE=8)
    assert result is total and (total == 2 * x).all()


def test_macros_that_the_source_does_not_use_are_ignored():
    x = np.arange(8, dtype="f4")
    outputs = [triton.empty([8], x.dtype) for _ in range(2)]
    total, _ = triton.kernel(ADD, ["total", "difference"])(x, x, *outputs, 8, [1], TYPE=x.dtype, SIZE=8, UNUSED="a b")
    assert (total == 2 * x).all()


def test_equal_macros_of_different_types_have_kernels_of_their_own():
    kernel = triton.kernel("__global__ void f(int *x, float *out) { *out = (*x + MORE) / 2; }", "out")
    x = np.full(1, 2, np.int32)
    for more, half in ((1, 1.0), (1.0, 1.5), (True, 1.0), (1, 1.0)):
        assert kernel(x, triton.empty([1], np.float32), [1], MORE=more).item() == half
    assert len(kernel._kernels) == len(kernel._operations) == 3


def test_helpers():
    assert triton.cdiv(7, 2) == 4
    assert triton.shape(np.zeros((2, 3))) == (2, 3)
    assert triton.empty([2, 3], zg.f32).shape == (2, 3)
    assert triton.Options({"TM": 4}).d("TM") == 4
    with pytest.raises(zg.LaunchError, match="no macro is named 'TN'"):
        triton.Options({"TM": 4}).d("TN")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda x: (x, x, x, grid(8)), "takes 5 arguments and a grid; got 3 and a function for the grid"),
        (lambda x: (x, x, x, x, 8), "takes 5 arguments and a grid; got 4 and 8 for the grid"),
        (lambda x: (x, x, x, x, 8, [1, 1, 1, 1]), r"the grid must be one to three sizes, .*; got \[1, 1, 1, 1\]"),
        (lambda x: (x, x, x, x, 8, []), "the grid must be one to three sizes"),
        (lambda x: (x, x, x, x, 8, [1, "1"]), "the grid must be one to three sizes"),
        (lambda x: (x, x, x, x, 8, lambda opt: None), "the grid must be one to three sizes"),
        (lambda x: (x, x, x, x, 8, lambda: [1]), "the function of the grid must take one argument"),
        (lambda x: (x, x, x, x, 8, lambda opt: [triton.cdiv(8, opt.d("TYPE"))]), "triton.cdiv: the operands must be"),
        (lambda x: (x, x, triton.empty(None, x.dtype), x, 8, grid(8)), "a tensor must have a shape of integers"),
        (lambda x: (x, x, x, x, 8, grid(8), {3: 4}), "macros must be a dictionary of values by name"),
        (lambda x: (x, x, x, x, 8, grid(8), {"MORE": x}), "'MORE' is compiled in"),
        (lambda x: (x.astype("i1"), x, x, x, 8, grid(8)), r"declared as float\*; got char\*"),
        (lambda x: (x, x, x, x, 8, lambda opt: [opt.d("SIZES")]), "no macro is named 'SIZES'"),
        (lambda x: (x, x.astype("f8"), x, x, 8, grid(8)), "'y'.*(f64|double)"),
    ],
)
def test_bad_calls(arguments, message):
    with pytest.raises(zg.ZigguratError, match=message):
        triton.kernel(ADD, ["total"])(*arguments(np.zeros(8, "f4")), TYPE="float", SIZE=8)


def test_macros_that_are_not_defined():
    x = np.zeros(8, "f4")
    with pytest.raises(zg.KernelNameError, match="'add' uses 'SIZE', which is neither declared nor defined as a macro"):
        triton.kernel(ADD, ["total"])(x, x, x, x, 8, [1], TYPE="float", SIZES=8)
    with pytest.raises(zg.LaunchError, match="the macro 'TYPE' must be a number, a bool, a text of C or a dtype"):
        triton.kernel(ADD, ["total"])(x, x, x, x, 8, [1], TYPE=None, SIZE=8)


@pytest.mark.parametrize(
    ("source", "outputs", "message"),
    [
        (ADD, 3, "outputs must be names of parameters"),
        (ADD, ["z"], r"'add' has no parameter 'z' \(in outputs\)\n.*TYPE=zg.f32, SIZE=8"),
        (ADD, ["n"], "'n' is an output of 'add', and so must be an array; got i32"),
        (ADD, ["x"], "'x' is an output of 'add', which does not store to it"),
        (3, [], "the source must be a text, or the path of a file; got 3"),
        (ADD.replace(";", "", 1), [], "';' is expected here"),
        (ADD + ADD.replace("add", "sub"), [], "has several kernels: 'add', 'sub'"),
    ],
)
def test_bad_kernels(source, outputs, message):
    x = np.zeros(8, "f4")
    with pytest.raises(zg.ZigguratError, match=message):
        triton.kernel(source, outputs)(x, x, x, x, 8, [1], TYPE=zg.f32, SIZE=8)


def test_functions_with_wrong_keywords():
    class same(triton.function):
        @staticmethod
        def forward(ctx, x):
            return x

    with pytest.raises(zg.LaunchError, match=r"same\.apply: got an unexpected keyword argument 'y'"):
        same.apply(1, y=2)


def test_sizes_of_grids_by_combination_of_macros():
    from ziggurat.pytriton.tensor_kernels import sizes

    assert sizes([5], ()) == [5, 1, 1] and sizes((5, 2), ()) == [5, 2, 1] and sizes([5, 2, 3], ()) == [5, 2, 3]
    macros = (("SIZE", (2, 4)), ("TYPE", "float"), ("T", (1, 3)))
    assert sizes(lambda opt: [8 // opt["SIZE"], opt["T"]], macros) == [4, 1, 1, 4, 3, 1, 2, 1, 1, 2, 3, 1]


def test_arrays_of_a_call_are_of_one_library():
    from ziggurat.pytriton.tensor_kernels import library_of

    torch = require("torch")
    x, y = np.zeros(1), torch.zeros(1)
    assert library_of([1, x, x, None]) == library_of([]) == library_of([triton.empty([1], zg.f32)]) == "numpy"
    assert library_of([x, y, y]) == library_of([y, 3, x]) == "torch"
    cupy = type("ndarray", (), {"__module__": "cupy._core", "shape": (1,), "dtype": x.dtype})()
    assert library_of([x, cupy, cupy]) == "cupy"
    with pytest.raises(zg.LaunchError, match="the arrays of a call must be of one library; got cupy and torch"):
        library_of([cupy, y])
    other = type("array", (), {"shape": (1,), "dtype": x.dtype})()
    with pytest.raises(
        zg.LaunchError, match="the arrays must be of PyTorch, JAX, TensorFlow, CuPy or NumPy; got array"
    ):
        library_of([other])


def test_what_names_macros():
    from ziggurat.pytriton.tensor_kernels import _checked

    assert _checked({"A": 1}) == {"A": 1} and _checked({}) == {}
    for wrong in ({"A": 1, 2: 3}, {2: 3, "A": 1}, [("A", 1)], 3):
        with pytest.raises(zg.LaunchError, match="macros must be a dictionary of values by name"):
            _checked(wrong)
