"""Launches on several devices at once, by the reference interpreter.

The programs of all devices take turns (`turns`), which they also give away before accesses of memory, by draws of a
seed. The accesses of all programs go through one `Clocks`, which finds races.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch import races
from ziggurat.backend.launch.arrays import whole
from ziggurat.backend.launch.clocks import Clocks, Shadow, Shadows, Wait, require_few
from ziggurat.backend.launch.turns import Turns, deadlock
from ziggurat.backend.reference.argument_memory import (
    ArrayArgument,
    ElementAccess,
    Memory,
    RegionElements,
    Sharing,
    order_of,
    scope_of,
)
from ziggurat.backend.reference.machine import Machine
from ziggurat.backend.reference.run import LOOP_LIMIT, PERSISTENT_CTAS, Launch, flush
from ziggurat.backend.reference.turns import Program, ProgramTurns, TurningLaunch
from ziggurat.backend.reference.values import Array, is_array
from ziggurat.codemodel.dialects.tt import AtomicCAS, AtomicRMW, MemScope
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.printed import show
from ziggurat.codemodel.scalars import bits_of

_BY_ADDRESS = 1 << 30  # The number of an argument to which no pointer of a launch is made.


@attrs.frozen(eq=False)
class QueuedLaunch:
    """A launch of a model on arrays and numbers. Its programs run within the context of `within`, which gives errors
    their words. The device fills in its own number."""

    title: str
    model: Op
    grid: tuple[int, ...]
    names: Sequence[str]
    values: Sequence[Any]
    strict: bool
    tolerant: bool
    within: Callable[[], AbstractContextManager[None]]
    device: int = 0


@attrs.frozen(eq=False)
class DeviceArray:
    """An array of a device, whose address is known to all launches. An empty name gives way to a parameter's."""

    array: Array
    name: str
    device: int

    @property
    def title(self) -> str:
        """The name for messages."""
        return f"device {self.device}'s {self.name or 'array'}"


def run_together(launches: Sequence[QueuedLaunch], arrays: Sequence[DeviceArray], seed: int) -> None:
    """Run the launches of several devices at once, those of each device one after the other.

    The programs of all launches reach the arrays of all launches, and `arrays`, by address. The same seed gives the
    same order. Raises `KernelRuntimeError` for a race and for a deadlock, and the errors of programs.
    """
    _Turns(launches, arrays, seed).run()


def _programs(turns: _Turns, queued: QueuedLaunch, first: int) -> list[Program]:
    """The programs of a launch, which are ready to run; the first has this number."""

    def memory(arguments: Sequence[ArrayArgument], grid: tuple[int, int, int], tolerant: bool) -> _DeviceMemory:
        own = [argument.array for argument in arguments]
        others = [
            ArrayArgument(_BY_ADDRESS, other.title, other.array)
            for other in turns.arrays
            if not any(other.array is array for array in own)
        ]
        return _DeviceMemory(turns, queued.device, [*arguments, *others], grid, tolerant)

    with queued.within():
        launch = Launch.of(
            queued.model, None, queued.grid, queued.values, names=queued.names, strict=queued.strict,
            tolerant=queued.tolerant, limit=LOOP_LIMIT, persistent_ctas=PERSISTENT_CTAS, of_memory=memory,
        )  # fmt: skip
    require_few(first + launch.programs, queued.title)
    launch.memory.races = None
    turning = TurningLaunch(launch, queued.device, queued.within)
    return [Program(first + linear, turning, linear) for linear in range(launch.programs)]


class _DeviceMemory(Memory):
    """The memory of a launch on a device, with the arrays of all others."""

    def __init__(
        self, turns: _Turns, device: int, arguments: Sequence[ArrayArgument], grid: tuple[int, int, int], tolerant: bool
    ) -> None:
        super().__init__(arguments, grid, tolerant)
        self._turns, self._device = turns, device
        turns.memories.append(self)

    def write(self, view: Array, index: Array, values: Array) -> None:
        for memory in self._turns.memories:
            memory.changes += 1
        self._turns.turns.changes += 1
        view[index] = values

    def program(self, linear: int) -> str:
        return f"device {self._device}, {super().program(linear)}"


class _DeviceSharing(Sharing):
    """The accesses of one program, which go into the clocks of all."""

    def __init__(self, memory: Memory, strict: bool, turns: _Turns, program: Program) -> None:
        super().__init__(memory, strict)
        self._turns, self._program = turns, program

    def barrier(self, programs: Array, scope: MemScope = MemScope.CTA) -> None:
        super().barrier(programs, scope)
        if scope is not MemScope.CTA:
            self._turns.clocks.fence(self._program.number, scope)

    def touch(self, target: RegionElements, access: ElementAccess, use: str, values: Array | None = None) -> None:
        super().touch(target, access, use, values)
        shadow, offset = self._turns.shadows.of(target.region)
        shape = np.broadcast_shapes(access.shape, target.index.shape[1:])

        def lanes(array: Array) -> Array:
            wide = np.broadcast_to(array, (1, *shape))
            return wide[np.broadcast_to(target.lanes, wide.shape)] if target.lanes is not None else wide.reshape(-1)

        size, op = access.dtype.itemsize, access.op
        offsets = lanes(target.index) * size + offset
        if not offsets.size:
            return
        units = shadow.units(offsets, size)
        scope, kind = scope_of(op), races.READ if access.verb == "reads" else races.WRITE
        number, clocks, order = self._program.number, self._turns.clocks, order_of(op)
        if scope is None:

            def same_bits() -> Array:
                old = target.region.view(access.dtype).take(lanes(target.index))
                same = bits_of(old) == bits_of(lanes(values).astype(access.dtype, copy=False))  # pyright: ignore
                return np.repeat(same, len(units) // len(same))

            bits = same_bits if values is not None and kind == races.WRITE else None
            clocks.note(shadow, units, number, kind, op, same_bits=bits)
            return
        self._turns.units[self._program.number] = shadow, int(units[0])
        is_store = isinstance(op, AtomicRMW) and op.is_store
        is_load = access.verb != "updates" or (isinstance(op, AtomicRMW) and op.is_load)
        kinds = [(races.POLL if is_load else races.UPDATE, units)]
        if isinstance(op, AtomicCAS) and values is not None:
            # A swap that fails is a load.
            old = target.region.view(access.dtype).take(lanes(target.index))
            swaps = np.repeat(bits_of(old) == bits_of(lanes(values)), len(units) // len(old))
            kinds = [(races.UPDATE, units[swaps]), (races.POLL, units[~swaps])]
        for kind, part in kinds:
            if part.size:
                clocks.note(shadow, part, number, kind, op, order=order, scope=scope, is_store=is_store)


class _Turns(ProgramTurns):
    """The programs of all devices, of which one has the turn. `units` has what each program has last accessed strongly,
    by its number."""

    def __init__(self, launches: Sequence[QueuedLaunch], arrays: Sequence[DeviceArray], seed: int) -> None:
        names_of_arrays = {id(a.array): a for a in arrays}
        for queued in launches:
            for name, value in zip(queued.names, queued.values, strict=True):
                array: Any = getattr(value, "host", value)
                own = names_of_arrays.get(id(array))
                if is_array(array) and (own is None or not own.name):
                    names_of_arrays[id(array)] = DeviceArray(array, name, queued.device)
        self.arrays = [*names_of_arrays.values()]
        super().__init__(Turns(seed, [queued.device for queued in launches]))
        self.units: dict[int, tuple[Shadow, int]] = {}
        self.memories: list[Memory] = []
        self.chances = self.turns.random.choice(((0.0, 0.0), (0.2, 0.05), (1.0, 0.0), (0.6, 0.3)))
        memories = [whole(a.array) if any(q.tolerant for q in launches) else a.array for a in self.arrays]
        self.shadows = Shadows(memories, [array.title for array in self.arrays])
        for queued in launches:
            self.turns.add(_programs(self, queued, len(self.turns.programs)))
        programs = self.turns.programs
        devices = [program.device for program in programs]
        self.clocks = Clocks(devices, lambda n: programs[n].title, lambda op: op.location, KernelRuntimeError)

    def join(self, machine: Machine, program: Program) -> None:
        super().join(machine, program)
        machine.sharing = _DeviceSharing(machine.memory, machine.strict, self, program)

    def print(self, machine: Machine) -> None:
        flush(machine, show)

    def deadlock(self, program: Program) -> KernelRuntimeError:
        others = [self._wait_of(other) for other in self.turns.active if other is not program]
        return deadlock(self.clocks, [self._wait_of(program), *others], KernelRuntimeError)

    def _wait_of(self, program: Program) -> Wait | None:
        if program.last_strong is None or program.number not in self.units:
            return None
        return Wait(program.number, *self.units[program.number], program.last_strong)
