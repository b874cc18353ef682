"""Reading arrays of other libraries, with objects that answer as theirs do."""

import ctypes
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.cuda import dlpack
from ziggurat.backend.cuda.arrays import View, reader_of, view
from ziggurat.backend.cuda.driver import using_stream
from ziggurat.backend.cuda.memory import DeviceArray, empty, to_device, to_host
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import bf16, f8e4m3, f16, f32, i1, u8


class Protocol:
    def __init__(self, typestr, address=0x1000, stream=None, dtype=None):
        self.__cuda_array_interface__ = {"typestr": typestr, "data": (address, False), "version": 3, "stream": stream}
        if dtype is not None:
            self.dtype = dtype


class Capsule(dlpack._Tensor):
    """A DLPack tensor in a capsule."""


def dlpack_array(code, bits, *, kind=2, versioned=False):
    tensor = dlpack._Tensor(0x3000, kind, 1, 1, code, bits, 1, None, None, 0x10)
    held, name = tensor, b"dltensor"
    if versioned:
        held, name = dlpack._Versioned(1, 0, None, None, 0, tensor), b"dltensor_versioned"
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(ctypes.addressof(held), name, None)
    return SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (kind, 1), kept=(held, name))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (Protocol("<f4"), View(0x1000, f32)),
        (Protocol("|u1", stream=7), View(0x1000, u8, None, 7)),
        (Protocol("<V2", dtype=np.dtype(ml_dtypes.bfloat16)), View(0x1000, bf16)),
        (Protocol("<f4", address=None), View(0, f32)),
        (SimpleNamespace(data_ptr=lambda: 5, dtype="torch.float8_e4m3fn", is_cuda=True), View(5, f8e4m3)),
        (SimpleNamespace(data_ptr=lambda: 5, dtype="torch.bool", device="cuda:0"), View(5, i1)),
        (DeviceArray(0x4000, (2, 3), f16, 1), View(0x4000, f16, 1)),
        (dlpack_array(2, 16), View(0x3010, f16, 1)),
        (dlpack_array(4, 16, versioned=True), View(0x3010, bf16, 1)),
        (dlpack_array(10, 8, kind=13), View(0x3010, f8e4m3, 1)),
    ],
)
def test_views(array, expected):
    assert view(array, "x") == expected


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3),
        [1, 2],
        3,
        None,
        SimpleNamespace(data_ptr=lambda: 5, dtype="torch.float32", is_cuda=False, device="cpu"),
        dlpack_array(2, 32, kind=1),
    ],
)
def test_what_is_not_on_a_gpu(array):
    assert reader_of(array) is None
    with pytest.raises(LaunchError, match="'x' is not an array on a GPU"):
        view(array, "x")


@pytest.mark.parametrize(
    "array", [dlpack_array(5, 64), SimpleNamespace(data_ptr=lambda: 5, dtype="torch.complex64", is_cuda=True)]
)
def test_elements_that_kernels_lack(array):
    with pytest.raises(LaunchError, match=r"'x' is an array of .*, which kernels do not have"):
        view(array, "x")


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.uint64])
def test_there_and_back(fake, dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    there = to_device(array)
    assert (there.shape, there.dtype, there.nbytes, there.device) == (array.shape, array.dtype, array.nbytes, 0)
    assert there.strides == array.strides and there.stride(0) == 12 and len(there) == 2
    back = to_host(there)
    assert back.dtype == array.dtype and back.tobytes() == array.tobytes()
    assert there.reshape(4, 6).numpy().shape == (4, 6)
    with pytest.raises(LaunchError, match="cannot have the shape"):
        there.reshape(5)


def test_arrays_that_are_not_contiguous_are_copied_in_order(fake):
    array = np.arange(12, dtype=np.int32).reshape(3, 4).T
    assert np.array_equal(to_host(to_device(array)), array)
    assert to_host(to_device(np.float32(3))).shape == ()


def test_memory_is_freed_with_the_array_and_its_views(fake):
    array = empty((4, 4), f32)
    half = array.reshape(16)
    pointer = array.pointer
    del array
    assert fake.freed == []
    del half
    assert fake.freed == [pointer]


def test_the_array_interface(fake):
    array = empty(8, bf16, device=1)
    assert array.device == 1 and fake.context == 100
    interface = array.__cuda_array_interface__
    assert (interface["data"], interface["shape"], interface["stream"]) == ((array.pointer, False), (8,), 1)
    with using_stream(9):
        assert array.__cuda_array_interface__["stream"] == 9


def test_unknown_elements_and_devices(fake):
    with pytest.raises(LaunchError, match="kernels have no arrays of complex64"):
        empty(3, np.complex64)
    with pytest.raises(LaunchError, match="there is no device 7: there are 2"):
        empty(3, device=7)
