"""The contents of arrays on a GPU, of any library: saved and restored, or set to zero, on the array's own stream.

Tuning runs a kernel many times, and each run must find the same contents in the arrays that the kernel changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.cuda import dlpack
from ziggurat.backend.cuda.arrays import reader_of, view
from ziggurat.backend.cuda.driver import STREAMS, check, cuda, on_device
from ziggurat.backend.cuda.memory import empty
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import u8


class Region:
    """The memory of an array: `name` is the parameter's, for messages. Raises `LaunchError` where it has gaps."""

    def __init__(self, array: Any, name: str) -> None:
        seen = view(array, name)
        size = _bytes(array, seen.element.bytes, name)
        if size is None:
            raise LaunchError(
                f"'{name}' must be contiguous to be restored between the runs of tuning; its memory has gaps",
                hint="pass an array that is contiguous",
            )
        self.array = array
        self.address, self.size, self.device = seen.address, size, seen.device

    def zero(self) -> None:
        """Set all of it to zero."""
        if self.size:
            with on_device(self.device):
                check(cuda().cuMemsetD8Async(self.address, 0, self.size, self._stream()), "setting an array to zero")

    def _stream(self) -> Any:
        reader = reader_of(self.array)
        assert reader is not None
        return STREAMS[reader.stream()(self.device)]


class Saved(Region):
    """A copy of an array's contents, made now; `restore` puts it back."""

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


def _bytes(array: Any, width: int, name: str) -> int | None:
    """The size of an array in bytes, whose elements have `width` of them; None where its memory has gaps.

    What the array's library says of gaps counts; of arrays that are known by a protocol, the strides do.
    """
    if callable(getattr(array, "is_contiguous", None)):  # torch
        return math.prod(map(int, array.shape)) * width if array.is_contiguous() else None
    flags = getattr(array, "flags", None)  # CuPy
    if flags is not None and hasattr(flags, "c_contiguous"):
        return math.prod(map(int, array.shape)) * width if flags.c_contiguous or flags.f_contiguous else None
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        shape, strides = interface["shape"], interface.get("strides")
        step = width
    elif hasattr(array, "__dlpack__"):
        shape, strides = dlpack.layout(array)
        step = 1
    else:
        raise LaunchError(
            f"'{name}' must tell its size to be restored between the runs of tuning",
            hint="pass an array with __cuda_array_interface__ or __dlpack__",
        )
    return None if strides is not None and _gaps(shape, strides, step) else math.prod(map(int, shape)) * width


def _gaps(shape: Sequence[int], strides: Sequence[int], step: int) -> bool:
    """Whether elements that are `step` apart leave any out. An axis of one element takes no step."""
    if 0 in shape:
        return False
    for size, stride in sorted(zip(shape, strides, strict=True), key=lambda axis: axis[1]):
        if size > 1:
            if stride != step:
                return True
            step *= size
    return False
