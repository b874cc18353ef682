"""Arrays of any library as NumPy arrays over the same memory, without importing that library."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.messages import call_text, say
from ziggurat.codemodel.types import NUMPY, SCALARS, ScalarType, Type, f16, f32, f64, find_scalar, i1, i32, i64, u64

if TYPE_CHECKING:
    import numpy as np


class IntegerRangeError(LaunchError, OverflowError):
    """An integer that a launch is given does not fit in 64 bits."""


class HostArrayError(LaunchError, ValueError):
    """A kernel on a GPU is given an array that is in this machine's memory."""


_PYTHON_NUMBERS = ("int64", "float64")  # NumPy's types of Python's numbers.


# The types that NumPy itself has, by the array protocols' names for them.
_BY_TYPESTR = {
    f"{'<' if scalar.bytes > 1 else '|'}{scalar.numpy[0]}{scalar.bytes}": scalar
    for scalar in SCALARS.values()
    if scalar.numpy.rstrip("0123456789") in ("bool", "int", "uint") or scalar in (f16, f32, f64)
}


@functools.cache
def elements() -> dict[np.dtype[Any], ScalarType]:
    """The element types by NumPy's dtypes."""
    return {scalar.dtype: scalar for scalar in SCALARS.values()}


@functools.cache
def element_named(typestr: str) -> ScalarType | None:
    """The element type that the array protocols call "<f4"; None if kernels have none such."""
    element = _BY_TYPESTR.get(typestr)
    if element is None:
        import numpy as np

        element = elements().get(np.dtype(typestr))
    return element


def is_array(thing: object) -> bool:
    """Whether a thing is a NumPy array, or an object with the array or the DLPack protocol."""
    if isinstance(thing, NUMPY.generic):
        return False
    return (
        isinstance(thing, NUMPY.ndarray)
        or any(
            hasattr(type(thing), name) or name in getattr(thing, "__dict__", ())
            for name in ("__array_interface__", "__dlpack__", "__cuda_array_interface__", "__array__", "__host_array__")
        )
        or is_pointer(thing)
    )


def is_pointer(thing: object) -> bool:
    """Whether a thing is an array for PyTorch's programs: it has `data_ptr()` and a dtype."""
    return callable(getattr(thing, "data_ptr", None)) and hasattr(thing, "dtype")


def as_array(thing: Any, name: str) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of an array of any library; never a copy. `name` is the parameter's, for messages.

    Raises `LaunchError` for an array outside of this machine's memory, and for an element type that kernels lack.
    """
    array = _view(thing, name)
    require_element(array.dtype, name)
    return array


def require_element(dtype: np.dtype[Any], name: str) -> None:
    """Raise `LaunchError` for the dtype of an array `name` if kernels lack it."""
    if dtype not in elements():
        names = ", ".join(map(str, elements()))
        raise LaunchError(f"'{name}' is an array of {dtype}, which kernels do not have", hint=f"they have {names}")


def read_array(thing: Any, name: str) -> tuple[np.ndarray[Any, Any], ScalarType, int] | None:
    """The NumPy array over the memory of an array, its element type and its address; None for a thing that is no array.

    Raises the errors of `as_array`.
    """
    if not is_array(thing):
        return None
    array = as_array(thing, name)
    # A tensor that is read as another element type says which.
    element = find_scalar(thing.dtype) if hasattr(thing, "__host_array__") else None
    return array, element or elements()[array.dtype], address(array)


def _view(thing: Any, name: str) -> np.ndarray[Any, Any]:
    import numpy as np

    if isinstance(thing, np.ma.MaskedArray):
        raise LaunchError(
            f"'{name}' must be a plain array, as kernels do not see masks; got a masked array",
            hint="pass its .data, or .filled(0)",
        )
    if isinstance(thing, NUMPY.ndarray):
        return thing  # pyright: ignore[reportUnknownVariableType]
    if on_gpu(thing):
        raise LaunchError(
            f"'{name}' must be an array in memory, as the kernel runs on the CPU; it is on a GPU",
            hint="copy it to the CPU first: .cpu() or .get()",
        )
    try:  # The protocols are code of other libraries, which may fail in any way.
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(thing, torch.Tensor):
            return _of_torch(torch, thing)
        if hasattr(thing, "__host_array__"):  # A tensor that is read as another element type.
            return thing.__host_array__()
        if is_pointer(thing):
            return _of_pointer(thing)
        return np.asarray(thing) if hasattr(thing, "__array_interface__") else np.from_dlpack(thing)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise LaunchError(f"'{name}' cannot be seen as a NumPy array: {reason}") from None


class TensorMemory:
    """Elements in the memory of a tensor of PyTorch, for NumPy.

    An array of `Tensor.numpy()` has PyTorch never resize the storage again, which FSDP does after each use.
    """

    def __init__(self, tensor: Any, start: int, typestr: str, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3, "data": (start, False), "typestr": typestr, "shape": tuple(shape), "strides": tuple(strides)
        }  # fmt: skip


def _of_torch(torch: Any, tensor: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor, without its gradient: torch's autograd cannot derive a kernel. Raises `TypeError` for
    elements that are not in its memory: there is none, or the storage shrank."""
    import numpy as np

    scalar = find_scalar(tensor.dtype)
    if scalar is None or tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_neg():
        return tensor.detach().numpy()  # It raises an error, or is an array of a type that kernels do not have.
    # NumPy has some types from ml_dtypes: it reads integers of the width.
    typestr = scalar.dtype.str if scalar.dtype.isbuiltin == 1 else f"<u{scalar.bytes}"
    start, memory, size = tensor.data_ptr(), tensor.untyped_storage(), scalar.bytes
    shape, strides = tensor.shape, tensor.stride()
    if tensor.numel():
        last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        begin = memory.data_ptr()
        if not start or not begin <= start <= start + (last + 1) * size <= begin + memory.nbytes():
            raise TypeError(
                f"its {tensor.numel() * size} bytes of elements are not in its storage of {memory.nbytes()} bytes"
            )
    array = np.asarray(TensorMemory(tensor, start, typestr, shape, [stride * size for stride in strides]))
    return array if scalar.dtype.isbuiltin == 1 else array.view(scalar.dtype)


def _of_storage(memory: Any, tensor: Any, typestr: str = "|u1", size: int = 1) -> np.ndarray[Any, Any]:
    """All elements of a storage."""
    import numpy as np

    return np.asarray(TensorMemory(tensor, memory.data_ptr(), typestr, [memory.nbytes() // size], [size]))


def _of_pointer(thing: Any) -> np.ndarray[Any, Any]:
    """The elements from the address of a thing to the end of the tensor of PyTorch that has it."""
    start, scalar = int(thing.data_ptr()), find_scalar(thing.dtype)
    array = tensor_at(start)
    if array is None or scalar is None:
        raise TypeError(f"no tensor of PyTorch has its address {start:#x}, which tells no size: pass the array")
    rest = array[start - address(array) :]
    return rest[: len(rest) // scalar.bytes * scalar.bytes].view(scalar.dtype)


def whole(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that an array is a view of: for a tensor of PyTorch, all elements of its storage."""
    owner: Any = array
    while isinstance(owner, NUMPY.ndarray) and owner.base is not None:
        array, owner = owner, owner.base  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(owner, TensorMemory):
        return owner if isinstance(owner, NUMPY.ndarray) else array  # pyright: ignore[reportUnknownVariableType]
    return _of_storage(owner.tensor.untyped_storage(), owner.tensor, array.dtype.str, array.dtype.itemsize)


def tensor_at(place: int) -> np.ndarray[Any, Any] | None:
    """The bytes of the memory that a live tensor of PyTorch has at an address; None where no tensor has it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for thing in gc.get_objects():
        # `isinstance` would run `__class__` of proxies.
        if not issubclass(type(thing), torch.Tensor) or thing.device.type != "cpu" or thing.layout != torch.strided:
            continue
        memory = thing.untyped_storage()
        if memory.device.type != "cpu":  # A FakeTensor of torch.compile has no elements in memory.
            continue
        try:
            begin = memory.data_ptr()
        except RuntimeError:
            continue
        if begin and 0 <= place - begin < memory.nbytes():  # Tensors that a tracer makes may have no memory.
            return _of_storage(memory, thing)
    return None


# Types of arguments that are not arrays on a GPU. They are checked first, as a launch checks each of its arguments.
_HERE = frozenset([int, float, bool, str, type(None)])
# DLPack's device types of CUDA, and of its managed memory.
CUDA_KINDS = (2, 13)


def on_gpu(thing: Any) -> bool:
    """Whether an array is in the memory of an NVIDIA GPU, according to its library, or else to CUDA's driver."""
    if type(thing) in _HERE or isinstance(thing, (NUMPY.ndarray, NUMPY.generic)):
        return False
    try:
        # PyTorch's tensors of 8-bit floats raise an error for the protocol.
        if getattr(thing, "is_cuda", False) is True or hasattr(thing, "__cuda_array_interface__"):
            return True
        if hasattr(thing, "__dlpack_device__"):
            return int(thing.__dlpack_device__()[0]) in CUDA_KINDS
        device = getattr(thing, "device", None)
        if device is not None or not is_pointer(thing):
            return str(device).startswith("cuda")
        from ziggurat.backend.devices.driver import pointer_device

        return pointer_device(int(thing.data_ptr())) is not None
    except Exception:  # Code of other libraries again.
        return False


def number_type(value: Any, owner: str = "") -> ScalarType | None:
    """The type of a number given to a launch: the first of i32, i64, u64 that holds a Python int; f32 for a float.

    NumPy's default types, int64 and float64, count as Python numbers: `np.prod(shape)` returns one. A number of another
    NumPy type has that type. None for anything but a number. Raises `IntegerRangeError` for an int beyond 64 bits; its
    text begins with `owner`, such as "'n' of 'kernel': ".
    """
    if isinstance(value, (bool, NUMPY.bool_)):
        return i1
    if isinstance(value, NUMPY.generic) and value.dtype.name not in _PYTHON_NUMBERS:
        return elements().get(value.dtype)
    if isinstance(value, (int, NUMPY.integer)):
        for scalar in (i32, i64, u64):
            low, high = scalar.limits
            if low <= value <= high:
                return scalar
        raise IntegerRangeError(f"{owner}an integer must fit in 64 bits; got {shown(value)}")
    if isinstance(value, float):
        return f32
    return None


def no_argument(name: str, kernel: str, argument: Any) -> LaunchError:
    """The error for an argument that is neither an array nor a number."""
    got = f"the type {argument}" if isinstance(argument, Type) else type(argument).__name__
    hint = say("annotate it as {0} to pass other values: {1}: {0}", call_text("constexpr"), name)
    if isinstance(argument, Mapping):
        hint = "pass the arrays and numbers in it as arguments of their own, or as a tuple"
    elif isinstance(argument, Iterable) and not isinstance(argument, str):
        items = name if isinstance(argument, Sequence) else f"list({name})"
        hint = f"pass an array of the element type: np.array({items}, np.float32)"
    return LaunchError(f"'{name}' of '{kernel}' must be an array or a number; got {got}", hint=hint)


def address(array: np.ndarray[Any, Any]) -> int:
    """The address of the first element."""
    return int(array.__array_interface__["data"][0])
