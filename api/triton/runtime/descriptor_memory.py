"""The 128 bytes of a tensor descriptor that a program of Triton 3.0 to 3.3 fills on the host.

The layout is our own: kernels read the address of the tensor and its sizes there, and make their descriptor of them
(`triton_library`). A program may copy the bytes to a GPU and pass that tensor, or pass an object that has them in this
machine's memory.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.frontends.language.dtypes import uint8
from ziggurat.frontends.triton.triton_library import DESCRIPTOR_MARK, DESCRIPTOR_WORDS

BYTES = 128
_WORDS = struct.Struct(f"<{len(DESCRIPTOR_WORDS)}q")
_UNIT = 16  # Bytes: TMA takes addresses and strides that are multiples of this.


class _Address:
    """The address of a tensor, as a pointer argument."""

    dtype: Any = uint8

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


class MatrixDescriptor(NamedTuple):
    """The argument of a kernel for a descriptor by value: of a tensor of one or two axes without gaps."""

    base: Any
    rows: int
    columns: int


def fill(tensor: int, sizes: Sequence[int], block: Sequence[int], width: int, at: int) -> None:
    """Write the descriptor of a tensor of one or two axes without gaps, with elements of `width` bytes, which kernels
    move in blocks, to the address `at` of this machine's memory. Raises `LaunchError` for a tensor that TMA cannot
    address, and for what is no integer."""
    tensor, width, at, *both = map(_integer, (tensor, width, at, *sizes, *block))
    sizes, block = both[: len(sizes)], both[len(sizes) :]
    rows, columns = (1, *sizes)[-2:]
    faults = (
        (width not in (1, 2, 4, 8), f"the bytes of an element must be 1, 2, 4 or 8; got {shown(width)}"),
        (tensor % _UNIT, f"the address of the tensor must be a multiple of {_UNIT}; got {tensor:#x}"),
        (min(sizes) < 1, f"the sizes must be positive; got {[*sizes]}"),
        (min(block) < 1, f"the sizes of the block must be positive; got {[*block]}"),
        (len(sizes) == 2 and columns * width % _UNIT, f"rows must have whole {_UNIT} bytes; got {columns * width}"),
    )
    for is_fault, message in faults:
        if is_fault:
            raise LaunchError(f"TMA cannot describe the tensor: {message}")
    words = _WORDS.pack(DESCRIPTOR_MARK.value, tensor, rows, columns)
    ctypes.memmove(at, words.ljust(BYTES, b"\0"), BYTES)


def _integer(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        what = f"addresses and sizes of a descriptor must be integers; got {shown(value)}"
        raise LaunchError(what, hint="pass tensor.data_ptr() and integers") from None


def fill_1d_tma_descriptor(
    global_address: int, dim: int, tensor_dim: int, element_size: int, desc_address: int
) -> None:
    """Write the descriptor of `dim` elements in blocks of `tensor_dim`; see `fill`."""
    fill(global_address, (dim,), (tensor_dim,), element_size, desc_address)


def fill_2d_tma_descriptor(
    global_address: int, dim1: int, dim0: int, tensor_dim1: int, tensor_dim0: int, element_size: int, desc_address: int
) -> None:
    """Write the descriptor of `dim1` rows of `dim0` elements; see `fill`."""
    fill(global_address, (dim1, dim0), (tensor_dim1, tensor_dim0), element_size, desc_address)


def read(thing: Any) -> Any:
    """The argument for an object with a descriptor in this machine's memory, `tma_desc_cpu_ptr()`; any other thing as
    it is. Raises `LaunchError` for a descriptor that was not filled."""
    address = getattr(thing, "tma_desc_cpu_ptr", None)
    if address is None or isinstance(thing, type):
        return thing
    mark, tensor, rows, columns = _WORDS.unpack(ctypes.string_at(address(), _WORDS.size))
    if mark != DESCRIPTOR_MARK.value:
        raise LaunchError(
            f"the descriptor of {type(thing).__name__} must be filled before the launch; its memory has something else",
            hint="call triton.runtime.driver.active.utils.fill_2d_tma_descriptor with the address that "
            "tma_desc_cpu_ptr() gives",
        )
    return MatrixDescriptor(_Address(tensor), rows, columns)
