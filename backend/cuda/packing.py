"""Arguments as bytes: how the parameters of a kernel lie in the buffer that a launch hands to the driver.

`cuLaunchKernel` takes an array of pointers, one to each parameter's value. Buffer and pointers are made once and used
again; a launch only writes the values that may have changed.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.cuda.binary import POINTER, TENSOR_MAP
from ziggurat.codemodel import records
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.types import SCALARS

# One field of the buffer by kind: struct's letter (of its native sizes: it writes an address quicker as "P" than as
# "Q"), and padding to 8 bytes. The machine is little-endian, so the first bytes of an integer of 8 bytes are the
# integer in fewer.
FIELDS: dict[str, str] = {
    **{scalar.name: "q" if scalar.is_int and scalar.signed else "Q" for scalar in SCALARS.values()},
    **{"i1": "?7x", "f16": "e6x", "f32": "f4x", "f64": "d", POINTER: "P", TENSOR_MAP: "128s"},
}
# The floats that struct does not know are written as their bits.
AS_BITS = frozenset(scalar.name for scalar in SCALARS.values() if scalar.is_float and FIELDS[scalar.name] == "Q")


@records.frozen
class Packing:
    """The layout of values of these kinds: `format` is struct's, `offsets` and `size` are in bytes."""

    kinds: tuple[str, ...]
    format: str
    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, kinds: Sequence[str]) -> Packing:
        """The packing of values of these kinds in this order. A tensor map lies at a multiple of 64 bytes."""
        fields: list[str] = []
        offsets: list[int] = []
        size = 0
        for kind in kinds:
            if kind == TENSOR_MAP and size % 64:
                fields.append(f"{64 - size % 64}x")
                size += 64 - size % 64
            offsets.append(size)
            fields.append(FIELDS[kind])
            size += struct.calcsize(FIELDS[kind])
        return cls(tuple(kinds), "".join(fields), tuple(offsets), size)

    def write(self, buffer: Any, values: Sequence[Any]) -> None:
        """Write values into a buffer; see `fitted`."""
        struct.pack_into(self.format, buffer, 0, *map(fitted, self.kinds, values))


def new_slot(
    size: int, order: Sequence[int], *, maps: int = 0, scratch: bool = False, grid: bool = False
) -> tuple[memoryview, int]:
    """A buffer of `size` bytes for the values of a launch, and the address of an array of pointers into it, ended by 0.

    `order` gives the place in the buffer of each of the kernel's parameters. With `grid`, three sizes have places after
    them; so have this many `maps`, and with `scratch` an address. With maps, the last 8 bytes of the buffer, directly
    before the pointers, are its size. The view keeps the memory of both.
    """
    size += -size % 8
    if grid:
        size, order = size + 8 * 3, (*order, size, size + 8, size + 16)
    size += -size % 64 if maps else 0
    order = (*order, *range(size, size + MAP_BYTES * maps, MAP_BYTES))
    size += MAP_BYTES * maps
    if scratch:
        size, order = size + 8, (*order, size)
    size += 8 if maps else 0
    room = (ctypes.c_ubyte * (size + 72 + 8 * len(order)))()
    base = ctypes.addressof(room)
    start = -base % 64
    base += start
    struct.pack_into(f"={len(order)}Q", room, start + size, *[base + offset for offset in order])
    if maps:
        struct.pack_into("=Q", room, start + size - 8, size)
    return memoryview(room)[start : start + size], base + size


def fitted(kind: str, value: Any) -> Any:
    """A value as struct can write it for a kind: floats out of range as infinities, the small floats as their bits.

    Raises `LaunchError` for an integer that the kind does not hold.
    """
    if kind in AS_BITS:
        import numpy as np

        bits = np.asarray(value).astype(SCALARS[kind].dtype)
        return int(bits.view(f"u{bits.dtype.itemsize}"))
    scalar = SCALARS.get(kind)
    if scalar is None:
        return value
    if scalar.is_float:
        number = float(value)
        try:
            struct.pack(FIELDS[kind], number)
        except OverflowError:
            return math.copysign(math.inf, number)
        return number
    low, high = scalar.limits
    if not low <= int(value) <= high:
        raise LaunchError(f"the argument {value} does not fit a parameter of type {kind}")
    return int(value)
