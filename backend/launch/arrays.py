"""Arrays of any library as NumPy arrays over the same memory, without importing that library."""

from __future__ import annotations

import sys
from typing import Any, cast

import ml_dtypes
import numpy as np

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.types import (
    ScalarType,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)

ELEMENTS: dict[np.dtype[Any], ScalarType] = {
    np.dtype(np.bool_): i1,
    np.dtype(np.int8): i8,
    np.dtype(np.int16): i16,
    np.dtype(np.int32): i32,
    np.dtype(np.int64): i64,
    np.dtype(np.uint8): u8,
    np.dtype(np.uint16): u16,
    np.dtype(np.uint32): u32,
    np.dtype(np.uint64): u64,
    np.dtype(np.float16): f16,
    np.dtype(np.float32): f32,
    np.dtype(np.float64): f64,
    np.dtype(ml_dtypes.bfloat16): bf16,
    np.dtype(ml_dtypes.float8_e4m3fn): f8e4m3,
    np.dtype(ml_dtypes.float8_e5m2): f8e5m2,
}

# Torch's dtypes that NumPy lacks, with the integer type of their width.
_TORCH_SMALL = {
    "torch.bfloat16": ("int16", ml_dtypes.bfloat16),
    "torch.float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "torch.float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
}


def is_array(thing: object) -> bool:
    """True of what has elements in memory: NumPy arrays, and objects with the array or the DLPack protocol."""
    if isinstance(thing, np.generic):
        return False
    return isinstance(thing, np.ndarray) or any(
        hasattr(type(thing), name) or name in getattr(thing, "__dict__", ())
        for name in ("__array_interface__", "__dlpack__", "__cuda_array_interface__", "__array__")
    )


def as_array(thing: Any, name: str) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of `thing`; never a copy. `name` is the parameter's, for messages.

    Raises `LaunchError` for arrays that are not in the memory of this machine, and for element types that kernels lack.
    """
    array = _view(thing, name)
    if array.dtype not in ELEMENTS:
        known = ", ".join(str(dtype) for dtype in ELEMENTS)
        raise LaunchError(
            f"'{name}' is an array of {array.dtype}, which kernels do not have", hint=f"they have {known}"
        )
    return array


def _view(thing: Any, name: str) -> np.ndarray[Any, Any]:
    if isinstance(thing, np.ma.MaskedArray):
        raise LaunchError(
            f"'{name}' is a masked array, and kernels do not see its mask", hint="pass its .data, or .filled(0)"
        )
    if isinstance(thing, np.ndarray):
        return thing  # pyright: ignore[reportUnknownVariableType]
    if on_gpu(thing):
        raise LaunchError(
            f"'{name}' is an array on a GPU, and kernels run on the CPU here",
            hint="copy it to the CPU first: .cpu() or .get()",
        )
    try:  # The protocols are other people's code, which may fail in any way.
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(thing, torch.Tensor):
            return _of_torch(torch, thing)
        return np.asarray(thing) if hasattr(thing, "__array_interface__") else np.from_dlpack(thing)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise LaunchError(f"'{name}' cannot be seen as a NumPy array: {reason}") from None


def _of_torch(torch: Any, tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor's elements, whether autograd follows it or not: a kernel is no operation that torch could derive."""
    small = _TORCH_SMALL.get(str(tensor.dtype))
    if small is None:
        return tensor.detach().numpy()
    integer, dtype = small
    return tensor.detach().view(getattr(torch, integer)).numpy().view(dtype)


# What is certainly in the memory of this machine, or no array. Asked first: every argument of every launch is.
_HERE = frozenset([np.ndarray, int, float, bool, str, type(None)])
# DLPack's device types of CUDA, and of its managed memory.
CUDA_KINDS = (2, 13)


def on_gpu(thing: Any) -> bool:
    """True of an array that says, in whatever way its library has, that it is in the memory of an NVIDIA GPU."""
    if type(thing) in _HERE or isinstance(thing, (np.ndarray, np.generic)):
        return False
    try:
        if hasattr(thing, "__cuda_array_interface__") or getattr(thing, "is_cuda", False) is True:
            return True
        if hasattr(thing, "__dlpack_device__"):
            return int(thing.__dlpack_device__()[0]) in CUDA_KINDS
        return str(getattr(thing, "device", "")).startswith("cuda")
    except Exception:  # Other people's code again.
        return False


def number_type(value: Any) -> ScalarType | None:
    """The type of a number given to a launch: of Python ints the lowest of i32, i64, u64 that holds it; of floats f32.

    None of what is no number. Raises `LaunchError` for an int beyond 64 bits.
    """
    if isinstance(value, (bool, np.bool_)):
        return i1
    if isinstance(value, np.generic):
        return ELEMENTS.get(cast("np.generic[Any]", value).dtype)
    if isinstance(value, int):
        for scalar in (i32, i64, u64):
            low, high = scalar.limits
            if low <= value <= high:
                return scalar
        raise LaunchError(f"an integer must fit in 64 bits; got {shown(value)}")
    if isinstance(value, float):
        return f32
    return None


def address(array: np.ndarray[Any, Any]) -> int:
    """The address of the first element."""
    return int(array.__array_interface__["data"][0])
