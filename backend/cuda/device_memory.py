"""Arrays in a GPU's memory without another library (`empty`, `to_device`, `to_host`), and contents of arrays of any
library, saved and restored (`Saved`)."""

from __future__ import annotations

import math
import operator
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ziggurat.backend.devices.driver import STREAMS, check, cuda, current_device, on_device, own_stream
from ziggurat.backend.launch.arrays import elements, on_gpu
from ziggurat.backend.launch.device_arrays import layout, place_of, reader_of, view
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import ScalarType, u8


class DeviceArray:
    """An array in the memory of a GPU, in row-major order without gaps. `numpy()` and `np.asarray(array)` copy it.

    `pointer` is its address, `element` the type of its elements, `dtype` the same as NumPy's, `device` the number of
    its GPU. Other libraries read it through `__cuda_array_interface__`. The memory is freed with the object; `base`
    is the owner of memory that another object allocated. `key` stands for everything that a kernel is compiled for:
    launches compare it alone, so none of these may change.
    """

    __slots__ = ("__weakref__", "base", "device", "dtype", "element", "key", "place", "pointer", "shape")

    def __init__(
        self, pointer: int, shape: tuple[int, ...], element: ScalarType, device: int, base: object = None
    ) -> None:
        self.pointer = pointer
        self.shape = shape
        self.element = element
        # Equal keys are one interned string: comparing them by identity is fastest.
        self.place = sys.intern(place_of(element, device))
        self.key = sys.intern(f"{self.place}{'' if pointer & 15 else ', aligned'}")
        self.dtype: np.dtype[Any] = element.dtype
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
        """The distance between neighbouring elements of each axis in bytes."""
        return tuple(self.element.bytes * math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim))

    def stride(self, axis: int) -> int:
        """The distance between neighbouring elements of an axis in elements."""
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

    def reshape(self, *shape: int | Sequence[int]) -> DeviceArray:
        """The same memory in another shape of the same number of elements: `reshape(8, 8)`, `reshape((8, 8))`.

        A size of -1 follows from the others.
        """
        sizes_or_shape: Any = shape[0] if len(shape) == 1 else shape
        sizes = _sizes(sizes_or_shape, "the shape of an array", least=-1)
        if sizes.count(-1) == 1:
            product = math.prod(size for size in sizes if size != -1)
            missing = self.size // product if product else 0
            sizes = tuple(missing if size == -1 else size for size in sizes)
        if math.prod(sizes) != self.size or -1 in sizes:
            raise LaunchError(f"an array of shape {self.shape} cannot have the shape {_written(sizes_or_shape)}")
        return DeviceArray(self.pointer, sizes, self.element, self.device, base=self.base or self)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy in NumPy; see `to_host`."""
        return to_host(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """A copy in NumPy, which would otherwise take the object for a scalar of dtype object."""
        if copy is False:
            raise ValueError("an array on a GPU is copied to be one of NumPy")
        array = to_host(self)
        return array if dtype is None else array.astype(dtype, copy=False)

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
    hint = f"they have {', '.join(map(str, elements()))}"
    try:
        numpy_type: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        raise LaunchError(f"{dtype!r} is not the type of an array's elements", hint=hint) from None
    element = elements().get(numpy_type)
    if element is None:
        raise LaunchError(f"kernels have no arrays of {numpy_type}", hint=hint)
    return element


def _sizes(shape: Any, what: str, least: int = 0) -> tuple[int, ...]:
    """The sizes of a shape, an integer or a sequence of them, NumPy's included. Raises `LaunchError` for others."""
    try:
        numbers: tuple[Any, ...] = tuple(shape) if np.iterable(shape) and not isinstance(shape, str) else (shape,)
        sizes = tuple(operator.index(size) for size in numbers)
    except TypeError:
        sizes = (least - 1,)
    if any(size < least for size in sizes):
        raise LaunchError(
            f"{what} has sizes that are integers, each zero or more{', or one of -1' if least else ''}; "
            f"got {_written(shape)}"
        )
    return sizes


def _written(shape: Any) -> str:
    return repr(tuple(shape)) if isinstance(shape, list) else repr(shape)  # pyright: ignore[reportUnknownArgumentType]


def empty(shape: int | Sequence[int], dtype: Any = np.float32, device: int | None = None) -> DeviceArray:
    """An array on a GPU (the current one, or by number) whose elements are not set. Raises `LaunchError` when there
    is no room, and for shapes and types that arrays do not have."""
    shape = _sizes(shape, "the shape of an array")
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
    if on_gpu(array):
        raise LaunchError(
            "zg.to_device copies arrays in memory; this one is on a GPU", hint="pass it to the kernel as it is"
        )
    source: np.ndarray[Any, Any] = np.ascontiguousarray(array).reshape(np.shape(array))
    target = empty(source.shape, source.dtype, device)
    if source.size:
        with on_device(target.device):
            _copy(cuda().cuMemcpyHtoDAsync, target.pointer, source.ctypes.data, source.nbytes, "copying to the device")
    return target


def zeros_after(first: np.ndarray[Any, Any], size: int, device: int | None = None) -> DeviceArray:
    """An array of `size` elements on a GPU: those of an array in memory, then zeros. It is there when this returns."""
    target = empty(size, first.dtype, device)
    with on_device(target.device):
        check(cuda().cuMemsetD8Async(target.pointer, 0, target.nbytes, STREAMS[own_stream()]), "setting memory to zero")
        _copy(cuda().cuMemcpyHtoDAsync, target.pointer, first.ctypes.data, first.nbytes, "copying to the device")
    return target


def first_elements(array: DeviceArray, count: int) -> np.ndarray[Any, Any]:
    """A copy in NumPy of the first elements of an array on a GPU; see `to_host`."""
    return to_host(DeviceArray(array.pointer, (count,), array.element, array.device, base=array))


def _copy(copy: Callable[..., Any], to: int, source: int, size: int, doing: str) -> None:
    """Copy by a function of the driver, on this thread's stream, and wait for the end."""
    stream = STREAMS[own_stream()]
    if size:
        check(copy(to, source, size, stream), doing)
    check(cuda().cuStreamSynchronize(stream), doing)


def to_host(array: DeviceArray) -> np.ndarray[Any, Any]:
    """A copy in NumPy of an array on a GPU, made after the work that was launched before on its stream.

    Raises `KernelRuntimeError` if that work failed, and `LaunchError` for an array that neither `zg.empty` nor
    `zg.to_device` made: other libraries copy their own.
    """
    if not isinstance(array, DeviceArray):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = f"{type(array).__module__}.{type(array).__name__}"
        raise LaunchError(
            f"zg.to_host copies arrays of zg.empty and zg.to_device, not {kind}",
            hint="use it as it is: it is in memory"
            if isinstance(array, np.ndarray)
            else "use .cpu() of torch, or .get() of CuPy",
        )
    copy: np.ndarray[Any, Any] = np.empty(array.shape, array.dtype)
    with on_device(array.device):
        _copy(cuda().cuMemcpyDtoHAsync, copy.ctypes.data, array.pointer, copy.nbytes, "copying from the device")
    return copy


def _free(pointer: int, device: int) -> None:
    try:
        with on_device(device):
            cuda().cuMemFree(pointer)  # After a fault the context is gone, and its memory with it.
    except Exception:  # A finalizer cannot raise.
        return


class ArrayMemory:
    """The memory of an array of any library: `name` is the parameter's, for messages. Raises `LaunchError` where it has
    gaps. Work on it goes to the array's own stream."""

    def __init__(self, array: Any, name: str) -> None:
        facts = view(array, name)
        shape_and_strides = layout(array, facts.element.bytes)
        if shape_and_strides is None:
            raise LaunchError(
                f"'{name}' must tell its size to be restored between the runs of tuning",
                hint="pass an array with __cuda_array_interface__ or __dlpack__",
            )
        if _has_gaps(*shape_and_strides):
            raise LaunchError(
                f"'{name}' must be contiguous to be restored between the runs of tuning; its memory has gaps",
                hint="pass an array that is contiguous",
            )
        self.array = array
        self.address, self.size, self.device = (
            facts.address,
            math.prod(shape_and_strides[0]) * facts.element.bytes,
            facts.device,
        )

    def zero(self) -> None:
        """Set all of it to zero."""
        if self.size:
            with on_device(self.device):
                check(cuda().cuMemsetD8Async(self.address, 0, self.size, self._stream()), "setting an array to zero")

    def _stream(self) -> Any:
        reader = reader_of(self.array)
        assert reader is not None
        return STREAMS[reader.stream()(self.device)]


class Saved(ArrayMemory):
    """A copy of an array's contents, made now; `restore` puts it back. Tuning runs a kernel many times, and each run
    must find the same contents in the arrays that the kernel changes."""

    def __init__(self, array: Any, name: str) -> None:
        super().__init__(array, name)
        self.copy = empty(self.size, u8, self.device)
        self._copy(self.copy.pointer, self.address)

    def restore(self) -> None:
        """Put the contents back."""
        self._copy(self.address, self.copy.pointer)

    def _copy(self, to: int, source: int) -> None:
        if self.size:
            with on_device(self.device):
                result = cuda().cuMemcpyDtoDAsync(to, source, self.size, self._stream())
                check(result, "copying an array's contents")


def _has_gaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether these strides leave out any elements. An axis of one element takes no step."""
    step = 1
    for size, stride in sorted(zip(shape, strides, strict=True), key=lambda axis: axis[1]):
        if size > 1:
            if stride != step and 0 not in shape:
                return True
            step *= size
    return False
