"""`zg.run`: any Triton model on arrays."""

import re

import numpy as np
import pytest

import ziggurat as zg

SCALE = """
tt.func @"scale" (%0 : ptr<f32>, %1 : f32)void -> {
    %2 : i32 = tt.get_program_id @0;
    %3 : ptr<f32> = tt.addptr %0 %2;
    %4 : f32 = tt.load %3;
    %5 : f32 = arith.mulf %4 %1;
    tt.store %3 %5;
    tt.return;
};
"""


def double(x_ptr, n):
    offsets = zg.add(zg.program_id(0) * 16, zg.arange(0, 16))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    pointers = zg.add(x_ptr, offsets)
    zg.store(pointers, zg.mul(zg.load(pointers, mask), 2.0), mask)


class Wrapped:
    """An array of some other library."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.owner = array


def test_a_parsed_function_runs_on_a_view():
    x = np.arange(12, dtype=np.float32)
    zg.run(zg.parse(SCALE), 3, x[4:7], 10.0)
    np.testing.assert_array_equal(x, [0, 1, 2, 3, 40, 50, 60, 7, 8, 9, 10, 11])


def test_a_traced_module_runs_before_and_after_its_text():
    model = zg.trace(double, zg.ptr(zg.f32), zg.i32)
    x = np.arange(40, dtype=np.float32)
    zg.run(model, (3,), x, 40)
    zg.run(zg.parse(str(model)), (3,), x, 40)
    np.testing.assert_array_equal(x, 4 * np.arange(40, dtype=np.float32))


def test_arrays_of_other_libraries_are_changed_in_place():
    x = np.ones(5, np.float32)
    zg.run(zg.parse(SCALE), (5,), Wrapped(x), 3.0)
    np.testing.assert_array_equal(x, 3)


def test_strict_shows_what_is_undefined():
    def sum_of_masked(x_ptr, out_ptr):
        offsets = zg.arange(0, 4)
        x = zg.load(zg.add(x_ptr, offsets), zg.compare(offsets, 3, zg.CompareKind.LESS_THAN))
        zg.store(out_ptr, zg.sum(x, axis=0))

    model = zg.trace(sum_of_masked, zg.ptr(zg.f32), zg.ptr(zg.f32))
    out = np.zeros(1, np.float32)
    with pytest.raises(zg.KernelRuntimeError, match="stores an undefined element"):
        zg.run(model, 1, np.ones(3, np.float32), out, strict=True)


@pytest.mark.parametrize(
    ("grid", "arguments", "message"),
    [
        ((1,), (np.zeros(1, np.float32),), "takes 2 argument(s); got 1"),
        ((1,), (np.zeros(1, np.float64), 1.0), "must be an array of float32 for ptr<f32>; got float64"),
        ((1,), (np.zeros(1, complex), 1.0), "'arg0' is an array of complex128"),
        ((1,), (1.0, 1.0), "must be a NumPy array of float32 for ptr<f32>; got float"),
        ((1,), (np.zeros(1, np.float32), "one"), "must be a number of type f32; got 'one'"),
        (
            lambda meta: (1,),
            (np.zeros(1, np.float32), 1.0),
            "must be one to three sizes; got a function",
        ),
        ((1, 1, 1, 2), (np.zeros(1, np.float32), 1.0), "one to three sizes"),
    ],
)
def test_what_does_not_fit_is_an_error(grid, arguments, message):
    with pytest.raises(zg.LaunchError, match=re.escape(message)):
        zg.run(zg.parse(SCALE), grid, *arguments)


def test_a_module_with_several_kernels_is_an_error():
    first, second = zg.parse(SCALE), zg.parse(SCALE.replace("scale", "other"))
    module = zg.parse(f"module ()void -> {{ {first} {second} unreachable; }};")
    with pytest.raises(zg.LaunchError, match="scale, other"):
        zg.run(module, (1,), np.zeros(1, np.float32), 1.0)
