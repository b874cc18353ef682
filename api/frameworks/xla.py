"""XLA's foreign functions by ctypes: a Python function that XLA calls with the buffers of an operation.

The structures are those of XLA's C interface, version 0.1 (xla/ffi/api/c_api.h, which JAX's wheel contains). Each
starts with its own size, and newer versions only append members.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from ziggurat.codemodel.types import ScalarType

if TYPE_CHECKING:
    from ziggurat.backend.cuda.device_memory import DeviceArray

_METADATA = 1  # The type of the extension by which XLA asks for a handler's version.
_INVALID_ARGUMENT = 3  # The code of an error.


class _Extension(Structure):
    pass


_HEAD = [("struct_size", c_size_t), ("extension", POINTER(_Extension))]
_Extension._fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", POINTER(_Extension))]


class _Version(Structure):
    _fields_ = [*_HEAD, ("major", c_int), ("minor", c_int)]


class _Metadata(Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version)]


class _MetadataExtension(Structure):
    _fields_ = [("base", _Extension), ("metadata", POINTER(_Metadata))]


class _Buffer(Structure):
    _fields_ = [*_HEAD, ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("sizes", POINTER(c_int64))]


class _Buffers(Structure):
    _fields_ = [*_HEAD, ("count", c_int64), ("types", c_void_p), ("items", POINTER(POINTER(_Buffer)))]


class _StreamArguments(Structure):
    _fields_ = [*_HEAD, ("context", c_void_p), ("stream", c_void_p)]


class _ErrorArguments(Structure):
    _fields_ = [*_HEAD, ("message", c_char_p), ("code", c_int)]


_MakeError = ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))
_GetStream = ctypes.CFUNCTYPE(c_void_p, POINTER(_StreamArguments))


class _Interface(Structure):
    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", c_void_p),
        ("make_error", _MakeError),
        ("error_message", c_void_p),
        ("destroy_error", c_void_p),
        ("register", c_void_p),
        ("get_stream", _GetStream),
    ]


class _Frame(Structure):
    _fields_ = [
        *_HEAD,
        ("interface", POINTER(_Interface)),
        ("context", c_void_p),
        ("stage", c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
    ]


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))


def handler(run: Callable[[list[Any], int | None], None], elements: Sequence[ScalarType], on_gpu: bool) -> Any:
    """The C function that XLA calls for an operation: `run(buffers, stream)` gets arguments and results in order.

    `elements` are their element types. A buffer is a NumPy array, or on a GPU a `DeviceArray`; `stream` is the address
    of the stream there. An exception becomes XLA's error.
    """

    @_Handler
    def callback(at: Any) -> int | None:
        frame = at.contents
        if frame.extension and frame.extension.contents.type == _METADATA:
            version = ctypes.cast(frame.extension, POINTER(_MetadataExtension)).contents.metadata.contents.version
            version.major, version.minor = 0, 1
            return None
        try:
            groups = (frame.arguments, frame.results)
            raw = [group.items[index].contents for group in groups for index in range(group.count)]
            make = _on_gpu if on_gpu else _in_memory
            buffers = [make(buffer, element) for buffer, element in zip(raw, elements, strict=True)]
            run(buffers, _stream(frame) if on_gpu else None)
        except BaseException as error:  # XLA's frames are no place for a Python exception.
            arguments = _ErrorArguments(message=str(error).encode(), code=_INVALID_ARGUMENT)
            arguments.struct_size = ctypes.sizeof(arguments)
            return frame.interface.contents.make_error(ctypes.byref(arguments))
        return None

    return callback


def _shape(buffer: _Buffer) -> tuple[int, ...]:
    return tuple(buffer.sizes[axis] for axis in range(buffer.rank))


def _in_memory(buffer: _Buffer, element: ScalarType) -> np.ndarray[Any, Any]:
    shape = _shape(buffer)
    size = math.prod(shape) * element.dtype.itemsize
    if size == 0:
        return np.empty(shape, element.dtype)
    memory: Any = (ctypes.c_char * size).from_address(buffer.data)
    return np.frombuffer(memory, element.dtype).reshape(shape)


def _on_gpu(buffer: _Buffer, element: ScalarType) -> DeviceArray:
    from ziggurat.backend.cuda.device_memory import DeviceArray
    from ziggurat.backend.devices.driver import device_count, pointer_device

    address = buffer.data or 0
    device = pointer_device(address) if device_count() > 1 and address else 0
    return DeviceArray(address, _shape(buffer), element, device or 0, base="XLA")


def _stream(frame: _Frame) -> int:
    arguments = _StreamArguments(context=frame.context)
    arguments.struct_size = ctypes.sizeof(arguments)
    frame.interface.contents.get_stream(ctypes.byref(arguments))
    return arguments.stream or 0
