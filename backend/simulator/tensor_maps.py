"""Tensor maps of the simulation: those of a launch, and those that a program makes by `tensormap.replace`.

The bytes of a map that a program makes are simulated, too: each field has a place in the 128 bytes, of which the PTX
manual does not tell, and one more says which fields were given. All other bytes must be zero.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.codemodel import records

BYTES = 128
_FIELDS = np.dtype(
    [
        ("global_address", "<u8", (1,)), ("global_stride", "<u8", (4,)), ("global_dim", "<i4", (5,)),
        ("box_dim", "<u4", (5,)), ("element_stride", "<u4", (5,)), ("rank", "u1", (1,)), ("elemtype", "u1", (1,)),
        ("interleave_layout", "u1", (1,)), ("swizzle_mode", "u1", (1,)), ("fill_mode", "u1", (1,)),
        ("given", "<u8", (1,)), ("rest", "u1", (15,)),
    ]
)  # fmt: skip
_NAMES = _FIELDS.names or ()
# By the numbers of the manual ("tensormap.replace", table of new_val).
_ELEMENTS = {
    0: np.uint8, 1: np.uint16, 2: np.uint32, 3: np.int32, 4: np.uint64, 5: np.int64, 6: np.float16, 7: np.float32,
    9: np.float64, 10: ml_dtypes.bfloat16,
}  # fmt: skip
_SWIZZLES = (0, 32, 64, 128)


@records.distinct
class TensorMap:
    """A tensor map of a matrix: its upper left part of `shape`, moved box by box.

    `box` is (rows, columns), `swizzle` 0, 32, 64 or 128 bytes; elements outside are zeros, or NaN with `nan`.
    """

    array: Array
    box: tuple[int, int]
    swizzle: int = 0
    shape: tuple[int, int] | None = None
    nan: bool = False
    stride: int | None = None  # Elements from a row to the next; None for the columns of the array.

    @property
    def extent(self) -> tuple[int, int]:
        """The number of rows and columns."""
        return self.shape or (self.array.shape[0], self.array.shape[1])

    def at(self, address: int) -> Tensor:
        """The matrix, given the address of its first element."""
        stride = self.stride or self.array.shape[1]
        return Tensor(address, self.array.dtype, self.box, self.swizzle, self.extent, stride, self.nan)


@records.distinct
class Tensor:
    """A matrix that TMA moves box by box: as `TensorMap`, at an address of the simulation."""

    address: int
    dtype: np.dtype[Any]
    box: tuple[int, int]
    swizzle: int
    extent: tuple[int, int]
    stride: int
    nan: bool


def place_of(field: str, ordinal: int) -> tuple[int, int]:
    """The first byte of a field of a map, and its size."""
    fields: Any = _FIELDS.fields
    dtype, start = fields[field][:2]
    size = dtype.base.itemsize
    return start + ordinal * size, size


def mark_of(field: str, ordinal: int) -> int:
    """The bit of the field "given" that tells of a field."""
    return 1 << 5 * _NAMES.index(field) + ordinal


def tensor_of(data: Array) -> Tensor:
    """The matrix that the 128 bytes of a map describe. Raises `SimulationError` for bytes that TMA must not use."""
    map_: Any = data.view(_FIELDS)[0]
    rank = int(map_["rank"][0]) + 1
    counts = {"global_stride": rank - 1, "global_dim": rank, "box_dim": rank, "element_stride": rank}
    for name in _NAMES[: _NAMES.index("given")]:
        for ordinal in range(counts.get(name, 1)):
            if not int(map_["given"][0]) & mark_of(name, ordinal):
                raise SimulationError(f"a tensor map must have all of its fields; {name} {ordinal} is missing")
    if map_["rest"].any() or any(map_[name][count:].any() for name, count in counts.items()):
        raise SimulationError("the bytes of a tensor map must be zero before its fields are set")
    if rank != 2 or map_["interleave_layout"][0] or (map_["element_stride"][:rank] != 1).any():
        raise SimulationError("a tensor map must have two axes, no interleave, and element strides of 1")
    address, stride = int(map_["global_address"][0]), int(map_["global_stride"][0])
    columns, rows = (int(size) for size in map_["global_dim"][:rank])
    dtype = np.dtype(_ELEMENTS[int(map_["elemtype"][0])])
    if address % 16 or stride % 16:
        raise SimulationError(f"the base and the strides must be multiples of 16 bytes; got {address:#x} and {stride}")
    if rows < 1 or columns < 1:
        raise SimulationError(f"the sizes of a tensor map must be 1 or more; got {rows} and {columns}")
    box = int(map_["box_dim"][1]), int(map_["box_dim"][0])
    swizzle, nan = _SWIZZLES[int(map_["swizzle_mode"][0])], bool(map_["fill_mode"][0])
    return Tensor(address, dtype, box, swizzle, (rows, columns), stride // dtype.itemsize, nan)
