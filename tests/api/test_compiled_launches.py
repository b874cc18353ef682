"""Launches of compiled kernels: their arguments, and their resources on the machine."""

from __future__ import annotations

import struct
import types

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.backend.ptx import sass
from ziggurat.codemodel.dialects import arith

POINTER = zg.divisible(zg.ptr(zg.f32), 16)


@zg.kernel
def scale(x_ptr, y_ptr, n, factor, BLOCK: zg.constexpr):
    at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(y_ptr, at), zg.mul(zg.load(zg.add(x_ptr, at), mask), factor), mask)


@pytest.fixture(scope="module")
def compiled():
    return scale.compile(POINTER, zg.ptr(zg.f32), zg.divisible(zg.i32, 16), zg.f32, 64, num_warps=2)


@pytest.fixture
def driver(fake):
    """The recorded driver, for kernels that take (pointer, pointer, i32, f32)."""
    fake.parameters = 4
    return fake


def array(pointer=0x1000, element=zg.f32, device=0):
    return DeviceArray(pointer, (64,), element, device)


def test_it_is_launched_with_the_arguments_that_are_left(driver, compiled):
    compiled[(3, 2)](array(0x1000), array(0x2004), 32, 0.5, stream=77)
    (launch,) = driver.launches
    assert (launch["grid"], launch["threads"], launch["stream"]) == ((3, 2, 1), 64, ("stream", 77))
    assert launch["values"][:2] == [struct.pack("Q", 0x1000), struct.pack("Q", 0x2004)]
    assert launch["values"][2][:4] == struct.pack("i", 32) and launch["values"][3][:4] == struct.pack("f", 0.5)
    compiled[lambda _: (1,)](array(0x2000), array(0x2000), np.int64(48), 2)
    assert len(driver.launches) == 2 and len(driver.loads) == 1, "it is loaded once"


def test_what_a_transform_has_made_is_launched(driver):
    def added(builder, op, operands):
        return builder.add(arith.AddF(*operands)) if isinstance(op, arith.MulF) else None

    model = scale.triton(POINTER, POINTER, zg.i32, zg.f32, 64)
    launchable = zg.compile(zg.transform(model, added))
    launchable[(1,)](array(), array(), 5, 1.0)
    assert driver.launches[-1]["threads"] == 128
    assert b"add.rn.f32" in driver.loads[-1] and b"mul.rn.f32" not in driver.loads[-1]


def test_what_was_made_of_a_gpu_model_is_launched(driver, compiled):
    zg.compile(compiled.stages["gpu"])[(1,)](array(), array(), 16, 1.0)
    assert driver.launches[-1]["threads"] == 64


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((array(), array(), 16), r"takes 4 argument\(s\) \(x_ptr: ptr<f32>, .* factor: f32\); got 3"),
        ((array(), array(), 16, 1.0, 64), "got 5"),
        (
            (array(element=zg.f16), array(), 16, 1.0),
            "'x_ptr' .* is compiled for an array of f32; got an array of f16",
        ),
        (
            (array(0x1004), array(), 16, 1.0),
            "'x_ptr' .* for an address divisible by 16; got 0x1004",
        ),
        (
            (array(), np.zeros(3, np.float32), 16, 1.0),
            "'y_ptr' of 'scale' must be an array on a GPU(.|\n)*compiled.simulate",
        ),
        ((array(), 0x1000, 16, 1.0), "an array of f32; got int"),
        ((array(), None, 16, 1.0), "an array of f32; got NoneType"),
        ((array(), array(), 5, 1.0), "'n' of 'scale' is compiled for a number divisible by 16; got 5"),
        (
            (array(), array(), 1 << 40, 1.0),
            r"of type i32 \(from -2147483648 to 2147483647\); got 1099511627776",
        ),
        ((array(), array(), 16.0, 1.0), "'n' of 'scale' is compiled for a number of type i32; got 16.0"),
        ((array(), array(), True, 1.0), "a number of type i32; got True"),
        ((array(), array(), array(), 1.0), "a number of type i32; got DeviceArray"),
        ((array(), array(), 16, "1"), "a number of type f32; got str"),
        ((array(), array(device=1), 16, 1.0), "on several devices: 'x_ptr' on 0, 'y_ptr' on 1"),
    ],
)
def test_arguments_that_it_was_not_compiled_for(driver, compiled, arguments, words):
    with pytest.raises(zg.LaunchError, match=words):
        compiled[(1,)](*arguments)
    assert driver.launches == []


def test_arrays_that_do_not_say_where_they_are_are_asked_for(driver, compiled):
    def seen(pointer):
        interface = {"typestr": "<f4", "data": (pointer, False), "shape": (64,), "version": 3}
        return types.SimpleNamespace(__cuda_array_interface__=interface)

    driver.devices |= {0x10000: 1, 0x20000: 1, 0x30000: 0}
    compiled[(1,)](seen(0x10000), seen(0x20000), 16, 1.0)
    assert driver.launches[-1]["function"][2] == 101
    with pytest.raises(zg.LaunchError, match="on several devices: 'x_ptr' on 0, 'y_ptr' on 1"):
        compiled[(1,)](seen(0x30000), seen(0x20000), 16, 1.0)
    assert len(driver.launches) == 1


def test_check_is_a_boolean(driver, compiled):
    with pytest.raises(zg.LaunchError, match="check must be True or False"):
        compiled[(1,)](array(), array(), 16, 1.0, check="yes")


def test_a_model_without_names_counts_its_arguments(driver):
    nameless = zg.compile(scale.triton(POINTER, POINTER, zg.i32, zg.f32, 64))
    with pytest.raises(zg.LaunchError, match=r"'argument 1' of .* an address divisible by 16; got 0x2004"):
        nameless[(1,)](array(), array(0x2004), 5, 1.0)


@zg.kernel
def move(x, out):
    out.store([zg.program_id(0) * 16, 0], x.load([zg.program_id(0) * 16, 0]))


def test_descriptors(driver):
    block = zg.descriptor((16, 32), zg.f32)
    compiled = move.compile(zg.divisible(block, 16), zg.divisible(block, 16))
    driver.parameters = len(compiled.parameters)
    driver.sizes = [128 if str(type_).startswith("descriptor") else 8 for type_ in compiled.parameters]
    there = DeviceArray(0x10000, (64, 32), zg.f32, 0)
    descriptor = zg.TensorDescriptor(there, (16, 32))
    compiled[(4,)](descriptor, descriptor)
    assert len(driver.launches) == 1
    again = zg.compile(compiled.stages["gpu"])
    again[(4,)](descriptor, descriptor)
    assert len(driver.launches) == 2
    host = zg.TensorDescriptor(np.zeros((64, 32), np.float32), (16, 32))
    for wrong, words in (
        (there, "compiled for a zg.TensorDescriptor of type descriptor<x16, x32, f32>; got DeviceArray"),
        (host, "must describe an array on a GPU"),
        (zg.TensorDescriptor(there, (32, 32)), "got one of type descriptor<x32, x32, f32>"),
    ):
        with pytest.raises(zg.LaunchError, match=words):
            compiled[(4,)](wrong, descriptor)


# Resources.


def test_the_driver_says_what_it_takes(driver, compiled):
    again = zg.compile(compiled.stages["gpu"])
    assert (again.registers, again.local_bytes, again.max_threads) == (40, 0, 1024)
    driver.attributes["CU_FUNC_ATTRIBUTE_NUM_REGS"] = 41
    driver.attributes["CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES"] = 24
    again = zg.compile(compiled.stages["gpu"])
    assert (again.registers, again.local_bytes) == (41, 24)


def without_driver(monkeypatch):
    def load(binary, otherwise):
        raise zg.LaunchError("there is no NVIDIA driver here")

    monkeypatch.setattr("ziggurat.backend.cuda.loaded.load", load)
    monkeypatch.setattr("ziggurat.backend.devices.driver.current_context", lambda: 0)


def test_ptxas_says_it_where_no_gpu_can(monkeypatch, compiled):
    without_driver(monkeypatch)
    report = "ptxas info : Used 33 registers, 16 bytes stack frame, 8 bytes spill stores"
    resources = sass._resources(report)
    monkeypatch.setattr("ziggurat.launches.compiled_launches.tool", lambda name: "/usr/bin/ptxas")
    monkeypatch.setattr("ziggurat.launches.compiled_launches.assembled", lambda *_, **__: (b"", resources))
    again = zg.compile(compiled.stages["gpu"])
    assert (again.registers, again.local_bytes, again.max_threads) == (33, 16, 64)


def test_where_neither_is_it_is_said(monkeypatch, compiled):
    without_driver(monkeypatch)
    monkeypatch.setattr("ziggurat.launches.compiled_launches.tool", lambda name: None)
    again = zg.compile(compiled.stages["gpu"])
    with pytest.raises(zg.LaunchError, match="neither is here: there is no NVIDIA driver") as error:
        again.registers
    assert error.value.hint == "pip install nvidia-cuda-nvcc"


def test_cupy_arrays_bring_their_stream(driver, compiled, monkeypatch):
    cupy = types.ModuleType("cupy")

    class ndarray:
        dtype = np.dtype(np.float32)
        data = types.SimpleNamespace(ptr=0x3000, device_id=0)

        @property
        def __cuda_array_interface__(self):
            return {"shape": (64,), "typestr": "<f4", "data": (0x3000, False), "version": 3}

    cupy.ndarray = ndarray
    cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=55))
    monkeypatch.setitem(__import__("sys").modules, "cupy", cupy)
    again = zg.compile(compiled.stages["gpu"])  # A loaded kernel keeps the driver of the test that loaded it.
    again[(1,)](ndarray(), ndarray(), 16, 1.0)
    assert driver.launches[-1]["stream"] == ("stream", 55)


def test_a_kernel_is_launched_on_a_gpu_and_here_in_turn(driver):
    """Both kinds of launches share one table of launchers."""
    kernel = zg.kernel(scale.fn)
    launcher = kernel[(1,)]
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    for count in range(1, 4):
        for launch in (kernel[(1,)], launcher):
            launch(array(0x1000), array(0x2000), 32, 0.5, 64)
            y[:] = 0
            launch(x, y, 32, 0.5, 64)
            assert (y[:32] == x[:32] / 2).all() and not y[32:].any()
        assert len(driver.launches) == 2 * count


def test_arrays_on_two_devices_are_refused(driver, compiled):
    far = DeviceArray(0x2000, (64,), zg.f32, 1)
    with pytest.raises(zg.LaunchError, match="on several devices: 'x_ptr' on 0, "):
        compiled[(1,)](DeviceArray(0x1000, (64,), zg.f32, 0), far, 16, 1.0)
    assert not driver.launches


def test_a_launch_waits_only_if_it_is_checked(driver, compiled, monkeypatch):
    waits = []
    original = driver.cuCtxSynchronize
    monkeypatch.setattr(driver, "cuCtxSynchronize", lambda: waits.append(1) or original())
    compiled[(1,)](array(0x1000), array(0x2000), 16, 1.0)
    assert not waits
    compiled[(1,)](array(0x1000), array(0x2000), 16, 1.0, check=True)
    assert waits == [1]
