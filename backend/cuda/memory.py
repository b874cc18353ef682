"""Arrays in a GPU's memory for people who have NumPy only: `empty`, `to_device`, `to_host`."""

from __future__ import annotations

import math
import sys
import weakref
from typing import Any

import numpy as np

from ziggurat.backend.cuda.driver import STREAMS, check, cuda, current_device, on_device, own_stream
from ziggurat.backend.launch.arrays import ELEMENTS
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import ScalarType

_NUMPY = {scalar: dtype for dtype, scalar in ELEMENTS.items()}


class DeviceArray:
    """An array in the memory of a GPU, in row-major order without gaps.

    `pointer` is its address, `element` the type of its elements, `dtype` the same as NumPy's, `device` the number of
    its GPU. Other libraries see it through `__cuda_array_interface__`. The memory is freed with the object; `base`
    keeps memory that is not its own. `key` stands for all that a kernel is compiled for: launches compare that alone,
    so none of these is to be changed.
    """

    __slots__ = ("__weakref__", "base", "device", "dtype", "element", "key", "pointer", "shape")

    def __init__(
        self, pointer: int, shape: tuple[int, ...], element: ScalarType, device: int, base: object = None
    ) -> None:
        self.pointer = pointer
        self.shape = shape
        self.element = element
        # Equal ones are one object, which is quickest to compare.
        self.key = sys.intern(f"{element.name} on {device}{'' if pointer & 15 else ', aligned'}")
        self.dtype: np.dtype[Any] = _NUMPY[element]
        self.device = device
        self.base = base

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.element.bytes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """For each axis how many bytes lie from one element to the next."""
        return tuple(self.element.bytes * math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim))

    def stride(self, axis: int) -> int:
        """How many elements lie from one element to the next along an axis."""
        return self.strides[axis] // self.element.bytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "strides": None,
            "version": 3,
            "stream": own_stream() or 1,  # 1 stands for the default stream; 0 is not allowed
        }

    def reshape(self, *shape: int) -> DeviceArray:
        """The same memory in another shape of the same number of elements."""
        if math.prod(shape) != self.size:
            raise LaunchError(f"an array of shape {self.shape} cannot have the shape {shape}")
        return DeviceArray(self.pointer, shape, self.element, self.device, base=self.base or self)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy in NumPy; see `to_host`."""
        return to_host(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray of {self.element} {list(self.shape)} on device {self.device}>"


def element_type(dtype: Any) -> ScalarType:
    """The scalar type for `zg.f32`, a NumPy dtype, or what NumPy takes for one. Raises `LaunchError` for types that
    kernels lack."""
    if isinstance(dtype, ScalarType):
        return dtype
    found = ELEMENTS.get(np.dtype(dtype))
    if found is None:
        raise LaunchError(
            f"kernels have no arrays of {np.dtype(dtype)}", hint=f"they have {', '.join(map(str, ELEMENTS))}"
        )
    return found


def empty(shape: int | tuple[int, ...], dtype: Any = np.float32, device: int | None = None) -> DeviceArray:
    """An array on a GPU (the current one, or by number) whose elements are not set. Raises `LaunchError` when there
    is no room."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    element = element_type(dtype)
    with on_device(device):
        number = current_device().number
        size = max(1, math.prod(shape) * element.bytes)
        pointer = int(check(cuda().cuMemAlloc(size), f"getting {size} bytes for an array"))
        array = DeviceArray(pointer, shape, element, number)
    weakref.finalize(array, _free, pointer, number).atexit = False  # The process gives its memory back as a whole.
    return array


def to_device(array: Any, device: int | None = None) -> DeviceArray:
    """A copy on a GPU of an array that NumPy can read. It is there when this returns."""
    source: np.ndarray[Any, Any] = np.ascontiguousarray(array).reshape(np.shape(array))
    made = empty(source.shape, source.dtype, device)
    if source.size:
        with on_device(made.device):
            stream = STREAMS[own_stream()]
            driver = cuda()
            check(
                driver.cuMemcpyHtoDAsync(made.pointer, source.ctypes.data, source.nbytes, stream),
                "copying to the device",
            )
            check(driver.cuStreamSynchronize(stream), "copying to the device")
    return made


def to_host(array: DeviceArray) -> np.ndarray[Any, Any]:
    """A copy in NumPy of an array on a GPU, made when what was launched before on its stream is done.

    Raises `KernelRuntimeError` when that failed.
    """
    made: np.ndarray[Any, Any] = np.empty(array.shape, array.dtype)
    with on_device(array.device):
        stream = STREAMS[own_stream()]
        driver = cuda()
        if made.size:
            check(
                driver.cuMemcpyDtoHAsync(made.ctypes.data, array.pointer, made.nbytes, stream),
                "copying from the device",
            )
        check(driver.cuStreamSynchronize(stream), "copying from the device")
    return made


def _free(pointer: int, device: int) -> None:
    try:
        with on_device(device):
            cuda().cuMemFree(pointer)  # After a fault the context is gone, and its memory with it.
    except Exception:  # A finalizer has nobody to raise to.
        return
