"""Reading the address and element type out of a DLPack capsule.

The structures are those of DLPack's header (dmlc/dlpack, versions 0 and 1). A capsule is released as soon as it is
read, so the array must outlive every use of its address, as the arguments of a launch do.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ziggurat.backend.launch.arrays import CUDA_KINDS
from ziggurat.codemodel.types import SCALARS, ScalarType

if TYPE_CHECKING:
    from ziggurat.backend.cuda.arrays import View


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# DLDataTypeCode with the number of bits.
_CODES: dict[tuple[int, int], ScalarType] = {(scalar.dlpack, 8 * scalar.bytes): scalar for scalar in SCALARS.values()}


def view(array: Any) -> View | None:
    """The address, element type and device of an array with the DLPack protocol; None for an element type that kernels
    lack."""
    from ziggurat.backend.cuda.arrays import View

    capsule = _capsule(array)  # The structure is there as long as this is.
    tensor = _tensor(capsule)
    element = _CODES.get((tensor.code, tensor.bits))
    if element is None or tensor.lanes != 1 or tensor.device_kind not in CUDA_KINDS:
        return None
    return View((tensor.data or 0) + tensor.offset, element, tensor.device)


def layout(array: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shape of an array with the DLPack protocol and its strides in elements, None for rows without gaps."""
    capsule = _capsule(array)
    tensor = _tensor(capsule)
    numbers = ctypes.c_int64 * tensor.rank
    shape = tuple(numbers.from_address(tensor.shape)) if tensor.rank else ()
    return shape, tuple(numbers.from_address(tensor.strides)) if tensor.rank and tensor.strides else None


def _capsule(array: Any) -> Any:
    """The capsule of an array. Its device is made current if its library, torch, exports only arrays of the current
    one."""
    from ziggurat.backend.cuda.driver import on_device

    try:
        return array.__dlpack__()
    except Exception as error:
        first = error
    try:
        with on_device(int(array.__dlpack_device__()[1])):
            return array.__dlpack__()
    except Exception:
        raise first from None


def _tensor(capsule: Any) -> _Tensor:
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    if api.PyCapsule_IsValid(capsule, b"dltensor"):
        return _Tensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    return _Versioned.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")).tensor
