"""What a launch accepts: arrays of any library over memory of this machine, and numbers."""

from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.launch.arrays import ELEMENTS, as_array, is_array, number_type


@zg.kernel
def double(x_ptr, n, B: zg.constexpr):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, at), mask)
    zg.store(zg.add(x_ptr, at), zg.add(x, x), mask)


@zg.kernel
def reverse(x_ptr, B: zg.constexpr):
    at = zg.add(x_ptr, zg.arange(0, B))
    x = zg.load(at)
    zero = zg.compare(x, 0, zg.CompareKind.EQUAL)
    zg.store(at, zg.cast(zero, x.dtype))


class Interface:
    """An array of a library that has only NumPy's protocol."""

    def __init__(self, array):
        self.kept = array
        self.__array_interface__ = array.__array_interface__


class DLPack:
    """An array of a library that has only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [lambda a: a, Interface, DLPack], ids=["numpy", "interface", "dlpack"])
def test_arrays_of_any_library_are_changed_in_place(wrap):
    x = np.arange(10, dtype=np.float32)
    double[(2,)](wrap(x), 9, B=8)
    assert x.tolist() == [*range(0, 18, 2), 9]


@pytest.mark.parametrize("dtype", list(ELEMENTS), ids=str)
def test_every_element_type(dtype):
    x = np.array([0, 1, 1, 0], dtype=dtype)
    reverse[1](x, B=4)
    assert x.astype(np.float32).tolist() == [1, 0, 0, 1]


def test_torch_tensors_without_importing_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.arange(4, dtype=torch.bfloat16)
    double[1](x, 4, B=4)
    assert x.tolist() == [0, 2, 4, 6]


def test_an_array_on_a_gpu_is_refused_by_name():
    class Device:
        __cuda_array_interface__: ClassVar[Any] = {"shape": (4,), "typestr": "<f4", "data": (16, False), "version": 3}

    with pytest.raises(zg.LaunchError, match=r"'x_ptr' is an array on a GPU.*\n.*\.cpu\(\)"):
        as_array(Device(), "x_ptr")


def test_element_types_that_kernels_lack():
    with pytest.raises(zg.LaunchError, match="'x_ptr' is an array of complex64"):
        double[1](np.zeros(4, np.complex64), 4, B=4)


def test_numbers_are_no_arrays():
    assert not is_array(np.float32(1)) and not is_array(3)
    assert is_array(np.zeros(())) and as_array(np.zeros(2), "x").shape == (2,)


@pytest.mark.parametrize(
    ("number", "type_"),
    [
        (True, zg.i1), (np.bool_(False), zg.i1), (5, zg.i32), (-(2**31), zg.i32), (2**31, zg.i64), (2**63, zg.u64),
        (1.5, zg.f32), (np.int8(3), zg.i8), (np.float64(2), zg.f64), (ml_dtypes.bfloat16(1), zg.bf16), ("x", None),
    ],
)  # fmt: skip
def test_types_of_numbers(number, type_):
    assert number_type(number) == type_


def test_an_int_beyond_64_bits():
    with pytest.raises(zg.LaunchError, match="does not fit in 64 bits"):
        number_type(2**64)


def test_divisibility_comes_from_the_arguments():
    buffer = np.zeros(64, np.float32)
    start = (-buffer.ctypes.data // 4) % 4  # The first element at an address divisible by 16.
    double[1](buffer[start:], 16, B=8)
    double[1](buffer[start + 1 :], 16, B=8)
    double[1](buffer[start:], 17, B=8)
    known = sorted(model.body.entry.ops[0].attributes["divisibility"] for model in double._models.values())
    assert (16, 16) in known and (1, 16) in known and (16, 1) in known


def test_models_are_kept():
    x = np.zeros(8, np.float64)
    double[1](x, 5, B=8)
    count = len(double._models)
    double[1](x, 3, B=8)
    assert len(double._models) == count


def test_opting_out_of_specialisation():
    @zg.kernel(do_not_specialize=["n"])
    def once(x_ptr, n):
        zg.store(x_ptr, n)

    x = np.zeros(4, np.int32)
    for n in (16, 3, 48):
        once[1](x, n)
    assert len(once._models) == 1 and x[0] == 48


def test_the_grid_is_a_function_of_the_constexprs():
    x = np.ones(20, np.float32)
    double[lambda meta: (zg.cdiv(20, meta["B"]),)](x, 20, B=8)
    assert (x == 2).all()
