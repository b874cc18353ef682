"""Contents of arrays put aside and put back."""

import ctypes
import math
from types import SimpleNamespace

import numpy as np
import pytest

from ziggurat.backend.cuda import arrays
from ziggurat.backend.cuda.driver import using_stream
from ziggurat.backend.cuda.memory import Region, Saved, empty
from ziggurat.codemodel.errors import LaunchError


def test_all_of_the_memory_is_copied_on_the_array_s_device(fake):
    array = empty((5, 7), np.float16, device=1)
    saved = Saved(array, "x")
    saved.restore()
    Region(array, "x").zero()
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
    seen = []
    monkeypatch.setattr(fake, "cuMemsetD8Async", lambda *given: seen.append(given[3]) or (fake.cuInit(0)[0],))
    with using_stream(77):
        Region(empty(4), "x").zero()
    assert seen == [("stream", 77)]


def interface(shape, strides):
    """An array of f32 that has nothing but the interface: no dtype, no number of bytes."""
    said = {"shape": shape, "typestr": "<f4", "data": (0x5000, False), "version": 3, "strides": strides}
    return SimpleNamespace(__cuda_array_interface__=said)


def dlpack_array(shape, strides):
    """An array of f32 that has nothing but DLPack, where strides are counted in elements."""
    numbers = [
        None if n is None else (ctypes.c_int64 * len(n))(*n)
        for n in (shape, None if strides is None else [stride // 4 for stride in strides])
    ]
    places = [None if n is None else ctypes.addressof(n) for n in numbers]
    held = arrays._Tensor(0x5000, 2, 0, len(shape), 2, 32, 1, *places, 0)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(ctypes.addressof(held), b"dltensor", None)
    return SimpleNamespace(__dlpack__=lambda: capsule, __dlpack_device__=lambda: (2, 0), kept=(held, numbers))


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


@pytest.mark.parametrize("made", [interface, dlpack_array, torch_like])
@pytest.mark.parametrize(
    ("shape", "strides"), [((4,), None), ((4,), (4,)), ((3, 4), (16, 4)), ((), None), ((3, 4), None)]
)
def test_the_size_is_told_by_whatever_the_array_has(fake, made, shape, strides):
    Region(made(shape, strides), "x").zero()
    assert fake.done == [("set", 0x5000, 0, 4 * math.prod(shape))]


@pytest.mark.parametrize("made", [interface, dlpack_array])
@pytest.mark.parametrize(("shape", "strides"), [((3, 4), (4, 12)), ((1, 4), (400, 4)), ((4, 1, 2), (8, 0, 4))])
def test_columns_first_and_axes_of_one_element_leave_no_gaps(fake, made, shape, strides):
    Region(made(shape, strides), "x").zero()
    assert fake.done == [("set", 0x5000, 0, 4 * math.prod(shape))]


@pytest.mark.parametrize("made", [interface, dlpack_array, torch_like])
@pytest.mark.parametrize(("shape", "strides"), [((4,), (8,)), ((2, 4), (64, 4)), ((4, 2), (0, 4)), ((3, 4), (-16, 4))])
def test_memory_with_gaps_is_refused(fake, made, shape, strides):
    with pytest.raises(LaunchError, match=r"'x' must be contiguous .*; its memory has gaps"):
        Region(made(shape, strides), "x")
    assert fake.done == []


@pytest.mark.parametrize("made", [interface, dlpack_array])
def test_no_elements_have_no_gaps(fake, made):
    Region(made((0, 4), (64, 4)), "x").zero()
    assert fake.done == []


def test_an_array_that_tells_only_its_address_is_refused(fake):
    array = SimpleNamespace(data_ptr=lambda: 0x5000, dtype=np.dtype("f4"), device="cuda:0")
    with pytest.raises(LaunchError, match="must tell its size"):
        Region(array, "x")
