"""Arrays in the memory of a GPU, for people who have NumPy only."""

import ctypes
import math
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.cuda.device_memory import ArrayMemory, DeviceArray, Saved, element_type, empty, to_device, to_host
from ziggurat.backend.devices.driver import using_stream
from ziggurat.backend.launch import device_arrays
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError
from ziggurat.codemodel.types import bf16, f8e4m3, f16, f32, i1


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


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(3, (3,)), (np.int64(3), (3,)), ([2, 3], (2, 3)), (np.array([2, 3]), (2, 3)), ((), ()), ((0, 4), (0, 4))],
)
def test_shapes(fake, shape, expected):
    assert empty(shape).shape == expected


@pytest.mark.parametrize("shape", [-3, 3.5, (2, -1), (2.0,), "3", None, ((1, 2),)])
def test_shapes_that_arrays_do_not_have(fake, shape):
    with pytest.raises(LaunchError, match="the shape of an array has sizes that are integers, each zero or more; got"):
        empty(shape)


def test_what_is_no_type_of_elements(fake):
    for dtype in ("floaty", object(), "<M8[s]"):
        with pytest.raises(LaunchError) as error:
            empty(3, dtype)
        assert error.value.hint is not None and "float32" in error.value.hint


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((8, 8), (8, 8)),
        (((8, 8),), (8, 8)),
        ((-1, 16), (4, 16)),
        ((64,), (64,)),
        ((-1,), (64,)),
        (([2, -1, 4],), (2, 8, 4)),
    ],
)
def test_reshape_is_as_numpy_s(sizes, expected):
    array = DeviceArray(0x1000, (4, 16), f32, 0)
    assert array.reshape(*sizes).shape == np.empty((4, 16)).reshape(*sizes).shape == expected


@pytest.mark.parametrize("sizes", [(5,), (-1, -1), (-1, 5), ((8, 9),), (-1, 0), (), (-2, -32)])
def test_shapes_that_an_array_cannot_take(sizes):
    with pytest.raises(
        LaunchError, match=r"cannot have the shape|sizes that are integers, each zero or more, or one of"
    ):
        DeviceArray(0x1000, (4, 16), f32, 0).reshape(*sizes)


def test_numpy_gets_a_copy(fake):
    array = to_device(np.arange(6, dtype=np.float32).reshape(2, 3))
    for item in (np.asarray(array), np.array(array), np.asarray(array, np.float32)):
        assert item.dtype == np.float32 and np.array_equal(item, [[0, 1, 2], [3, 4, 5]])
    assert np.asarray(array, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="is copied to be one of NumPy"):
        array.__array__(copy=False)


def test_copies_of_what_is_there_already(fake):
    with pytest.raises(LaunchError, match=r"zg.to_host copies arrays of zg.empty and zg.to_device, not numpy.ndarray"):
        to_host(np.zeros(3))  # pyright: ignore[reportArgumentType]
    with pytest.raises(LaunchError, match="this one is on a GPU"):
        to_device(empty(3))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(f16, f16), (np.float16, f16), ("float32", f32), (bool, i1), (ml_dtypes.float8_e4m3fn, f8e4m3)],
)
def test_element_types_have_several_names(dtype, expected):
    assert element_type(dtype) is expected


def test_what_an_array_says_of_itself():
    array = DeviceArray(0x1000, (2, 3, 4), f16, 1)
    assert (array.size, array.nbytes, array.ndim) == (24, 48, 3)
    assert array.strides == (24, 8, 2) and [array.stride(axis) for axis in range(3)] == [12, 4, 1]
    assert array.dtype == np.float16 and repr(array) == "<DeviceArray of f16 [2, 3, 4] on device 1>"
    scalar = DeviceArray(0x1000, (), f32, 0)
    assert (scalar.size, scalar.strides) == (1, ())
    with pytest.raises(TypeError, match="has no length"):
        len(scalar)


def test_the_key_tells_what_kernels_tell_apart():
    def key(pointer=0x1000, element=f32, device=0):
        return DeviceArray(pointer, (4,), element, device).key

    assert key() is key(0x2010)
    assert len({key(), key(0x1008), key(element=f16), key(device=1)}) == 4


def test_arrays_without_elements(fake):
    array = to_device(np.zeros((0, 3), np.float32))
    assert (array.shape, array.size, len(array)) == ((0, 3), 0, 0) and not hasattr(fake, "copied")
    assert to_host(array).shape == (0, 3)
    assert array.reshape(3, 0).shape == (3, 0)


def test_copies_are_made_on_the_current_stream(fake, monkeypatch: pytest.MonkeyPatch):
    streams = []
    to, back = fake.cuMemcpyHtoDAsync, fake.cuMemcpyDtoHAsync
    monkeypatch.setattr(fake, "cuMemcpyHtoDAsync", lambda *argument: streams.append(argument[-1]) or to(*argument))
    monkeypatch.setattr(fake, "cuMemcpyDtoHAsync", lambda *argument: streams.append(argument[-1]) or back(*argument))
    with using_stream(9):
        to_host(to_device(np.ones(3)))
    to_host(to_device(np.ones(3)))
    assert [address for _, address in streams] == [9, 9, 0, 0]


def test_what_ran_before_fails_at_the_copy_back(fake, failed, monkeypatch: pytest.MonkeyPatch):
    array = to_device(np.ones(3))
    monkeypatch.setattr(fake, "cuStreamSynchronize", lambda stream: (failed("CUDA_ERROR_ASSERT", 710),))
    with pytest.raises(KernelRuntimeError, match="a kernel launched before stopped at a device assertion"):
        array.numpy()


def test_no_room(fake, failed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fake, "cuMemAlloc", lambda size: (failed("CUDA_ERROR_OUT_OF_MEMORY", 2), None))
    with pytest.raises(LaunchError, match="getting 4000 bytes for an array: the device is out of memory"):
        empty(1000)


def test_freeing_after_the_context_is_gone_is_no_error(fake, monkeypatch: pytest.MonkeyPatch):
    def gone(pointer):
        freed.append(pointer)
        raise RuntimeError("no context")

    array, freed, messages = empty(3), [], []
    monkeypatch.setattr("sys.unraisablehook", messages.append)
    pointer = array.pointer
    monkeypatch.setattr(fake, "cuMemFree", gone)
    del array
    assert freed == [pointer] and messages == []


# Contents of arrays put aside and put back.


def test_all_of_the_memory_is_copied_on_the_array_s_device(fake):
    array = empty((5, 7), np.float16, device=1)
    saved = Saved(array, "x")
    saved.restore()
    ArrayMemory(array, "x").zero()
    copy = saved.copy
    assert copy.device == 1 and copy.nbytes == 70
    assert fake.done == [
        ("copy", copy.pointer, array.pointer, 70),
        ("copy", array.pointer, copy.pointer, 70),
        ("set", array.pointer, 0, 70),
    ]
    assert fake.context == 100  # the device that was current before


def test_nothing_is_asked_of_an_empty_array(fake):
    array = empty((0,), np.float32)
    Saved(array, "x").restore()
    assert fake.done == []


def test_it_goes_to_the_stream_of_the_launches(fake, monkeypatch):
    calls = []
    monkeypatch.setattr(fake, "cuMemsetD8Async", lambda *argument: calls.append(argument[3]) or (fake.cuInit(0)[0],))
    with using_stream(77):
        ArrayMemory(empty(4), "x").zero()
    assert calls == [("stream", 77)]


def interface(shape, strides):
    """An array of f32 that has nothing but the interface: no dtype, no number of bytes."""
    text = {"shape": shape, "typestr": "<f4", "data": (0x5000, False), "version": 3, "strides": strides}
    return SimpleNamespace(__cuda_array_interface__=text)


def dlpack_array(shape, strides):
    """An array of f32 that has nothing but DLPack, where strides are counted in elements."""
    numbers = [
        None if n is None else (ctypes.c_int64 * len(n))(*n)
        for n in (shape, None if strides is None else [stride // 4 for stride in strides])
    ]
    places = [None if n is None else ctypes.addressof(n) for n in numbers]
    values = device_arrays._Tensor(0x5000, 2, 0, len(shape), 2, 32, 1, *places, 0)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(ctypes.addressof(values), b"dltensor", None)
    return SimpleNamespace(__dlpack__=lambda: capsule, __dlpack_device__=lambda: (2, 0), kept=(values, numbers))


def torch_like(shape, strides):
    """One that tells its strides in elements."""
    if strides is None:
        strides = np.zeros(shape, "f4").strides
    return SimpleNamespace(
        data_ptr=lambda: 0x5000,
        dtype=np.dtype("f4"),
        device="cuda:0",
        shape=shape,
        stride=lambda axis: strides[axis] // 4,
    )


@pytest.mark.parametrize("make", [interface, dlpack_array, torch_like])
@pytest.mark.parametrize(
    ("shape", "strides"), [((4,), None), ((4,), (4,)), ((3, 4), (16, 4)), ((), None), ((3, 4), None)]
)
def test_the_size_is_told_by_whatever_the_array_has(fake, make, shape, strides):
    ArrayMemory(make(shape, strides), "x").zero()
    assert fake.done == [("set", 0x5000, 0, 4 * math.prod(shape))]


@pytest.mark.parametrize("make", [interface, dlpack_array])
@pytest.mark.parametrize(("shape", "strides"), [((3, 4), (4, 12)), ((1, 4), (400, 4)), ((4, 1, 2), (8, 0, 4))])
def test_columns_first_and_axes_of_one_element_leave_no_gaps(fake, make, shape, strides):
    ArrayMemory(make(shape, strides), "x").zero()
    assert fake.done == [("set", 0x5000, 0, 4 * math.prod(shape))]


@pytest.mark.parametrize("make", [interface, dlpack_array, torch_like])
@pytest.mark.parametrize(("shape", "strides"), [((4,), (8,)), ((2, 4), (64, 4)), ((4, 2), (0, 4)), ((3, 4), (-16, 4))])
def test_memory_with_gaps_is_refused(fake, make, shape, strides):
    with pytest.raises(LaunchError, match=r"'x' must be contiguous .*; its memory has gaps"):
        ArrayMemory(make(shape, strides), "x")
    assert fake.done == []


@pytest.mark.parametrize("make", [interface, dlpack_array])
def test_no_elements_have_no_gaps(fake, make):
    ArrayMemory(make((0, 4), (64, 4)), "x").zero()
    assert fake.done == []


def test_an_array_that_tells_only_its_address_is_refused(fake):
    array = SimpleNamespace(data_ptr=lambda: 0x5000, dtype=np.dtype("f4"), device="cuda:0")
    with pytest.raises(LaunchError, match="must tell its size"):
        ArrayMemory(array, "x")
