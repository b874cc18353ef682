"""Global memory of the simulation: the arrays of a launch, the module's constants, and the local memory of threads.

Arrays that overlap are one region. Its address has the number of the region in the upper bits, so that a stray pointer
never meets another array, and the lower bits of the real address, so that alignment is kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ziggurat.backend.simulator.shared import Array, SimulationError

SHIFT = 40  # The number of a region is in the bits from this one on.
_ALIGNED = 1024  # Addresses keep the real ones modulo this.
_NOBODY, _SEVERAL = -1, -2


def span_of(array: Array) -> tuple[int, int]:
    """The addresses of the lowest byte of an array's elements and of the one after the highest."""
    low = high = int(array.__array_interface__["data"][0])
    for size, stride in zip(array.shape, array.strides, strict=True):
        low, high = low + min(0, (size - 1) * stride), high + max(0, (size - 1) * stride)
    return (low, high + array.itemsize) if array.size else (low, low)


class Region:
    """The memory of arrays that overlap; `name` names them in messages."""

    def __init__(self, name: str, arrays: Sequence[Array], number: int) -> None:
        self.name = name
        self.arrays = tuple(arrays)  # Keeps the memory alive.
        spans = [span_of(array) for array in arrays]
        self.low, high = min(low for low, _ in spans), max(high for _, high in spans)
        size = high - self.low
        raw = (ctypes.c_uint8 * size).from_address(self.low) if size else (ctypes.c_uint8 * 0)()
        self.bytes: Array = np.ctypeslib.as_array(raw)
        self.base = (number << SHIFT) + self.low % _ALIGNED
        self.inside = None if any(array.flags.forc and array.nbytes == size for array in arrays) else self._inside()
        self.writable = any(array.flags.writeable for array in arrays)
        # The thread of the program that has written, or read, each byte since its last barrier.
        self.writer = np.full(size, _NOBODY, np.int16)
        self.reader = np.full(size, _NOBODY, np.int16)
        self.touched: list[Array] = []

    def _inside(self) -> Array:
        """The bytes that belong to an element of an array: views have gaps."""
        marks = np.zeros(len(self.bytes), np.bool_)
        for array in self.arrays:
            if array.size:
                first = int(array.__array_interface__["data"][0]) - self.low
                shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
                np.ndarray(shape, np.bool_, marks, first, strides)[...] = True
        return marks

    def barrier(self, threads: Array) -> None:
        """Order the earlier accesses of these threads, a mask, before their later ones."""
        kept: list[Array] = []
        everyone = bool(threads.all())
        for places in self.touched:
            if everyone:
                self.writer[places] = self.reader[places] = _NOBODY
                continue
            for who in (self.writer, self.reader):
                one = who[places]
                who[places] = np.where((one >= 0) & threads[np.maximum(one, 0)], _NOBODY, one)
            if ((self.writer[places] != _NOBODY) | (self.reader[places] != _NOBODY)).any():
                kept.append(places)
        self.touched = kept


class Memory:
    """The regions of a launch. `names` are those of the arrays, for messages."""

    def __init__(self, arrays: Sequence[Array], names: Sequence[str] = ()) -> None:
        self.regions: list[Region] = []
        self._constants: dict[str, int] = {}
        self.pointers: list[int] = []
        titles = [names[at] if at < len(names) else f"argument {at}" for at in range(len(arrays))]
        groups: list[list[int]] = []
        end = 0
        for at in sorted(range(len(arrays)), key=lambda at: span_of(arrays[at])):
            low, high = span_of(arrays[at])
            if groups and low < end:
                groups[-1].append(at)
            else:
                groups.append([at])
            end = max(end, high)
        region_of: dict[int, Region] = {}
        for group in sorted(groups, key=min):
            made = self.add(", ".join(f"'{titles[at]}'" for at in sorted(group)), [arrays[at] for at in group])
            region_of.update(dict.fromkeys(group, made))
        for at, array in enumerate(arrays):
            region = region_of[at]
            first = int(array.__array_interface__["data"][0]) if array.size else region.low
            self.pointers.append(region.base + first - region.low)

    def constant(self, name: str, make: Callable[[], Array]) -> int:
        """The address of a variable of the module, whose data are made once for all programs."""
        if name not in self._constants:
            self._constants[name] = self.add(f"the constant '{name}'", [make()]).base
        return self._constants[name]

    def add(self, name: str, arrays: Sequence[Array]) -> Region:
        """A further region."""
        self.regions.append(Region(name, arrays, len(self.regions) + 1))
        return self.regions[-1]

    def region(self, address: int) -> Region:
        """The region that a pointer into it belongs to."""
        return self.regions[(address >> SHIFT) - 1]

    def start(self) -> None:
        """Forget the accesses of another program."""
        self.barrier(np.ones(1, np.bool_))

    def barrier(self, threads: Array) -> None:
        """Order the earlier accesses of these threads, a mask, before their later ones."""
        for region in self.regions:
            region.barrier(threads)

    def places(self, addresses: Array, size: int, threads: Array, verb: str) -> Iterator[tuple[Region, Array, Array]]:
        """The regions of accesses of `size` bytes, with the rows of each and the bytes of each row."""
        for number in map(int, np.unique(addresses >> SHIFT)):
            rows = np.flatnonzero(addresses >> SHIFT == number)
            if not 1 <= number <= len(self.regions):
                raise SimulationError(
                    f"a pointer must be into an array; thread {threads[rows[0]]} {verb} at {int(addresses[rows[0]]):#x}"
                )
            region = self.regions[number - 1]
            places = (addresses[rows] - region.base)[:, None] + np.arange(size)
            stray = (places < 0) | (places >= len(region.bytes))
            if not stray.any() and region.inside is not None:
                stray = ~region.inside[places]
            if stray.any():
                at = int(stray.any(1).argmax())
                raise SimulationError(
                    f"an access must be inside of its array; thread {threads[rows[at]]} {verb} {size} byte(s) at byte"
                    f" {int(places[at, 0])} of {region.name}, which has {len(region.bytes)}"
                    + (" with gaps" if region.inside is not None else "")
                )
            yield region, rows, places

    def load(self, addresses: Array, size: int, threads: Array) -> Array:
        """The bytes of each thread's access."""
        found = np.empty((len(addresses), size), np.uint8)
        for region, rows, places in self.places(addresses, size, threads, "reads"):
            who = np.broadcast_to(threads[rows][:, None], places.shape)
            writer = region.writer[places]
            if (wrong := (writer != _NOBODY) & (writer != who)).any():
                raise SimulationError(
                    f"a barrier must be between a store and another thread's load of the same element; thread "
                    f"{who[wrong][0]} reads byte {places[wrong][0]} of {region.name}, which "
                    f"{_thread(writer[wrong][0])} has written"
                )
            reader = region.reader[places]
            region.reader[places] = np.where((reader == _NOBODY) | (reader == who), who, _SEVERAL)
            if region.writable:
                region.touched.append(places)
            found[rows] = region.bytes[places]
        return found

    def store(self, addresses: Array, values: Array, threads: Array) -> None:
        """Write each thread's bytes."""
        for region, rows, places in self.places(addresses, values.shape[1], threads, "writes"):
            if not region.writable:
                raise SimulationError(f"{region.name} is read-only; thread {threads[rows[0]]} writes to it")
            who = np.broadcast_to(threads[rows][:, None], places.shape)
            writer = region.writer[places]
            region.bytes[places] = values[rows]
            wrong = (writer != _NOBODY) & (writer != who) | (region.bytes[places] != values[rows])
            if wrong.any():
                other = _thread(writer[wrong][0]) if writer[wrong][0] != _NOBODY else "another thread"
                raise SimulationError(
                    f"two threads must not write one element without a barrier between; thread {who[wrong][0]} writes "
                    f"byte {places[wrong][0]} of {region.name}, and {other} does"
                )
            reader = region.reader[places]
            # Within a warp, a shuffle may order the load before the store.
            if (wrong := (reader >= 0) & (reader // 32 != who // 32)).any():
                raise SimulationError(
                    f"a barrier must be between a load and another thread's store of the same element; thread "
                    f"{who[wrong][0]} writes byte {places[wrong][0]} of {region.name}, which thread "
                    f"{reader[wrong][0]} has read"
                )
            region.writer[places] = who
            region.touched.append(places)


def _thread(number: int) -> str:
    return f"thread {number}" if number >= 0 else "another thread"
