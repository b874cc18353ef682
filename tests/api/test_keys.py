"""Keys of tuned launches, and arguments that no launch takes."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.backend.launch import device_arrays
from ziggurat.tuning.keys import ChoiceKey, refused, types_of


def copy(x_ptr, out_ptr, n, scale=2, BLOCK: zg.constexpr = 64):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(out_ptr, at), zg.mul(zg.load(zg.add(x_ptr, at)), scale))


def tuned(*key):
    return zg.autotune([zg.Config({"BLOCK": 64})], key)(zg.kernel(copy))


def own(pointer=0x1000, device=0, element=zg.f32):
    return DeviceArray(pointer, (64,), element, device)


def interface(typestr="<f4"):
    """An array that has CUDA's array interface alone, and so no dtype."""
    facts = {"shape": (64,), "typestr": typestr, "data": (0x1000, False), "version": 3, "strides": None}
    return SimpleNamespace(__cuda_array_interface__=facts)


def capsule(bits=32, device=0, kind=2):
    """An array that has DLPack alone."""
    tensor = device_arrays._Tensor(0x1000, kind, device, 1, 2, bits, 1, None, None, 0)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule_object = new(ctypes.addressof(tensor), b"dltensor", None)
    return SimpleNamespace(__dlpack__=lambda: capsule_object, __dlpack_device__=lambda: (kind, device), kept=tensor)


def asked(kernel, *arguments, **keywords):
    """The key of a launch."""
    return ChoiceKey(kernel, kernel.tuning.key)(arguments, keywords)


def test_keys_types_and_devices_tell_launches_apart(fake):
    kernel = tuned("n")
    first = asked(kernel, own(), own(), 5)
    assert hash(first) == hash(asked(kernel, own(), own(), 5)) and first == asked(kernel, own(), own(), 5)
    assert first == asked(
        kernel, own(0x2004), own(0x3000), 5, scale=7
    )  # neither addresses nor parameters outside of the key
    assert first == asked(kernel, x_ptr=own(), n=5, out_ptr=own())
    others = [
        asked(kernel, own(), own(), 6),
        asked(kernel, own(element=zg.f16), own(), 5),
        asked(kernel, own(), own(element=zg.f16), 5),
        asked(kernel, own(device=1), own(device=1), 5),
        asked(kernel, None, own(), 5),
        asked(kernel, own(), None, 5),
        asked(kernel, own(), own(), 5, exact_math=True),
    ]
    assert len({first, *others}) == 1 + len(others)
    assert first == asked(kernel, own(), own(), 5, stream=7, check=True, strict=True)


@pytest.mark.parametrize("made_by", [own, interface])
def test_one_function_gives_the_keys_of_all_launches(fake, made_by):
    x, kernel = made_by(), tuned("n")
    key = ChoiceKey(kernel, kernel.tuning.key)
    first = key((x, None, 5), {"scale": 3})
    assert first == key((x, None, 5), {"scale": 4}) == key((made_by(), None, 5, 3), {}) == key((x, None), {"n": 5})
    others = [
        ((x, x, 5), {"scale": 3}),
        ((x, None, 6), {"scale": 3}),
        ((x, None, 5), {"scale": x}),
        ((x, None, 5), {"scale": 3, "exact_math": True}),
        ((np.zeros(64, np.float32), None, 5), {"scale": 3}),
        ((capsule(16), None, 5), {"scale": 3}),
        ((None, x, 5), {"scale": 3}),
        ((x, None, [5]), {"scale": 3}),
    ]
    for arguments, keywords in others:
        try:
            assert key(arguments, keywords) != first
            hash(key(arguments, keywords))
        except (AttributeError, TypeError, zg.LaunchError):
            pass  # The array cannot be read.


def test_a_default_is_as_good_as_the_same_value(fake):
    kernel = tuned("scale")
    assert (
        asked(kernel, own(), own(), 5) == asked(kernel, own(), own(), 6, 2) == asked(kernel, own(), own(), 6, scale=2)
    )
    assert asked(kernel, own(), own(), 5) != asked(kernel, own(), own(), 5, 3)


def test_values_that_cannot_be_hashed_are_told_apart_by_their_text(fake):
    kernel = tuned("scale")
    assert asked(kernel, own(), own(), 5, [1, 2]) == asked(kernel, own(), own(), 5, [1, 2])
    assert asked(kernel, own(), own(), 5, [1, 2]) != asked(kernel, own(), own(), 5, [2, 1])


def test_an_array_in_the_key_adds_nothing(fake):
    kernel = tuned("x_ptr", "n")
    assert asked(kernel, own(), own(), 5) == asked(kernel, own(), own(), 5)


@pytest.mark.parametrize("make", [interface, capsule])
def test_arrays_that_are_known_by_a_protocol_alone(fake, make):
    kernel, other = tuned("n"), interface("<f2") if make is interface else capsule(16)
    assert types_of({"x": make(), "y": other, "n": 5, "z": None}) == {"x": "f32", "y": "f16"}
    first = asked(kernel, make(), make(), 5)
    assert first == asked(kernel, make(), make(), 5) != asked(kernel, other, make(), 5)
    if make is capsule:
        assert first != asked(kernel, make(device=1), make(device=1), 5)


def test_descriptors_ask_with_their_blocks(fake):
    x = zg.empty((64, 64), np.float16)
    kernel = tuned("n")
    small, large = zg.TensorDescriptor(x, (16, 16)), zg.TensorDescriptor(x, (32, 32))
    assert asked(kernel, small, x, 5) == asked(kernel, zg.TensorDescriptor(x, (16, 16)), x, 5)
    assert asked(kernel, small, x, 5) != asked(kernel, large, x, 5)
    assert types_of({"x": small}) == {"x": str(small.type)}


def test_what_no_launch_takes(fake):
    host = np.zeros((64, 64), np.float32)
    descriptor = zg.TensorDescriptor(zg.empty((64, 64), np.float32), (16, 16))
    assert not refused({"x": own(), "y": interface(), "z": None, "n": 5, "d": descriptor})
    assert not refused({"x": own(device=1), "y": own(device=1)})
    for wrong in (host, zg.TensorDescriptor(host, (16, 16)), own(device=1), capsule(kind=1), capsule(device=1)):
        assert refused({"x": own(), "y": wrong}) and refused({"y": wrong, "x": own()})


def test_a_default_that_cannot_be_hashed_has_a_text(fake):
    def sized(x_ptr, shape: zg.constexpr = [1, 64], BLOCK: zg.constexpr = 64):  # noqa: B006
        zg.store(zg.add(x_ptr, zg.arange(0, BLOCK)), shape[0])

    kernel = zg.autotune([zg.Config({"BLOCK": 64})], ["shape"])(zg.kernel(sized))
    first = asked(kernel, own())
    assert hash(first) == hash(asked(kernel, own())) and first == asked(kernel, own(), [1, 64])
    assert first != asked(kernel, own(), [2, 64])
