"""Global memory of the simulation: the arrays of a launch, the module's constants, and the local memory of threads.

Arrays that overlap are one region. Its address has the number of the region in the upper bits, so that a stray pointer
never meets another array, and the lower bits of the real address, so that alignment is kept.

A store of a byte that another warp has loaded since the last barrier is a race if that warp uses the loaded value: it
stores it, or branches on it. Replicas, threads that compute an element that another thread stores, do not use theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy

import numpy as np

from ziggurat.backend.launch import regions
from ziggurat.backend.launch.arrays import address
from ziggurat.backend.simulator.shared import Array, SimulationError

SHIFT = 40  # The number of a region is in the bits from this one on.
_ALIGNED = 1024  # Addresses keep the real ones modulo this.
_NOBODY = -1
USED = 0  # The number of loads whose values count as used.


class Region(regions.Region):
    """The memory of arrays that overlap, at the address `start` in the simulation. Messages call it `name`."""

    def __init__(self, name: str, arrays: Sequence[Array], number: int) -> None:
        super().__init__(arrays)
        self.name = name
        self.start = (number << SHIFT) + self.low % _ALIGNED
        self.writable = any(array.flags.writeable for array in arrays)
        # Accesses of each byte since the last barrier: the thread that wrote it, and a bit for each warp that read it.
        # `touched` has the bytes of each access, with the number of the load; None for a store.
        self.writer = np.full(len(self.bytes), _NOBODY, np.int16)
        self.readers = np.zeros(len(self.bytes), np.uint32)
        self.touched: list[tuple[Array, int | None]] = []

    def noted_apart(self) -> Region:
        """The same memory, without accesses."""
        made = copy(self)
        made.writer, made.readers = np.full_like(self.writer, _NOBODY), np.zeros_like(self.readers)
        made.touched = []
        return made

    def barrier(self, threads: Array) -> None:
        """Order the earlier accesses of these threads, a mask, before their later ones."""
        kept: list[tuple[Array, int | None]] = []
        others = np.uint32(~_warps(np.flatnonzero(threads)) & 0xFFFFFFFF)
        for places, load in self.touched:
            if threads.all():
                self.writer[places], self.readers[places] = _NOBODY, 0
                continue
            writer = self.writer[places]
            self.writer[places] = np.where((writer >= 0) & threads[np.maximum(writer, 0)], _NOBODY, writer)
            self.readers[places] &= others
            if (still := self.writer[places] != _NOBODY if load is None else self.readers[places] != 0).any():
                kept.append((places[still], load))
        self.touched = kept


class Memory:
    """The regions of a launch. `names` are those of the arrays, for messages."""

    def __init__(self, arrays: Sequence[Array], names: Sequence[str] = ()) -> None:
        self.regions: list[Region] = []
        self.changes = 0  # Counts the stores that changed memory.
        self.start()
        self._variables: dict[object, int] = {}
        self.pointers: list[int] = []
        titles = [names[at] if at < len(names) else f"argument {at}" for at in range(len(arrays))]
        region_of: dict[int, Region] = {}
        for group in sorted(regions.grouped(arrays, views=False)):
            made = self.add(", ".join(f"'{titles[at]}'" for at in group), [arrays[at] for at in group])
            region_of.update(dict.fromkeys(group, made))
        for at, array in enumerate(arrays):
            region = region_of[at]
            self.pointers.append(region.start + (address(array) - region.low if array.size else 0))

    def variable(self, key: object, name: str, make: Callable[[], Array]) -> int:
        """The address of a variable of the module, whose data are made once for all programs."""
        if key not in self._variables:
            self._variables[key] = self.add(name, [make()]).start
        return self._variables[key]

    def add(self, name: str, arrays: Sequence[Array]) -> Region:
        """A further region."""
        self.regions.append(Region(name, arrays, len(self.regions) + 1))
        return self.regions[-1]

    def bytes_at(self, address: int) -> Array:
        """The bytes of a region from a pointer into it on."""
        region = self.regions[(address >> SHIFT) - 1]
        return region.bytes[address - region.start :]

    def of_cta(self) -> Memory:
        """The same memory, in which the accesses of another CTA are noted apart from these."""
        made = copy(self)
        made.regions = [region.noted_apart() for region in self.regions]
        made._variables = {}
        made.start()
        return made

    def start(self) -> None:
        """Forget the accesses of another program."""
        # For each load by number: the warps that used its values since the last barrier, the warps whose values another
        # warp has overwritten, and the message about it. Values of load 0 count as used by all.
        self.used, self.stale, self.conflicts = [-1], [0], [""]
        self.barrier(np.ones(1, np.bool_))

    def barrier(self, threads: Array) -> None:
        """Order the earlier accesses of these threads, a mask, before their later ones."""
        for region in self.regions:
            region.barrier(threads)
        others = ~_warps(np.flatnonzero(threads))
        self.used[1:] = [used & others for used in self.used[1:]]

    def new_load(self) -> int:
        """The number of a further load, whose values are not used yet."""
        self.used.append(0)
        self.stale.append(0)
        self.conflicts.append("")
        return len(self.used) - 1

    def use(self, loads: Iterable[int], threads: Array) -> None:
        """Note that these threads use values of loads: they store them, or branch on them."""
        warps = _warps(threads)
        for load in loads:
            self.used[load] |= warps
            if self.stale[load] & warps:
                raise SimulationError(f"{self.conflicts[load]} and uses here")

    def places(self, addresses: Array, size: int, threads: Array, verb: str) -> Iterator[tuple[Region, Array, Array]]:
        """The regions of accesses of `size` bytes, with the rows of each and the bytes of each row."""
        for number in map(int, np.unique(addresses >> SHIFT)):
            rows = np.flatnonzero(addresses >> SHIFT == number)
            if not 1 <= number <= len(self.regions):
                raise SimulationError(
                    f"a pointer must be into an array; thread {threads[rows[0]]} {verb} at {int(addresses[rows[0]]):#x}"
                )
            region = self.regions[number - 1]
            places = (addresses[rows] - region.start)[:, None] + np.arange(size)
            stray = (places < 0) | (places >= len(region.bytes))
            if not stray.any() and region.has_gaps:
                stray = region.missing(places, 1)
            if stray.any():
                at = int(stray.any(1).argmax())
                raise SimulationError(
                    f"an access must be inside of its array; thread {threads[rows[at]]} {verb} {size} byte(s) at byte"
                    f" {int(places[at, 0])} of {region.name}, which has {len(region.bytes)}"
                    + (" with gaps" if region.has_gaps else "")
                )
            yield region, rows, places

    def load(self, addresses: Array, size: int, threads: Array, load: int = USED) -> Array:
        """The bytes of each thread's access, for the load of this number."""
        found = np.empty((len(addresses), size), np.uint8)
        for region, rows, places in self.places(addresses, size, threads, "reads"):
            found[rows] = region.bytes[places]
            if not region.writable:
                continue
            who = np.broadcast_to(threads[rows][:, None], places.shape)
            writer = region.writer[places]
            if (wrong := (writer != _NOBODY) & (writer != who)).any():
                raise SimulationError(
                    f"a barrier must be between a store and another thread's load of the same element; thread "
                    f"{who[wrong][0]} reads byte {places[wrong][0]} of {region.name}, which "
                    f"thread {writer[wrong][0]} has written"
                )
            np.bitwise_or.at(region.readers, places, _bit(who))
            region.touched.append((places, load))
        return found

    def store(self, addresses: Array, values: Array, threads: Array) -> None:
        """Write each thread's bytes."""
        for region, rows, places in self.places(addresses, values.shape[1], threads, "writes"):
            if not region.writable:
                raise SimulationError(f"{region.name} is read-only; thread {threads[rows[0]]} writes to it")
            who = np.broadcast_to(threads[rows][:, None], places.shape)
            writer, old = region.writer[places], region.bytes[places]
            region.bytes[places] = values[rows]
            self.changes += not np.array_equal(old, values[rows])
            wrong = (writer != _NOBODY) & (writer != who) | (region.bytes[places] != values[rows])
            if wrong.any():
                other = f"thread {writer[wrong][0]}" if writer[wrong][0] != _NOBODY else "another thread"
                raise SimulationError(
                    f"two threads must not write one element without a barrier between; thread {who[wrong][0]} writes "
                    f"byte {places[wrong][0]} of {region.name}, and {other} does"
                )
            # Within a warp, a shuffle may order the load before the store.
            readers = region.readers[places] & ~_bit(who)
            if (wrong := readers != 0).any():
                self._overwritten(region, places[wrong], who[wrong], readers[wrong])
            region.writer[places] = who
            region.touched.append((places, None))

    def _overwritten(self, region: Region, places: Array, who: Array, readers: Array) -> None:
        """Store bytes that other warps have loaded, which must not use the values, now or later."""
        warps = int(np.bitwise_or.reduce(readers))
        for load in {load for read, load in region.touched if load is not None and np.isin(read, places).any()}:
            text = (
                f"a barrier must be between a load and another thread's store of the same element; thread {who[0]} "
                f"writes byte {places[0]} of {region.name}, which warp {int(readers[0]).bit_length() - 1} has read"
            )
            if self.used[load] & warps:
                raise SimulationError(text)
            self.stale[load], self.conflicts[load] = self.stale[load] | warps, text


def _bit(threads: Array) -> Array:
    """The bit of each thread's warp."""
    return np.uint32(1) << (threads // 32).astype(np.uint32)


def _warps(threads: Array) -> int:
    """The bits of these threads' warps."""
    return int(np.bitwise_or.reduce(_bit(threads), initial=0))
