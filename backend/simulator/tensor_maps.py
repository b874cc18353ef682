"""Tensor maps of the simulation: those of a launch, and those that a program makes by `tensormap.replace`.

The bytes of a map that a program makes are simulated, too: each field has a place in the 128 bytes, of which the PTX
manual does not tell, and one more says which fields were given. All other bytes must be zero.
"""

from __future__ import annotations

from typing import Any

import attrs
import ml_dtypes
import numpy as np

from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.codemodel.layout import row_major

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


@attrs.frozen(eq=False)
class TensorMap:
    """A tensor map of a matrix, or of a tensor of more axes: its upper left part of `shape`, moved box by box.

    `box` is (…, rows, columns), `swizzle` 0, 32, 64 or 128 bytes; elements outside are zeros, or NaN with `nan`.
    """

    array: Array
    box: tuple[int, ...]
    swizzle: int = 0
    shape: tuple[int, ...] | None = None
    nan: bool = False
    # Elements from one to the next along each axis but the last; None for those of a row-major array.
    strides: tuple[int, ...] | None = None

    @property
    def extent(self) -> tuple[int, ...]:
        """The size along each axis."""
        return self.shape or self.array.shape

    def at(self, address: int) -> Tensor:
        """The tensor, given the address of its first element."""
        strides = self.strides or row_major(self.array.shape)[:-1]
        return Tensor(address, self.array.dtype, self.box, self.swizzle, self.extent, strides, self.nan)


@attrs.frozen(eq=False)
class Tensor:
    """A tensor that TMA moves box by box: as `TensorMap`, at an address of the simulation."""

    address: int
    dtype: np.dtype[Any]
    box: tuple[int, ...]
    swizzle: int
    extent: tuple[int, ...]
    strides: tuple[int, ...]
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
    """The tensor that the 128 bytes of a map describe. Raises `SimulationError` for bytes that TMA must not use."""
    map_: Any = data.view(_FIELDS)[0]
    rank = int(map_["rank"][0]) + 1
    counts = {"global_stride": rank - 1, "global_dim": rank, "box_dim": rank, "element_stride": rank}
    for name in _NAMES[: _NAMES.index("given")]:
        for ordinal in range(counts.get(name, 1)):
            if not int(map_["given"][0]) & mark_of(name, ordinal):
                raise SimulationError(f"a tensor map must have all of its fields; {name} {ordinal} is missing")
    if map_["rest"].any() or any(map_[name][count:].any() for name, count in counts.items()):
        raise SimulationError("the bytes of a tensor map must be zero before its fields are set")
    if rank < 2 or map_["interleave_layout"][0] or (map_["element_stride"][:rank] != 1).any():
        raise SimulationError("a tensor map must have two axes or more, no interleave, and element strides of 1")
    address, strides = int(map_["global_address"][0]), tuple(map(int, map_["global_stride"][: rank - 1][::-1]))
    extent, box = (tuple(map(int, map_[name][:rank][::-1])) for name in ("global_dim", "box_dim"))
    dtype = np.dtype(_ELEMENTS[int(map_["elemtype"][0])])
    if any(number % 16 for number in (address, *strides)):
        raise SimulationError(f"the base and the strides must be multiples of 16 bytes; got {address:#x} and {strides}")
    if min(extent) < 1:
        raise SimulationError(f"the sizes of a tensor map must be 1 or more; got {extent}")
    swizzle, nan = _SWIZZLES[int(map_["swizzle_mode"][0])], bool(map_["fill_mode"][0])
    return Tensor(address, dtype, box, swizzle, extent, tuple(stride // dtype.itemsize for stride in strides), nan)
