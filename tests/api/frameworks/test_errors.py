"""Wrong uses of operations: each is an error that says what is wrong, the same for all array libraries."""

import importlib

import numpy as np
import pytest
from framework_kernels import increment, one_a_row, softmax
from libraries import require

import ziggurat as zg

# The library, the module and the name of what makes its operations, and the function that makes its arrays.
LIBRARIES = {
    "numpy": ("array_ops", "ArrayOperation", "asarray"),
    "torch": ("torch_ops", "torch_op", "tensor"),
    "jax": ("jax_ops", "jax_op", "numpy.asarray"),
    "tensorflow": ("tensorflow_ops", "TensorflowOperation", "constant"),
}


@pytest.fixture(params=LIBRARIES)
def library(request):
    """The function that makes operations of a library, and the one that makes its arrays."""
    make = require(request.param)
    module, op, array = LIBRARIES[request.param]
    for name in array.split("."):
        make = getattr(make, name)
    return getattr(importlib.import_module(f"ziggurat.frameworks.{module}"), op), make


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": abs}, "an operation must be made of a kernel"),
        ({"outputs": 3}, "outputs must be names of parameters, each once; got 3"),
        ({"outputs": None}, "outputs must be names of parameters"),
        ({"outputs": ["out", "out"]}, "each once"),
        ({"outputs": np.zeros(2)}, "outputs must be names of parameters"),
        ({"outputs": ["ot"]}, "has no parameter 'ot'.*\n.*did you mean out"),
        ({"outputs": "BLOCK"}, "'BLOCK' is an output of 'softmax', and so must be an array; it is compiled in"),
        ({"backward": True}, 'backward of .softmax. must be "auto" or a function; got True'),
    ],
)
def test_operations(library, arguments, message):
    make, _ = library
    with pytest.raises(zg.LaunchError, match=message):
        make(**{"kernel": softmax, "grid": one_a_row, "outputs": "out", **arguments})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("y", "must be like an argument that is an array; got 'y'"),
        ("columns", "must be like an argument that is an array; got 'columns'"),
        ((None, 3), "must have a shape of integers"),
        ((4, "x"), "must have a shape of integers"),
        (1.5, "must have a shape of integers; got 1.5"),
        (zg.f32, "must have a shape of integers"),
        (((4, 8), "floot"), "the dtype of an array must be one of the language's; got 'floot'"),
        (lambda: (4, 8), "the function of the output 'out' of 'softmax' must take one argument"),
        (lambda arguments: arguments["rows"], "'out' of 'softmax' asks for 'rows', which is no input"),
    ],
)
def test_rules_of_outputs(library, rule, message):
    make, array = library
    with pytest.raises(zg.LaunchError, match=message):
        make(softmax, one_a_row, {"out": rule})(array(np.ones((4, 8), "f4")), 8, 8, BLOCK=8)


def none(arguments):
    return None


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (none, "the grid of 'softmax' must be one to three sizes"),
        ("abc", "the grid of 'softmax' must be one to three sizes"),
        (lambda meta: (meta["rows"],), "the grid of 'softmax' asks for 'rows'"),
        (lambda: (1,), "the grid of 'softmax' must be a function of one parameter"),
    ],
)
def test_grids(library, grid, message):
    make, array = library
    with pytest.raises(zg.LaunchError, match=message):
        make(softmax, grid, "out")(array(np.ones((4, 8), "f4")), 8, 8, BLOCK=8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stride": None}, "'b' must be a value; got None"),
        ({"columns": "8"}, "'columns'.* must be an? .*number; got str"),
        ({"columns": object()}, "'columns'.* must be an? .*number; got object"),
        ({"columns": 2**70}, "'columns'.* must fit in 64 bits"),
        ({"BLOCK": [8]}, r"'end' must be an integer; got \(8,\)"),
        ({"BLOCK": {8}}, "'BLOCK' is compiled in: it must be a number.*; got set"),
        ({"num_warps": 3}, "num_warps must be an integer, a power of two"),
        ({"BLOCKS": 8}, "'softmax' has no parameter 'BLOCKS'"),
    ],
)
def test_arguments(library, arguments, message):
    make, array = library
    call = {"x": array(np.ones((4, 8), "f4")), "columns": 8, "stride": 8, "BLOCK": 8}
    with pytest.raises(zg.ZigguratError, match=message):
        make(softmax, one_a_row, "out")(**{**call, **arguments})


def test_arrays_that_are_compiled_in(library):
    make, array = library
    x = array(np.ones((4, 8), "f4"))
    with pytest.raises(zg.LaunchError, match="'BLOCK' is compiled in"):
        make(softmax, one_a_row, "out")(x, 8, 8, BLOCK=x)


def test_an_output_that_the_kernel_does_not_store_to(library):
    make, array = library
    x = array(np.ones((4, 8), "f4"))
    with pytest.raises(zg.LaunchError, match="'x' is an output of 'softmax', which does not store to it"):
        make(softmax, one_a_row, "x")(x, x, 8, 8, BLOCK=8)
    with pytest.raises(zg.LaunchError, match="'n' is an output of 'increment', and so must be an array; got i32"):
        make(increment, (1,), "n")(x, 8, 1.0, BLOCK=8)


def test_numbers_of_numpy_are_numbers(library):
    make, array = library
    result = make(increment, (1,), "x")(n=np.int64(4), by=np.float32(1.5), BLOCK=np.int64(4), x=array(np.ones(4, "f4")))
    np.testing.assert_array_equal(np.asarray(result), [2.5] * 4)


def test_arrays_of_numpy_are_no_tensors_of_torch():
    require("torch")
    with pytest.raises(zg.LaunchError, match="'x' must be a tensor of PyTorch or a number; got numpy's ndarray"):
        zg.torch_op(softmax, one_a_row, "out")(np.ones((4, 8), "f4"), 8, 8, BLOCK=8)


def test_arrays_without_gradients():
    from ziggurat.frameworks.array_ops import ArrayOperation

    with pytest.raises(zg.LaunchError, match="backward of 'softmax' must be None: arrays of numpy have no gradients"):
        ArrayOperation(softmax, one_a_row, "out", backward="auto")
