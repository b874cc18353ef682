"""Races between programs that run at once on several devices, by vector clocks.

The rules are those of PTX's memory model (PTX manual, "Memory Consistency Model"), for programs that are one thread
each. An access comes before one of another program if a chain of releases and acquires leads from one to the other. A
release and an acquire of an address make a link of it if the scope of each includes the other's program. Two accesses
race if nothing orders them, one of them writes, and they are not both strong (atomic, volatile or ordered) with scopes
that include the other program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs
import numpy as np

from ziggurat.backend.launch.races import POLL, READ, UPDATE, WRITE
from ziggurat.backend.launch.regions import Array, Region, grouped
from ziggurat.codemodel.dialects.tt import MemScope, MemSemantic
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError
from ziggurat.codemodel.location import Location

MAX_PROGRAMS: Final = 4096  # Of all devices in one run: each has a clock for each other one.
# The rows of a table: for each unit the number of the last write, those of the sets of reads and of strong accesses
# since then, and that of what releases have left.
_WRITES, _READS, _STRONG, _RELEASES = range(4)
_WORDS: Final = {WRITE: ("writes", "written"), READ: ("reads", "read"), UPDATE: ("updates", "updated")}
_WORDS[POLL] = _WORDS[READ]
_WIDTHS: Final = (MemScope.CTA, MemScope.GPU, MemScope.SYSTEM)
HINT: Final = (
    "release a signal after the first of the two and acquire it before the second, by accesses whose scope includes "
    'both programs: "sys" for two devices'
)
SCOPE_HINT: Final = 'give both accesses a scope that includes both programs: "sys" for two devices'


def require_few(programs: int, title: str) -> None:
    """Raise `LaunchError` where there are more programs with this launch than one run can have."""
    if programs > MAX_PROGRAMS:
        raise LaunchError(
            f"the launches of several devices must have at most {MAX_PROGRAMS} programs together; "
            f"with '{title}' there are {programs}",
            hint="launch fewer programs, or call run() between",
        )


@attrs.frozen(eq=False)
class Access:
    """An access of a program of a device, at a time of the program's own. `scope` is None for a weak one."""

    program: int
    device: int
    time: int
    kind: int
    scope: MemScope | None
    place: Any

    @property
    def writes(self) -> bool:
        """Whether it may change memory."""
        return self.kind in (WRITE, UPDATE)


class Shadow:
    """What is known of the accesses of a region, for each of its units of `unit` bytes."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.unit = region.unit
        self.table = np.zeros((4, -(-len(region.bytes) // self.unit)), np.int32)

    def name(self, unit: int) -> str:
        """The elements at a unit, for messages."""
        return " or ".join(self.region.elements(self.region.base + unit * self.unit)) or "memory"

    def units(self, offsets: Array, size: int) -> Array:
        """The units of accesses of `size` bytes at offsets from the base. Smaller ones divide the units."""
        if size < self.unit:
            self.table = np.repeat(self.table, self.unit // size, axis=1)
            self.unit = size
        units = offsets // self.unit
        return units if size == self.unit else (units[:, None] + np.arange(size // self.unit)).reshape(-1)


class Shadows:
    """The shadows of the arrays of all devices, whose memory is grouped by what overlaps."""

    def __init__(self, memories: Sequence[Array], names: Sequence[str]) -> None:
        self._shadows: list[Shadow] = []
        for group in grouped(memories, views=True):
            region = Region([memories[number] for number in group], aligned=8)
            region.names = [names[number] for number in group]
            self._shadows.append(Shadow(region))

    def of(self, region: Region) -> tuple[Shadow, int]:
        """The shadow of a launch's region, and the offset of the region's base in it."""
        for shadow in self._shadows:
            if shadow.region.low <= region.low and region.high <= shadow.region.high:
                return shadow, region.base - shadow.region.base
        self._shadows.append(Shadow(region))  # A tensor of PyTorch, by its address.
        return self._shadows[-1], 0


@attrs.frozen(eq=False)
class Wait:
    """A program that waits for a unit of memory at a place."""

    program: int
    shadow: Shadow
    unit: int
    place: Any


class Clocks:
    """The accesses of programs up to now. `devices` has the device of each program, `name` gives the name of a program
    for messages, and `location` that of an access's place."""

    def __init__(
        self, devices: Sequence[int], name: Callable[[int], str], location: Callable[[Any], Location | None],
        error: type[KernelRuntimeError],
    ) -> None:  # fmt: skip
        self._devices, self._name, self._location, self._error = devices, name, location, error
        count = len(devices)
        # By program: the time of each program up to which its accesses come before those of this one now.
        self.clocks = np.eye(count, dtype=np.int32)
        self._accesses: list[Access | None] = [None]
        self._sets: list[tuple[int, ...]] = [()]
        # What releases have left at an address: clocks by the scope and the device of the release.
        self._releases: list[dict[tuple[MemScope, int], Array]] = [{}]
        # For fences, by program: the scopes and releases that it has read; and the scope and clock of its last fence.
        self._loads: list[set[tuple[MemScope, int]]] = [set() for _ in range(count)]
        self._fenced: list[tuple[MemScope, Array] | None] = [None] * count

    def begin(self, program: int, earlier: Sequence[int]) -> None:
        """Begin a program after these have ended."""
        if earlier:
            np.maximum(self.clocks[program], self.clocks[list(earlier)].max(0), out=self.clocks[program])

    def fence(self, program: int, scope: MemScope) -> None:
        """Note a fence: an acquire by the strong reads before it, and a release by the strong writes after it."""
        for narrower, state in self._loads[program]:
            self._acquire(program, min(narrower, scope, key=_WIDTHS.index), state)
        self._fenced[program] = scope, self.clocks[program].copy()
        self.clocks[program, program] += 1

    def note(
        self, shadow: Shadow, units: Array, program: int, kind: int, place: Any, *,
        order: MemSemantic = MemSemantic.RELAXED, scope: MemScope | None = None, is_store: bool = False,
        same_bits: Callable[[], Array] | None = None,
    ) -> None:  # fmt: skip
        """Note an access to units of memory, before it happens. Raise the error of a race.

        A strong access has a scope; `is_store` tells a strong store from an update. `same_bits` says for each unit
        whether a write leaves it as it is.
        """
        table = shadow.table
        access = Access(program, self._devices[program], int(self.clocks[program, program]), kind, scope, place)
        number = len(self._accesses)
        self._accesses.append(access)
        if scope is not None and not is_store:
            for state in _distinct(table[_RELEASES][units]):
                if order.acquires:
                    self._acquire(program, scope, state)
                self._loads[program].add((scope, state))
        self._check(shadow, units, access, same_bits)
        if kind == WRITE:
            table[:, units] = np.array([[number], [0], [0], [0]])
            return
        row = table[_READS if kind == READ else _STRONG]
        numbers = row[units]
        for old in _distinct(numbers):
            self._sets.append((*(n for n in self._sets[old] if not self._covers(access, n)), number))
            row[units[numbers == old]] = len(self._sets) - 1
        if kind == UPDATE and scope is not None:
            self._release(table[_RELEASES], units, access, scope, releases=order.releases, is_store=is_store)

    def deadlock(self, wait: Wait, others: Sequence[Wait]) -> KernelRuntimeError:
        """The error for a program that waits for ever, as others do: with the lines of all, and that of the last change
        of what it waits for."""
        rest = ("all others have ended", "so does one other program", f"so do {len(others)} other programs")
        place = self._location(wait.place)
        error = self._error(
            f"deadlock: {self._name(wait.program)} waits for {wait.shadow.name(wait.unit)}, "
            f"which nothing changes any more: {rest[min(len(others), 2)]}",
            place,
            "check that each signal that is waited for is sent: to the slot, and with the value, that the wait reads",
        )
        write = self._last_write(wait.shadow, wait.unit, wait.program)
        if write is not None:
            error.add(f"{self._name(write.program)} has changed it last here", self._location(write.place))
        places = {place}
        for other in others:
            if (place := self._location(other.place)) not in places:
                places.add(place)
                error.add(f"{self._name(other.program)} waits here", place)
        return error

    def _last_write(self, shadow: Shadow, unit: int, program: int) -> Access | None:
        """The last access of another program that may have changed a unit."""
        strong, write = (int(shadow.table[row, unit]) for row in (_STRONG, _WRITES))
        accesses = (self._accesses[number] for number in sorted((*self._sets[strong], write), reverse=True))
        return next((a for a in accesses if a is not None and a.writes and a.program != program), None)

    def _ordered(self, earlier: Access, program: int) -> bool:
        """Whether an access comes before the next one of a program."""
        return bool(self.clocks[program, earlier.program] >= earlier.time)

    def _covers(self, access: Access, number: int) -> bool:
        """Whether each access that races with an earlier one races with this one as well."""
        earlier = self._accesses[number]
        assert earlier is not None
        alike = (earlier.kind, earlier.scope, earlier.device) == (access.kind, access.scope, access.device)
        return alike and self._ordered(earlier, access.program)

    def _races(self, earlier: Access, access: Access) -> bool:
        if self._ordered(earlier, access.program) or not (earlier.writes or access.writes):
            return False
        if earlier.scope is None or access.scope is None:
            return True
        return not _reach(earlier.scope, earlier.device, access.scope, access.device)

    def _check(self, shadow: Shadow, units: Array, access: Access, same_bits: Callable[[], Array] | None) -> None:
        """Raise the error of the first earlier access that races with one now."""
        for row in (_WRITES, _STRONG, _READS):
            if row == _READS and not access.writes:
                continue
            numbers = shadow.table[row][units]
            for number in _distinct(numbers):
                for other in (number,) if row == _WRITES else self._sets[number]:
                    earlier = self._accesses[other]
                    if earlier is None or not self._races(earlier, access):
                        continue
                    lanes = numbers == number
                    if row == _WRITES and same_bits is not None:
                        lanes &= ~same_bits()
                    if lanes.any():
                        raise self._race(shadow, int(units[int(np.argmax(lanes))]), earlier, access)

    def _race(self, shadow: Shadow, unit: int, earlier: Access, access: Access) -> KernelRuntimeError:
        who, whom = self._name(access.program), self._name(earlier.program)
        done = _WORDS[earlier.kind][1]
        are_strong = earlier.scope is not None and access.scope is not None
        why = ", and the scope of one is too narrow" if are_strong else ", and nothing orders the two"
        message = f"{who} {_WORDS[access.kind][0]} {shadow.name(unit)}, which {whom} has {done}{why}"
        error = self._error(message, self._location(access.place), SCOPE_HINT if are_strong else HINT)
        error.add(f"it is {done} here", self._location(earlier.place))
        return error

    def _acquire(self, program: int, scope: MemScope, state: int) -> None:
        clock, device = self.clocks[program], self._devices[program]
        for (other_scope, other), released in self._releases[state].items():
            if _reach(scope, device, other_scope, other):
                np.maximum(clock, released, out=clock)

    def _release(
        self, row: Array, units: Array, access: Access, scope: MemScope, *, releases: bool, is_store: bool
    ) -> None:
        """Leave the clock of a program at units that it writes, and that of its last fence."""
        program = access.program
        clocks: list[tuple[MemScope, Array]] = [(scope, self.clocks[program].copy())] if releases else []
        if (fenced := self._fenced[program]) is not None:
            clocks.append((min(fenced[0], scope, key=_WIDTHS.index), fenced[1]))
        numbers = row[units]
        for old in _distinct(numbers):
            state = {} if is_store else dict(self._releases[old])
            for width, clock in clocks:
                key = width, access.device
                state[key] = np.maximum(state[key], clock) if key in state else clock
            self._releases.append(state)
            row[units[numbers == old]] = len(self._releases) - 1
        if releases:
            self.clocks[program, program] += 1


def _distinct(numbers: Array) -> Iterator[int]:
    """The distinct numbers of an array."""
    if numbers.size:
        yield from [int(numbers[0])] if (numbers == numbers[0]).all() else np.unique(numbers).tolist()


def _reach(scope: MemScope, device: int, other_scope: MemScope, other: int) -> bool:
    """Whether each of two accesses of different programs has a scope that includes the other's program."""
    narrower = min(scope, other_scope, key=_WIDTHS.index)
    return narrower is MemScope.SYSTEM or (narrower is MemScope.GPU and device == other)
