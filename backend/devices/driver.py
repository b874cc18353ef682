"""The CUDA driver: devices, contexts and streams.

The caller's current context is used; where there is none, the primary context of a device, which is the one that
CUDA's run time, and so torch and CuPy, use. cuda.bindings is imported when a device is first asked for.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import attrs

from ziggurat.backend.devices.failures import failure
from ziggurat.codemodel.errors import LaunchError, ZigguratError, shown
from ziggurat.codemodel.gpu.targets import target_for
from ziggurat.codemodel.structured import packed_values

_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


@functools.cache
def cuda() -> Any:
    """The module `cuda.bindings.driver`, with the driver started. Raises `LaunchError` if there is none."""
    try:
        driver: Any = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise LaunchError(
            "kernels run on a GPU through cuda-bindings, which is not installed", hint="pip install cuda-bindings"
        ) from None
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:  # The driver's library is not there.
        raise LaunchError(
            f"the NVIDIA driver cannot be loaded: {error}", hint="launch on NumPy arrays, which need no driver"
        ) from None
    if status:
        raise failure(status.name, "starting the NVIDIA driver")
    return driver


def is_here() -> bool:
    """Whether this machine has a GPU and its driver."""
    try:
        return device_count() > 0
    except ZigguratError:
        return False


def check(result: tuple[Any, ...], doing: str) -> Any:
    """The values that a call of the driver gave: none, one, or a tuple. Raises the error for its status."""
    status, *values = result
    if status:
        raise failure(status.name, doing)
    return packed_values(values)


@attrs.frozen
class Device:
    """A GPU, by its number in the driver's order. Reading a property asks the driver."""

    number: int

    def attribute(self, name: str) -> int:
        """A property by the end of its name in `CUdevice_attribute`: "MULTIPROCESSOR_COUNT"."""
        return _attribute(self.number, name)

    @property
    def name(self) -> str:
        """The name of the model: "NVIDIA H200"."""
        text: bytes = check(cuda().cuDeviceGetName(100, _handle(self.number)), "asking for the device's name")
        return text.split(b"\0")[0].decode()

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability: (9, 0)."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    @property
    def target(self) -> str:
        """The target to compile for: "sm_90a". From 9.0 on it is the one of this architecture alone ("a")."""
        return target_for(*self.capability)

    @property
    def max_shared(self) -> int:
        """Shared memory that a CTA can have, in bytes."""
        return self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


@functools.cache
def _handle(number: int) -> Any:
    count = device_count()
    if not 0 <= number < count:
        raise LaunchError(f"there is no device {number}: there are {count}")
    return check(cuda().cuDeviceGet(number), "opening a device")


@functools.cache
def _attribute(number: int, name: str) -> int:
    driver = cuda()
    attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(check(driver.cuDeviceGetAttribute(attribute, _handle(number)), f"asking a device for {name}"))


@functools.cache
def device_count() -> int:
    """The number of devices."""
    return int(check(cuda().cuDeviceGetCount(), "counting devices"))


def pointer_device(address: int) -> int | None:
    """The device that owns the memory at an address; None if the driver knows of none."""
    number = ctypes.c_int()
    status = _library().cuPointerGetAttribute(ctypes.byref(number), _DEVICE_ORDINAL, ctypes.c_uint64(address))
    return None if status else number.value


@functools.cache
def _library() -> Any:
    """The driver's library, for calls that cuda.bindings gets wrong: 13.3 gives device 0 for every address."""
    cuda()
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def driver_version() -> str:
    """The newest CUDA version that the driver knows: "13.0"."""
    version = int(check(cuda().cuDriverGetVersion(), "asking for the driver's version"))
    return f"{version // 1000}.{version % 1000 // 10}"


@functools.cache
def _primary(number: int) -> Any:
    return check(cuda().cuDevicePrimaryCtxRetain(_handle(number)), "opening a device's context")


def current_context() -> Any:
    """The current context. If the thread has none, the first device's primary context becomes current."""
    driver = cuda()
    context = check(driver.cuCtxGetCurrent(), "asking for the current context")
    if int(context) == 0:
        context = _primary(0)
        check(driver.cuCtxSetCurrent(context), "making a context current")
    return context


def current_device() -> Device:
    """The device of the current context."""
    current_context()
    return Device(int(check(cuda().cuCtxGetDevice(), "asking for the current device")))


@contextmanager
def on_device(number: int | None) -> Generator[Any, None, None]:
    """Make a device's context current for a while: the current one if it belongs to the device, else the primary
    one."""
    driver = cuda()
    if number is None or number == current_device().number:
        yield current_context()
        return
    context = _primary(number)
    check(driver.cuCtxPushCurrent(context), "making a context current")
    try:
        yield context
    finally:
        check(driver.cuCtxPopCurrent(), "going back to the context before")


# Streams.


class _Streams(dict[int, Any]):
    """Stream objects by their address, made once: building one costs as much as a third of a launch."""

    def __missing__(self, address: int) -> Any:
        if len(self) > 1000:
            self.clear()
        stream = self[address] = cuda().CUstream(address)
        return stream


STREAMS = _Streams()


class _Own(threading.local):
    address: int = 0


OWN_STREAM = _Own()


def own_stream(device: int | None = None) -> int:
    """The address of this thread's stream for arrays of no other library, on all devices: the default stream, 0,
    outside of `using_stream`."""
    return OWN_STREAM.address


@contextmanager
def using_stream(address: int) -> Generator[None, None, None]:
    """Let launches of this thread on `DeviceArray`s, and copies of these, go to a stream for a while."""
    before = own_stream()
    OWN_STREAM.address = address
    try:
        yield
    finally:
        OWN_STREAM.address = before


def stream_address(stream: Any) -> int:
    """The address of a stream: an address itself, a stream of torch or CuPy, or an object with `__cuda_stream__`."""
    if type(stream) is int and stream >= 0:
        return stream
    for name in ("cuda_stream", "ptr"):
        address = getattr(stream, name, None)
        if isinstance(address, int):
            return address
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise LaunchError(f"stream must be an address, or a stream of torch or CuPy; got {shown(stream)}")
    version_and_address: Any = protocol() if callable(protocol) else protocol
    return int(version_and_address[1])


def synchronize(kernel: str | None = None) -> None:
    """Wait for all work of the current device. Raises the error of a kernel that failed.

    `kernel` names the only one that can have failed.
    """
    current_context()
    status = cuda().cuCtxSynchronize()[0]
    if status:
        raise failure(status.name, "waiting for the device", kernel, certain=kernel is not None)
