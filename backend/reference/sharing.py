"""Checks of the memory that programs share.

A batch must have the result of running its programs one after the other. Each access handles its programs in order.
So a region needs no check while a single access touches it, or all accesses are reads, or all are atomics that commute.
After any other access the batch is run again with an owner for each element of the region: the first program of the
batch that touches it. If a second program touches it, the remaining programs run one at a time.

In strict mode a program must not read an element that it has written since its last barrier: on a GPU the thread that
reads it may be another than the thread that wrote it.
"""

from __future__ import annotations

import numpy as np

from ziggurat.backend.reference.memory import Access, Memory, Region, Target
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.op import Op

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
        self._written: dict[Region, Array] = {}  # For each unit, the number of its last write.
        self._writes: list[Op] = []
        self._synchronized = np.zeros(0, np.int64)  # For each program, the number of writes before its last barrier.

    def begin(self, start: int, stop: int) -> None:
        """Begin a batch of the programs `start` … `stop` - 1."""
        self.together = stop - start > 1
        self._first = start
        self._uses = {}
        if self.strict:
            self._synchronized = np.full(stop - start, len(self._writes), np.int64)

    def barrier(self, programs: Array) -> None:
        """Note a barrier of these programs."""
        if self.strict:
            self._synchronized[programs - self._first] = len(self._writes)

    def touch(self, target: Target, access: Access, use: str) -> None:
        """Note an access to elements. `use` is READ, WRITE, or the kind of an atomic that commutes with its own kind.

        Raises `Conflict` for memory that programs share, and in strict mode `KernelRuntimeError` for a missing barrier.
        """
        region = target.region
        if self.together and region not in self._owners:
            self._touch_region(region, use)
            return
        if not self.together and (not self.strict or (use == READ and region not in self._written)):
            return
        units, programs = _units(target, access)
        if self.together:
            self._claim(self._owners[region], units, programs)
        if self.strict:
            self._check_barriers(region, units, programs, access, use)

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

    def _check_barriers(self, region: Region, units: Array, programs: Array, access: Access, use: str) -> None:
        """Note a write; for a read of an element written since the last barrier, raise `KernelRuntimeError`."""
        if use != READ:
            if region not in self._written and region.units <= _MAX_UNITS:
                self._written[region] = np.zeros(region.units, np.int64)
            if region in self._written:
                self._writes.append(access.op)
                self._written[region][units] = len(self._writes)
            return
        if region not in self._written:
            return
        written = self._written[region][units]
        unseen = written > self._synchronized[programs - self._first]
        if unseen.any():
            lane = np.unravel_index(int(np.argmax(unseen)), unseen.shape)
            names = " or ".join(argument.name for argument in region.arguments)
            error = KernelRuntimeError(
                f"{self.memory.program(int(programs[lane]))} reads an element of {names} that it has written, with no "
                "barrier between",
                hint="call zg.debug_barrier() between the two: on a GPU another thread may read it than the one that "
                "wrote it",
            )
            error.add("it is written here", self._writes[int(written[lane]) - 1].location)
            raise error


def _units(target: Target, access: Access) -> tuple[Array, Array]:
    """The units that an access touches, and the program that touches each."""
    size, unit = access.dtype.itemsize, target.region.unit
    index = target.index
    index, programs = np.broadcast_arrays(index, access.programs.reshape(-1, *(1,) * (index.ndim - 1)))
    if target.lanes is not None:
        lanes = np.broadcast_to(target.lanes, index.shape)
        index, programs = index[lanes], programs[lanes]
    if size < unit:
        index = index // (unit // size)
    elif size > unit:
        index = index[..., np.newaxis] * (size // unit) + np.arange(size // unit)
        programs = programs[..., np.newaxis]
    return index, np.broadcast_to(programs, index.shape)
