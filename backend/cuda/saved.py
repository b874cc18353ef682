"""The contents of arrays on a GPU, of any library: put aside and put back, or set to zero, on the array's own stream.

Tuning runs a kernel many times. What the kernel adds to or writes over has to be there again each time.
"""

from __future__ import annotations

from typing import Any

from ziggurat.backend.cuda.arrays import reader_of, view
from ziggurat.backend.cuda.driver import STREAMS, check, cuda, on_device
from ziggurat.backend.cuda.memory import empty
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import u8


class Region:
    """The memory of an array: `name` is the parameter's, for messages. Raises `LaunchError` where it has gaps."""

    def __init__(self, array: Any, name: str) -> None:
        seen = view(array, name)
        size = getattr(array, "nbytes", None)
        if size is None or not _without_gaps(array):
            raise LaunchError(
                f"'{name}' is to be set back between the runs of tuning, and its memory has gaps",
                hint="pass an array that is contiguous",
            )
        self.array = array
        self.address, self.size, self.device = seen.address, int(size), seen.device

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


def _without_gaps(array: Any) -> bool:
    if callable(getattr(array, "is_contiguous", None)):  # torch
        return bool(array.is_contiguous())
    flags = getattr(array, "flags", None)  # CuPy
    if flags is not None and hasattr(flags, "c_contiguous"):
        return bool(flags.c_contiguous or flags.f_contiguous)
    interface = getattr(array, "__cuda_array_interface__", None)
    return interface is not None and interface.get("strides") is None
