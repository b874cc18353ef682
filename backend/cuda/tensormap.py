"""Launches of kernels that get tensor maps of their arguments: descriptors as TMA (sm_90 and later) takes them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ziggurat.backend.cuda.loaded import Loaded
from ziggurat.backend.cuda.scratch import allocated
from ziggurat.backend.launch.descriptors import TensorMapMatrix, encode
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.types import SCALARS

_NUMBER = struct.Struct("=q")
_GRID = struct.Struct("=3q")  # The sizes of a grid, which a kernel reads as i32.
_Sizes = ctypes.c_ubyte * _GRID.size
_MOST_PROGRAMS = (1 << 31) - (1 << 20)  # A CTA counts in 32 bits, and beyond the last by the number of CTAs.
_ZEROS = 16  # Bytes: the least that a tensor map takes.
_KEPT = 256  # Sets of tensor maps, and buffers, that a kernel keeps for launches with equal arguments.


class Described:
    """A function like `launch` that gives the kernel the tensor maps of its arguments.

    A matrix without elements gets the map of a single 0, so that all loads give zeros, as masks say. Where arguments
    have no maps, the other kernel of the binary is launched, which takes the same parameters but for the maps, or the
    `LaunchError` is raised. A buffer whose bytes are those of its launch before has the right maps already.

    A persistent kernel gets the sizes of the grid as well, and as many CTAs, or clusters of them, as run at once, or as
    there are programs. Where they are too many to count, the other kernel is launched.
    """

    def __init__(self, launch: Callable[..., Any], binary_in_context: Loaded) -> None:
        self.launch = launch
        self._handle, self._binary = binary_in_context, binary_in_context.binary
        sources = [source for map_ in binary_in_context.binary.maps for source in map_.sources]
        self._numbers = [int(source) for source in sources if not source.startswith("=")]
        self._persistent, self._sizes = binary_in_context.binary.persistent, len(binary_in_context.binary.parameters)
        self._most = binary_in_context.programs_at_once if self._persistent else 0
        self._count = self._sizes + 3 * self._persistent
        self._places = struct.Struct(f"={self._count + 1}Q")
        self._maps_by_pointers: dict[tuple[int, ...], bytes | LaunchError] = {}
        self._launched: dict[int, bytes] = {}  # The bytes of buffers, by the addresses of their pointers.

    def has_maps(self, pointers: int) -> bool:
        """Whether a buffer, given by the address of its pointers, has the tensor maps of its arguments, and a launch
        needs nothing else."""
        return not self._persistent and self._launched.get(pointers) == self._given(pointers)[1]

    def _given(self, pointers: int) -> tuple[int, bytes]:
        size = _address_at(pointers - 8)
        return size, ctypes.string_at(pointers - size, size + self._places.size)

    def __call__(self, function: Any, x: int, y: int, z: int, *rest: Any) -> Any:
        *_, stream, pointers, extra = rest
        programs = x * y * z
        if self._persistent:
            if programs > _MOST_PROGRAMS:
                why = f"'{self._binary.title}' takes programs in turn, {_MOST_PROGRAMS} at most; got {programs}"
                error = LaunchError(why, hint="compile it with persistent=False")
                return self._other(error, x, y, z, stream, pointers, extra)
            _GRID.pack_into(_Sizes.from_address(_address_at(pointers + 8 * self._sizes)), 0, x, y, z)
        size, bases = self._given(pointers)
        if self._launched.get(pointers) != bases:
            addresses = self._places.unpack_from(bases, size)
            start = pointers - size
            values = tuple([_NUMBER.unpack_from(bases, addresses[number] - start)[0] for number in self._numbers])
            maps = self._maps_by_pointers.get(values)
            if maps is None:
                if len(self._maps_by_pointers) >= _KEPT:
                    self._maps_by_pointers.clear()
                    self._launched.clear()
                maps = self._described(dict(zip(self._numbers, values, strict=True)))
                self._maps_by_pointers[values] = maps
            if not isinstance(maps, bytes):
                return self._other(maps, x, y, z, stream, pointers, extra)
            ctypes.memmove(addresses[self._count], maps, len(maps))
            if len(self._launched) >= _KEPT:
                self._launched.clear()
            self._launched[pointers] = ctypes.string_at(start, len(bases))
        if self._persistent:
            return self.launch(function, min(programs, self._most), 1, 1, *rest)
        return self.launch(function, x, y, z, *rest)

    def _other(self, error: LaunchError, x: int, y: int, z: int, stream: Any, pointers: int, extra: Any) -> Any:
        if self._handle.otherwise is None:
            raise error
        other = self._handle.otherwise()
        shape = other.binary.threads, 1, 1, other.binary.shared
        return other.launch(other.function, x, y, z, *shape, stream, pointers, extra)

    def _described(self, values: Mapping[int, int]) -> bytes | LaunchError:
        """The tensor maps of a launch, given the values of parameters; or the error for values that have none."""
        maps: list[bytes] = []
        for map_ in self._binary.maps:
            address, *shape, pitch = (int(s[1:]) if s.startswith("=") else values[int(s)] for s in map_.sources)
            element = SCALARS[map_.element]
            why = (
                f"'{self._binary.title}' loads blocks by TMA from {shape[0]} by {shape[1]} elements, rows {pitch} apart"
            )
            hint = "compile it with raise_pointers=False"
            if min(shape) < 1 and map_.stored:
                return LaunchError(f"{why}: there is nothing to store to", hint=hint)
            if min(shape) < 1:
                address, shape, pitch = _zeros(self._handle.context), [1, 1], _ZEROS // element.bytes
            if pitch < 1:
                return LaunchError(f"{why}: they must be a positive distance apart", hint=hint)
            try:
                maps.append(encode(TensorMapMatrix(element, address, tuple(shape), (pitch, 1)), map_.box, map_.swizzle))
            except ZigguratError as error:
                return LaunchError(f"{why}: {error.summary}", hint=hint)
        return b"".join(maps)


def _address_at(place: int) -> int:
    """The address that is at an address."""
    return ctypes.c_uint64.from_address(place).value


@cache
def _zeros(context: int) -> int:
    """The address of zeros in a context, the current one."""
    return allocated(_ZEROS, zero=True)
