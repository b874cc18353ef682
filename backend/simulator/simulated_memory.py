"""Global memory of the simulation: the arrays of a launch, the module's constants, and the local memory of threads.

Arrays that overlap are one region. Its address has the number of the region in the upper bits, so that a stray pointer
never meets another array, and the lower bits of the real address, so that alignment is kept.

A store of a byte that another warp has loaded since the last barrier is a race if that warp uses the loaded value: it
stores it, or branches on it. Replicas, threads that compute an element that another thread stores, do not use theirs.
So it is with the CTAs of a cluster, whose accesses only the cluster's barrier orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import product

import numpy as np

from ziggurat.backend.launch import races, regions
from ziggurat.backend.launch.arrays import address
from ziggurat.backend.simulator.shared import Array, SimulationError

SHIFT = 40  # The number of a region is in the bits from this one on.
_ALIGNED = 1024  # Addresses keep the real ones modulo this.
_NOBODY = -1
USED = 0  # The number of loads whose values count as used.


class SimulatedRegion(regions.Region):
    """The memory of arrays that overlap, at the address `start` in the simulation. Messages call it `name`."""

    def __init__(self, name: str, arrays: Sequence[Array], number: int) -> None:
        super().__init__(arrays)
        self.name = name
        # In the middle of the region's addresses: accesses before the array are its own, too.
        self.start = (number << SHIFT) + (1 << SHIFT - 1) + self.low % _ALIGNED
        self.writable = any(array.flags.writeable for array in arrays)
        # Accesses of each byte since the last barrier: the thread that wrote it, and a bit for each warp that read it.
        # `touched` has the bytes of each access, with the number of the load; None for a store.
        self.writer = np.full(len(self.bytes), _NOBODY, np.int16)
        self.readers = np.zeros(len(self.bytes), np.uint32)
        self.touched: list[tuple[Array, int | None]] = []
        # In a cluster: the time of the last store and load of each byte, each load with its number and time, and the
        # same memory as the other CTAs note it, with their ranks.
        self.stored, self.loaded = np.zeros((2, 0), np.int32)
        self.loads: list[tuple[Array, int, int]] = []
        self.others: list[tuple[int, SimulatedMemory, SimulatedRegion]] = []

    def noted_apart(self) -> SimulatedRegion:
        """The same memory, without accesses."""
        twin = copy(self)
        twin.writer, twin.readers = np.full_like(self.writer, _NOBODY), np.zeros_like(self.readers)
        twin.touched, twin.loads, twin.others = [], [], []
        twin.stored, twin.loaded = np.zeros((2, len(self.bytes)), np.int32)
        return twin

    def barrier(self, threads: Array) -> None:
        """Order the earlier accesses of these threads, a mask, before their later ones."""
        barriers: list[tuple[Array, int | None]] = []
        others = np.uint32(~_warps(np.flatnonzero(threads)) & 0xFFFFFFFF)
        for places, load in self.touched:
            if threads.all():
                self.writer[places], self.readers[places] = _NOBODY, 0
                continue
            writer = self.writer[places]
            self.writer[places] = np.where((writer >= 0) & threads[np.maximum(writer, 0)], _NOBODY, writer)
            self.readers[places] &= others
            if (still := self.writer[places] != _NOBODY if load is None else self.readers[places] != 0).any():
                barriers.append((places[still], load))
        self.touched = barriers


class SimulatedMemory:
    """The regions of a launch. `names` are those of the arrays, for messages."""

    def __init__(self, arrays: Sequence[Array], names: Sequence[str] = ()) -> None:
        self.regions: list[SimulatedRegion] = []
        self.changes = 0  # Counts the stores that changed memory.
        # The accesses of all programs, the number of the current one, and the place of the line that runs now.
        self.races: races.Races | None = None
        self.program = 0
        self.line: int | None = None
        # The order and the scope of the strong access that runs now, as PTX spells them.
        self.order: tuple[str, str] | None = None
        # In a cluster: one more than the barriers that this CTA has arrived at, and by rank the time up to which the
        # accesses of each CTA come before those of this one now.
        self.time, self.seen = 1, [0]
        self.start()
        self._variables: dict[object, int] = {}
        self.pointers: list[int] = []
        titles = [names[at] if at < len(names) else f"argument {at}" for at in range(len(arrays))]
        region_of: dict[int, SimulatedRegion] = {}
        for group in sorted(regions.grouped(arrays, views=False)):
            new_region = self.add(", ".join(f"'{titles[at]}'" for at in group), [arrays[at] for at in group])
            new_region.names = [titles[at] for at in group]
            region_of.update(dict.fromkeys(group, new_region))
        for at, array in enumerate(arrays):
            region = region_of[at]
            self.pointers.append(region.start + (address(array) - region.low if array.size else 0))

    def variable(self, key: object, name: str, make: Callable[[], Array]) -> int:
        """The address of a variable of the module, whose data are made once for all programs."""
        if key not in self._variables:
            self._variables[key] = self.add(name, [make()]).start
        return self._variables[key]

    def add(self, name: str, arrays: Sequence[Array]) -> SimulatedRegion:
        """A further region."""
        self.regions.append(SimulatedRegion(name, arrays, len(self.regions) + 1))
        return self.regions[-1]

    def bytes_at(self, address: int) -> Array:
        """The bytes of a region from a pointer into it on."""
        region = self.regions[(address >> SHIFT) - 1]
        return region.bytes[address - region.start :]

    def of_ctas(self, count: int) -> Sequence[SimulatedMemory]:
        """The same memory for each CTA of a cluster, which notes its accesses apart from those of the others."""
        ctas: Sequence[SimulatedMemory] = [copy(self) for _ in range(count)]
        for pair in ctas:
            pair.regions = [region.noted_apart() for region in self.regions]
            pair._variables, pair.seen = {}, [0] * count
            pair.start()
        for pair, (rank, other) in product(ctas, enumerate(ctas)):
            for region, theirs in zip(pair.regions, other.regions, strict=True) if pair is not other else ():
                region.others.append((rank, other, theirs))
        return ctas

    def start(self) -> None:
        """Forget the accesses of another program."""
        # For each load by number: the warps that used its values since the last barrier, the warps whose values another
        # warp has overwritten, and the message about it. Values of load 0 count as used by all.
        # `ever` has the warps that used them at any time.
        self.used, self.stale, self.conflicts, self.ever = [-1], [0], [""], [-1]
        # The threads without a store since a fence, nor a barrier with a thread that has had none.
        self.fenced: set[int] = set()
        self.barrier(np.ones(1, np.bool_))

    def barrier(self, threads: Array) -> None:
        """Order the earlier accesses of these threads, a mask, before their later ones."""
        for region in self.regions:
            region.barrier(threads)
        others = ~_warps(np.flatnonzero(threads))
        self.used[1:] = [time & others for time in self.used[1:]]
        if not self.fenced.issuperset(together := np.flatnonzero(threads).tolist()):
            self.fenced.difference_update(together)

    def new_load(self) -> int:
        """The number of a further load, whose values are not used yet."""
        self.used.append(0)
        self.stale.append(0)
        self.conflicts.append("")
        self.ever.append(0)
        return len(self.used) - 1

    def use(self, loads: Iterable[int], threads: Array) -> None:
        """Note that these threads use values of loads: they store them, or branch on them."""
        warps = _warps(threads)
        for load in loads:
            self.used[load] |= warps
            self.ever[load] |= warps
            if self.stale[load] & warps:
                raise SimulationError(f"{self.conflicts[load]} and uses here")

    def resolved(self, addresses: Array) -> Array:
        """The pointers for addresses, which may be those of this machine's memory where several devices share it."""
        return addresses

    def places(
        self, addresses: Array, size: int, threads: Array, verb: str
    ) -> Iterator[tuple[SimulatedRegion, Array, Array]]:
        """The regions of accesses of `size` bytes, with the rows of each and the bytes of each row."""
        addresses = self.resolved(addresses)
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

    def takes_turns(self) -> bool:
        """Whether other programs run meanwhile and are to have a turn now: those of other devices."""
        return False

    def waits(self) -> bool:
        """Whether a program that waits for a change of memory may go on after other programs."""
        return False

    def fence(self, threads: Array, scope: str) -> None:
        """Order the earlier accesses of these threads before the atomics after it."""
        self.fenced.update(threads.tolist())

    def note(
        self, region: SimulatedRegion, places: Array, kind: int, *bits: Array, is_load: bool = False, **orders: bool
    ) -> None:
        """Note an access of the current program. Raise `SimulationError` for a race with another program.

        `bits` are the new and the old bytes of a store. `orders` says whether the access acquires and releases.
        `is_load` is an update that has left memory as it was: a compare-and-swap that failed.
        """
        if self.races is not None and region.names:
            details = (lambda: bits) if bits else None
            self.races.note(region, places, np.full_like(places, self.program), kind, self.line, bits=details, **orders)

    def load(self, addresses: Array, size: int, threads: Array, load: int = USED, kind: int = races.READ) -> Array:
        """The bytes of each thread's access, for the load of this number."""
        data = np.empty((len(addresses), size), np.uint8)
        for region, rows, places in self.places(addresses, size, threads, "reads"):
            data[rows] = region.bytes[places]
            if not region.writable:
                continue
            self.note(region, places, kind, acquires=kind == races.POLL)
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
            if region.others:
                if (clash := self._stored_by_others(region, places, who, "reads")) is not None:
                    self._expire([load], () if load else [-1], *clash)
                region.loaded[places] = self.time
                region.loads.append((places, load, self.time))
        return data

    def store(self, addresses: Array, values: Array, threads: Array) -> None:
        """Write each thread's bytes."""
        self.fenced.difference_update(threads.tolist())
        for region, rows, places in self.places(addresses, values.shape[1], threads, "writes"):
            if not region.writable:
                raise SimulationError(f"{region.name} is read-only; thread {threads[rows[0]]} writes to it")
            who = np.broadcast_to(threads[rows][:, None], places.shape)
            writer, old = region.writer[places], region.bytes[places]
            region.bytes[places] = values[rows]
            self.changes += not np.array_equal(old, values[rows])
            # Whichever of equal bytes is last, memory has the same.
            wrong = (writer != _NOBODY) & (writer != who) & (old != values[rows])
            wrong |= region.bytes[places] != values[rows]
            if wrong.any():
                other = f"thread {writer[wrong][0]}" if writer[wrong][0] != _NOBODY else "another thread"
                raise SimulationError(
                    f"two threads must not write one element without a barrier between; thread {who[wrong][0]} writes "
                    f"byte {places[wrong][0]} of {region.name}, and {other} does"
                )
            self.note(region, places, races.WRITE, values[rows], old)
            # Within a warp, a shuffle may order the load before the store.
            readers = region.readers[places] & ~_bit(who)
            if (wrong := readers != 0).any():
                self._overwritten(region, places[wrong], who[wrong], readers[wrong])
            region.writer[places] = who
            region.touched.append((places, None))
            if region.others:
                self._store_beside_others(region, places, who)

    def _overwritten(self, region: SimulatedRegion, places: Array, who: Array, readers: Array) -> None:
        """Store bytes that other warps have loaded, which must not use the values, now or later."""
        loads = {load for read, load in region.touched if load is not None and np.isin(read, places).any()}
        text = (
            f"a barrier must be between a load and another thread's store of the same element; thread {who[0]} "
            f"writes byte {places[0]} of {region.name}, which warp {int(readers[0]).bit_length() - 1} has read"
        )
        self._expire(loads, self.used, int(np.bitwise_or.reduce(readers)), text)

    def _expire(self, loads: Iterable[int], times: Sequence[int], warps: int, text: str) -> None:
        """Raise `SimulationError` if warps have used the values of loads, or when they do."""
        for load in loads:
            if times and times[load] & warps:
                raise SimulationError(text)
            self.stale[load], self.conflicts[load] = self.stale[load] | warps, text

    def _stored_by_others(
        self, region: SimulatedRegion, places: Array, who: Array, verb: str
    ) -> tuple[int, str] | None:
        """The warps whose accesses no barrier orders after those of another CTA that has stored, and a message."""
        for rank, _, theirs in region.others:
            if (wrong := theirs.stored[places] > self.seen[rank]).any():
                return _warps(who[wrong]), (
                    f"a barrier of the cluster must be between a store and another CTA's access of the same element; "
                    f"thread {who[wrong][0]} {verb} byte {places[wrong][0]} of {region.name}, which CTA {rank} of the "
                    f"cluster has written"
                )
        return None

    def _store_beside_others(self, region: SimulatedRegion, places: Array, who: Array) -> None:
        """Store bytes that other CTAs may have stored or loaded."""
        if (clash := self._stored_by_others(region, places, who, "writes")) is not None:
            raise SimulationError(clash[1])
        region.stored[places] = self.time
        for rank, other, theirs in region.others:
            if (late := theirs.loaded[places] > self.seen[rank]).any():
                clashes = places[late]
                loads = {n for read, n, time in theirs.loads if time > self.seen[rank] and np.isin(read, clashes).any()}
                text = (
                    f"a barrier of the cluster must be between a load and another CTA's store of the same element; "
                    f"thread {who[late][0]} writes byte {clashes[0]} of {region.name}, which CTA {rank} of the cluster "
                    f"has read"
                )
                other._expire(loads, other.ever, -1, text)


def _bit(threads: Array) -> Array:
    """The bit of each thread's warp."""
    return np.uint32(1) << (threads // 32).astype(np.uint32)


def _warps(threads: Array) -> int:
    """The bits of these threads' warps."""
    return int(np.bitwise_or.reduce(_bit(threads), initial=0))
