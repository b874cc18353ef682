"""Arrays on a GPU, of any library, without importing that library.

The library of an array is recognised by the array's attributes: `data_ptr()` (torch), `__cuda_array_interface__`
(CuPy, Numba, JAX …) or `__dlpack__`. An `ArrayReader` has the expressions by which a launch reads an array, as source
text that is compiled into the launch: a call of a function would take longer than the expression.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import attrs

from ziggurat.backend.devices import driver
from ziggurat.backend.launch.arrays import CUDA_KINDS, element_named, on_gpu
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.messages import Phrase, say
from ziggurat.codemodel.types import BY_NUMPY_NAME, SCALARS, ScalarType, find_scalar


@attrs.frozen
class ArrayView:
    """An array as a launch sees it: the address of its first element, the elements' type, the number of its device or
    None, and the address of the stream on which it was last written, or None."""

    address: int
    element: ScalarType
    device: int | None = None
    stream: int | None = None


@attrs.frozen
class ArrayReader:
    """The reading of arrays of a type in a launch: expressions over `{0}`, the array.

    `address` and `element` give the address and a key for the element type, `device` the device's number. With `asks`,
    the driver is asked for the device, so that it is left out on machines with one. `stream` makes the function that
    gives the current stream's address for a device; `streams` says that the stream is the library's own.
    `key` tells element types and devices apart; None leaves that to `view`.
    """

    name: str
    address: str
    element: str
    device: str
    stream: Callable[[], Callable[[Any], int]] = lambda: driver.own_stream
    asks: bool = False
    streams: bool = False
    key: Callable[[Any], Any] | None = None


def reader_of(array: Any) -> ArrayReader | None:
    """The reader of arrays like this one; None for a value that is no array on a GPU."""
    if callable(getattr(array, "data_ptr", None)) and hasattr(array, "dtype"):
        torch = sys.modules.get("torch")
        if torch is not None and (isinstance(array, torch.Tensor) or hasattr(array, "get_device")):
            return _TORCH if getattr(array, "is_cuda", False) else None
        return _POINTER if on_gpu(array) else None
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return _CUPY
    if isinstance(getattr(array, "element", None), ScalarType) and hasattr(array, "pointer"):
        return OWN
    if on_gpu(array):
        return _PROTOCOL
    return None


# The copy of an array on a GPU.
ON_GPU = Phrase(zg="zg.to_device({name}), or {name}.cuda() of torch", tl="{name}.cuda() of torch")


def view(array: Any, name: str) -> ArrayView:
    """The view of an array on a GPU. `name` is the parameter's, for messages.

    Raises `LaunchError` for arrays elsewhere, and for element types that kernels lack.
    """
    reader = reader_of(array)
    if reader is None:
        raise LaunchError(f"'{name}' must be an array on a GPU", hint=say("move it there: {}", ON_GPU(name="array")))
    if reader is _PROTOCOL:
        try:
            facts = _by_protocol(array)
        except Exception as error:  # The protocols are code of other libraries, which may raise anything.
            reason = str(error).partition("\n")[0]
            raise LaunchError(f"'{name}' cannot be read as an array on a GPU: {reason}") from None
        if facts is None:
            raise _unknown(name, getattr(array, "dtype", "an unknown type"))
        return facts
    if reader is OWN:
        return ArrayView(array.pointer, array.element, array.device)
    element = find_scalar(array.dtype)
    if element is None:
        raise _unknown(name, array.dtype)
    if reader is _CUPY:
        return ArrayView(int(array.data.ptr), element, int(array.data.device_id))
    return ArrayView(int(array.data_ptr()), element, int(array.get_device()) if reader is _TORCH else None)


def layout(array: Any, width: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shape of an array on a GPU whose elements have `width` bytes, and its strides in elements; None for an array
    that does not tell them."""
    if callable(getattr(array, "stride", None)):  # torch
        shape = tuple(map(int, array.shape))
        return shape, tuple(int(array.stride(axis)) for axis in range(len(shape)))
    interface: dict[str, Any] | None = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        shape, in_bytes = interface["shape"], interface.get("strides")
        strides = None if in_bytes is None else tuple(stride // width for stride in in_bytes)
    elif hasattr(array, "__dlpack__"):
        shape, strides = dlpack_layout(array)
    else:
        return None
    if strides is None:
        strides = row_major(shape)
    return shape, strides


def place_of(element: ScalarType, device: int | None) -> str:
    """A text that is equal for arrays of the same element type and device."""
    return f"{element.name} on {device}"


def device_of(facts: ArrayView) -> int | None:
    """The device that an array names, or, on machines with several, the one that the driver knows for its address."""
    return (
        facts.device if facts.device is not None or driver.device_count() == 1 else driver.pointer_device(facts.address)
    )


def protocol_address(array: Any) -> int:
    """The address of an array with a protocol. It waits for the array's stream if that is not ours. Raises
    `TypeError` for an array that `view` rejects."""
    try:
        facts = _by_protocol(array)
    except Exception as error:  # Code of another library, as in `view`.
        raise TypeError("what the protocol says cannot be read") from error
    if facts is None:
        raise TypeError("an array of elements that kernels lack")
    # 1 is the protocol's name for the default stream, which is 0 elsewhere.
    if facts.stream is not None and facts.stream != (driver.own_stream() or 1):
        _after(facts.stream)
    return facts.address


def protocol_element(array: Any) -> ScalarType | None:
    """The element type of an array with a protocol."""
    facts = _by_protocol(array)
    return None if facts is None else facts.element


def protocol_device(array: Any) -> int | None:
    """The device that an array with a protocol names, or else the one that the driver knows for its address."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    return driver.pointer_device(int(array.__cuda_array_interface__["data"][0] or 0))


def _unknown(name: str, dtype: Any) -> LaunchError:
    return LaunchError(
        f"'{name}' is an array of {dtype}, which kernels do not have", hint=f"they have {', '.join(BY_NUMPY_NAME)}"
    )


def _by_protocol(array: Any) -> ArrayView | None:
    interface: dict[str, Any] | None = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        return dlpack_view(array)
    element = find_scalar(array.dtype) if hasattr(array, "dtype") else None
    if element is None:
        element = element_named(interface["typestr"])
    # An array without elements has no address, and some say None for it.
    return (
        None if element is None else ArrayView(int(interface["data"][0] or 0), element, None, interface.get("stream"))
    )


def _after(stream: int) -> None:
    driver.current_context()
    driver.check(driver.cuda().cuStreamSynchronize(driver.STREAMS[stream]), "waiting for the stream of an array")


def device_in_use() -> int | None:
    """The current device of PyTorch if a program uses its GPUs: launches without arrays go there."""
    torch: Any = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else None


def stream_in_use(device: int | None = None) -> int:
    """The address of the stream of launches without arrays, which may be given addresses: that of `using_stream`, or
    else the current one of PyTorch if a program uses its GPUs, or of CuPy if it is loaded."""
    own, on = driver.own_stream(), device_in_use()
    if own or on is not None:
        return own or _torch_stream()(on if device is None else device)
    cupy: Any = sys.modules.get("cupy")
    return 0 if cupy is None else int(cupy.cuda.get_current_stream().ptr)


def _torch_stream() -> Callable[[Any], int]:
    torch: Any = sys.modules["torch"]
    # Some builds of torch lack this function; the public one makes an object at each call.
    public: Callable[[Any], int] = lambda device: torch.cuda.current_stream(device).cuda_stream  # noqa: E731
    return getattr(torch._C, "_cuda_getCurrentRawStream", public)


def _cupy_stream() -> Callable[[Any], int]:
    current: Callable[[], Any] = sys.modules["cupy"].cuda.get_current_stream
    return lambda device: current().ptr


_TORCH = ArrayReader(
    "torch", "{0}.data_ptr()", "{0}.dtype", "{0}.get_device()", _torch_stream,
    streams=True, key=lambda array: (array.dtype, array.get_device()),
)  # fmt: skip
# The driver is asked on machines with one device, too: nothing else tells an address of this machine's memory.
_POINTER = ArrayReader(
    "pointer", "{0}.data_ptr()", "{0}.dtype", "_z_pointer_device({0}.data_ptr())", lambda: stream_in_use
)
_CUPY = ArrayReader(
    "cupy", "{0}.data.ptr", "{0}.dtype", "{0}.data.device_id", _cupy_stream,
    streams=True, key=attrgetter("dtype", "data.device_id"),
)  # fmt: skip
OWN = ArrayReader("own", "{0}.pointer", "{0}.key", "{0}.device", key=attrgetter("place"))
_PROTOCOL = ArrayReader(
    "protocol", "_z_protocol_address({0})", "_z_protocol_element({0}).name", "_z_protocol_device({0})", asks=True
)


# DLPack: the structures are those of its header (dmlc/dlpack, versions 0 and 1). A capsule is released as soon as it is
# read, so the array must outlive every use of its address, as the arguments of a launch do.


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_kind", ctypes.c_int32), ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
    )  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


# DLDataTypeCode with the number of bits.
_CODES: dict[tuple[int, int], ScalarType] = {(scalar.dlpack, 8 * scalar.bytes): scalar for scalar in SCALARS.values()}


def dlpack_view(array: Any) -> ArrayView | None:
    """The address, element type and device of an array with the DLPack protocol; None for an element type that kernels
    lack."""
    capsule = _capsule(array)  # The structure is there as long as this is.
    tensor = _tensor(capsule)
    element = _CODES.get((tensor.code, tensor.bits))
    if element is None or tensor.lanes != 1 or tensor.device_kind not in CUDA_KINDS:
        return None
    return ArrayView((tensor.data or 0) + tensor.offset, element, tensor.device)


def dlpack_layout(array: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shape of an array with the DLPack protocol and its strides in elements, None for rows without gaps."""
    capsule = _capsule(array)
    tensor = _tensor(capsule)
    numbers = ctypes.c_int64 * tensor.rank
    shape = tuple(numbers.from_address(tensor.shape)) if tensor.rank else ()
    return shape, tuple(numbers.from_address(tensor.strides)) if tensor.rank and tensor.strides else None


def _capsule(array: Any) -> Any:
    """The capsule of an array. Its device is made current if its library, torch, exports only arrays of the current
    one."""
    try:
        return array.__dlpack__()
    except Exception as error:  # Code of another library, as in `view`.
        first = error
    try:
        with driver.on_device(int(array.__dlpack_device__()[1])):
            return array.__dlpack__()
    except Exception:  # The first failure says more.
        raise first from None


def _tensor(capsule: Any) -> _Tensor:
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    if api.PyCapsule_IsValid(capsule, b"dltensor"):
        return _Tensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    return _Versioned.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")).tensor
