"""Reading arrays of other libraries, with objects that answer as theirs do."""

import ctypes
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.backend.launch import device_arrays
from ziggurat.backend.launch.device_arrays import ArrayView, reader_of, view
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import SCALARS, bf16, f8e4m3, f8e5m2, f16, f32, i1, u8


class Protocol:
    def __init__(self, typestr, address=0x1000, stream=None, dtype=None):
        self.__cuda_array_interface__ = {"typestr": typestr, "data": (address, False), "version": 3, "stream": stream}
        if dtype is not None:
            self.dtype = dtype


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (Protocol("<f4"), ArrayView(0x1000, f32)),
        (Protocol("|u1", stream=7), ArrayView(0x1000, u8, None, 7)),
        (Protocol("<V2", dtype=np.dtype(ml_dtypes.bfloat16)), ArrayView(0x1000, bf16)),
        (Protocol("<f4", address=None), ArrayView(0, f32)),
        (SimpleNamespace(data_ptr=lambda: 5, dtype="torch.float8_e4m3fn", is_cuda=True), ArrayView(5, f8e4m3)),
        (SimpleNamespace(data_ptr=lambda: 5, dtype="torch.bool", device="cuda:0"), ArrayView(5, i1)),
        (DeviceArray(0x4000, (2, 3), f16, 1), ArrayView(0x4000, f16, 1)),
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
        SimpleNamespace(element=f32),
        SimpleNamespace(element="f32", pointer=5),
    ],
)
def test_what_is_not_on_a_gpu(array):
    assert reader_of(array) is None
    with pytest.raises(LaunchError, match="'x' must be an array on a GPU"):
        view(array, "x")


@pytest.mark.parametrize("array", [SimpleNamespace(data_ptr=lambda: 5, dtype="torch.complex64", is_cuda=True)])
def test_elements_that_kernels_lack(array):
    with pytest.raises(LaunchError, match=r"'x' is an array of .*, which kernels do not have"):
        view(array, "x")


# Addresses and element types out of DLPack capsules, made here as other libraries make them.


def dlpack_array(code, bits, *, kind=2, versioned=False, lanes=1, data=0x3000, offset=0x10):
    """An array on device 1."""
    tensor = device_arrays._Tensor(data, kind, 1, 1, code, bits, lanes, None, None, offset)
    values, name = tensor, b"dltensor"
    if versioned:
        values, name = device_arrays._Versioned(1, 0, None, None, 0, tensor), b"dltensor_versioned"
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(ctypes.addressof(values), name, None)
    return SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (kind, 1), kept=(values, name))


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    ("code", "bits", "element"),
    [
        *((code, bits, SCALARS[f"{'iu'[code]}{bits}"]) for code in (0, 1) for bits in (8, 16, 32, 64)),
        *((2, bits, SCALARS[f"f{bits}"]) for bits in (16, 32, 64)),
        (4, 16, bf16),
        (6, 8, i1),
        (10, 8, f8e4m3),
        (12, 8, f8e5m2),
    ],
)
def test_element_types(code, bits, element, versioned):
    """The address is that of the first element: the memory's, and the offset. Both forms of the structure are read."""
    array = dlpack_array(code, bits, versioned=versioned)
    assert device_arrays.dlpack_view(array) == ArrayView(0x3010, element, 1)
    assert device_arrays.view(array, "x") == ArrayView(0x3010, element, 1)


@pytest.mark.parametrize(("kind", "values"), [(2, True), (13, True), (1, False), (10, False)])
def test_only_the_memory_of_gpus_is_seen(kind, values):
    """CUDA's memory and managed memory count; the host's and that of other devices do not."""
    array = dlpack_array(2, 16, kind=kind)
    assert device_arrays.dlpack_view(array) == (ArrayView(0x3010, f16, 1) if values else None)
    assert (reader_of(array) is not None) == values


@pytest.mark.parametrize(("code", "bits", "lanes"), [(5, 64, 1), (2, 8, 1), (0, 4, 1), (11, 8, 1), (2, 32, 4)])
def test_elements_of_capsules_that_kernels_lack(code, bits, lanes):
    """Complex numbers, floats and integers of other widths, the other floats of 8 bits, and vectors."""
    array = dlpack_array(code, bits, lanes=lanes)
    assert device_arrays.dlpack_view(array) is None
    with pytest.raises(LaunchError, match=r"'x' is an array of .*, which kernels do not have"):
        device_arrays.view(array, "x")


def test_an_array_without_elements_has_no_address():
    array = dlpack_array(2, 32, data=None, offset=0)
    assert device_arrays.dlpack_view(array) == ArrayView(0, f32, 1)


def test_an_array_is_asked_anew_each_time():
    """The capsule is released after each read."""
    array, other = dlpack_array(2, 32), dlpack_array(2, 32, data=0x5000)
    assert device_arrays.dlpack_view(array) == ArrayView(0x3010, f32, 1)
    array.__dlpack__ = other.__dlpack__
    assert device_arrays.dlpack_view(array) == ArrayView(0x5010, f32, 1)


def test_a_library_that_exports_arrays_of_the_current_device_alone(fake):
    """As torch does."""
    array = dlpack_array(2, 32)
    whole, requested = array.__dlpack__, []

    def given(**options):
        requested.append(fake.context)
        if fake.context != 101:
            raise BufferError("another device is the current one")
        return whole(**options)

    array.__dlpack__ = given
    assert device_arrays.dlpack_view(array) == ArrayView(0x3010, f32, 1)
    assert len(requested) == 2 and requested[1] == 101 and fake.context != 101
    array.__dlpack_device__ = lambda: (2, 0)
    with pytest.raises(BufferError, match="another device"):
        device_arrays.dlpack_view(array)


@pytest.mark.parametrize(
    ("own", "stream", "waits"),
    [(0, None, False), (0, 1, False), (0, 7, True), (7, 7, False), (7, 1, True), (7, 8, True)],
)
def test_the_stream_of_an_array_is_waited_for_unless_it_is_ours(monkeypatch, own, stream, waits):
    streams = []
    monkeypatch.setattr(device_arrays.driver, "own_stream", lambda: own)
    monkeypatch.setattr(device_arrays, "_after", streams.append)
    assert device_arrays.protocol_address(Protocol("<f4", stream=stream)) == 0x1000
    assert streams == [stream] * waits
