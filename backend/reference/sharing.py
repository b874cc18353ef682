"""Checks of the memory that programs share.

A batch must have the result of running its programs one after the other. Each access handles its programs in order.
So a region needs no check while a single access touches it, or all accesses are reads, or all are atomics that commute.
After any other access the batch is run again with an owner for each element of the region: the first program of the
batch that touches it. If a second program touches it, the remaining programs run one at a time.

In strict mode a program must not read an element that it has written since its last barrier, nor write an element that
another position of a tensor has read: on a GPU these may be two threads, which run in any order. Two tensors have the
same positions if their shapes differ in axes of size 1 only.
"""

from __future__ import annotations

import math

import numpy as np

from ziggurat.backend.reference.memory import Access, Memory, Region, Target
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import MAX_ELEMENTS

READ, WRITE = "read", "write"
_MAX_UNITS = 1 << 28  # Units of a region whose elements are given owners; 4 bytes are needed for each.


class Conflict(Exception):
    """Programs of a batch share memory. With `again`, the batch is to be run again with owners of elements."""

    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.again = again


class Sharing:
    """The accesses of a batch up to now."""

    def __init__(self, memory: Memory, strict: bool) -> None:
        self.memory = memory
        self.strict = strict
        self.together = False
        self._first = 0
        self._uses: dict[Region, str] = {}
        self._owners: dict[Region, Array] = {}
        # In strict mode, for each unit of a region, by the numbers of accesses: the last write, the first read since
        # the barrier, the position that reads, and a read since then from another position.
        self._histories: dict[Region, Array] = {}
        self._accesses: list[Op] = []
        self._synchronized = np.zeros(0, np.int64)  # For each program, the number of accesses before its last barrier.
        self._shapes: dict[tuple[int, ...], int] = {}  # Shapes by number, without axes of size 1.

    def begin(self, start: int, stop: int) -> None:
        """Begin a batch of the programs `start` … `stop` - 1."""
        self.together = stop - start > 1
        self._first = start
        self._uses = {}
        if self.strict:
            self._synchronized = np.full(stop - start, len(self._accesses), np.int64)

    def barrier(self, programs: Array) -> None:
        """Note a barrier of these programs."""
        if self.strict:
            self._synchronized[programs - self._first] = len(self._accesses)

    def touch(self, target: Target, access: Access, use: str) -> None:
        """Note an access to elements. `use` is READ, WRITE, or the kind of an atomic that commutes with its own kind.

        Raises `Conflict` for memory that programs share, and in strict mode `KernelRuntimeError` for a missing barrier.
        """
        region = target.region
        if self.together and region not in self._owners:
            self._touch_region(region, use)
            return
        if not self.together and not self.strict:
            return
        units, programs, *positions = self._units(target, access)
        if self.together:
            self._claim(self._owners[region], units, programs)
        if self.strict and region.units <= _MAX_UNITS:
            self._check_barriers(region, access, use, units, programs, *positions)

    def _touch_region(self, region: Region, use: str) -> None:
        seen = self._uses.get(region)
        if seen is None:
            self._uses[region] = use
        elif seen != use or use == WRITE:
            if region.units > _MAX_UNITS:
                raise Conflict
            self._owners[region] = np.full(region.units, -1, np.int32)
            raise Conflict(again=True)

    def _claim(self, owners: Array, units: Array, programs: Array) -> None:
        held = owners[units]
        if ((held >= self._first) & (held != programs)).any():
            raise Conflict
        owners[units] = programs
        if (owners[units] != programs).any():  # Two programs touch one element at once.
            raise Conflict

    def _check_barriers(
        self, region: Region, access: Access, use: str, units: Array, programs: Array, positions: Array
    ) -> None:
        """Note an access. Raise `KernelRuntimeError` for a read of an element written since the last barrier, and for a
        store to an element that another position has read since."""
        if region not in self._histories:
            self._histories[region] = np.zeros((4, region.units), np.int64)
        written, read, position, elsewhere = self._histories[region]
        since = self._synchronized[programs - self._first]
        before: Array = written[units]
        verb, done = "reads", "written"
        if use != READ:
            before = read[units]
            mine = position[units] == positions
            before[mine] = elsewhere[units][mine]
            verb, done = "writes", "read at another position"
        if access.verb != "updates" and (unseen := before > since).any():
            lane = np.unravel_index(int(np.argmax(unseen)), unseen.shape)
            names = " or ".join(argument.name for argument in region.arguments)
            error = KernelRuntimeError(
                f"{self.memory.program(int(programs[lane]))} {verb} an element of {names} that it has {done}, with no "
                "barrier between",
                hint="call zg.debug_barrier() between the two: on a GPU these may be two threads, which run in any "
                "order",
            )
            error.add(f"it is {done.split()[0]} here", self._accesses[int(before[lane]) - 1].location)
            raise error
        self._accesses.append(access.op)
        number = len(self._accesses)
        if use != READ:
            written[units] = number
            return
        first = read[units] <= since
        position[units[first]] = positions[first]
        read[units[first]] = number
        elsewhere[units[position[units] != positions]] = number

    def _units(self, target: Target, access: Access) -> list[Array]:
        """The units that an access touches, the program that touches each, and in strict mode the position."""
        size, unit = access.dtype.itemsize, target.region.unit
        shape = access.shape if self.strict else target.index.shape[1:]
        found = [target.index, access.programs.reshape(-1, *(1,) * len(shape))]
        if self.strict:
            sides = tuple(side for side in shape if side != 1)
            number = self._shapes.setdefault(sides, len(self._shapes))
            found.append(np.arange(math.prod(shape)).reshape(shape) + number * MAX_ELEMENTS)
        found = [np.broadcast_to(array, (len(access.programs), *shape)) for array in found]
        if target.lanes is not None:
            lanes = np.broadcast_to(target.lanes, found[0].shape)
            found = [array[lanes] for array in found]
        if size < unit:
            found[0] = found[0] // (unit // size)
        elif size > unit:
            parts = size // unit
            found = [np.repeat(array, parts) for array in found]
            found[0] = found[0] * parts + np.tile(np.arange(parts), len(found[0]) // parts)
        return found
