"""Launches on several devices at once, by the reference interpreter.

Each program of each device is a thread, of which one has the turn. It gives the turn away before accesses of memory,
by draws of a seed, and where it waits for others: it gets no turn then until memory has changed. The accesses of all
programs go through one `Clocks`, which finds races.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
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
)
from ziggurat.backend.reference.control import WAITS
from ziggurat.backend.reference.machine import Machine
from ziggurat.backend.reference.run import LOOP_LIMIT, PERSISTENT_CTAS, Launch, flush, run_some
from ziggurat.backend.reference.values import Array, is_array
from ziggurat.codemodel.dialects.tt import AtomicCAS, AtomicRMW, MemScope
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.printed import show
from ziggurat.codemodel.scalars import bits_of

MAX_TRIES = 32  # Ordered accesses of a program since memory has changed, after which it loses its turn.
_BY_ADDRESS = 1 << 30  # The number of an argument to which no pointer of a launch is made.
MAX_IDLE = 1 << 14  # Those of all programs, after which they are taken to wait for ever.


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


class _Cancelled(BaseException):
    """Ends a program because another one has failed."""


def run_together(launches: Sequence[QueuedLaunch], arrays: Sequence[DeviceArray], seed: int) -> None:
    """Run the launches of several devices at once, those of each device one after the other.

    The programs of all launches reach the arrays of all launches, and `arrays`, by address. The same seed gives the
    same order. Raises `KernelRuntimeError` for a race and for a deadlock, and the errors of programs.
    """
    _Turns(launches, arrays, seed).run()


class _Program:
    """A program of a launch, the thread that runs it, and the state in which it waits."""

    def __init__(self, number: int, launch: _DeviceLaunch, linear: int) -> None:
        self.number, self.launch, self.linear = number, launch, linear
        self.turn = threading.Lock()
        self.turn.acquire()
        self.thread: threading.Thread | None = None
        self.waits_since = -1  # The number of changes of memory at which it has begun to wait.
        self.tries, self.tries_since = 0, 0  # Its ordered accesses since this number of changes.
        self.last_strong: tuple[Op, Shadow, int] | None = None  # The last ordered access: the op and a unit.

    @property
    def title(self) -> str:
        return self.launch.memory.program(self.linear)

    @property
    def device(self) -> int:
        """The number of the device."""
        return self.launch.queued.device

    @property
    def times_out(self) -> bool:
        """Whether it waits for a time only."""
        return self.last_strong is not None and getattr(self.last_strong[0], "timeout", None) is not None


class _DeviceLaunch:
    """A launch that is ready to run, and its programs."""

    def __init__(self, turns: _Turns, queued: QueuedLaunch, first: int) -> None:
        self.queued = queued

        def memory(arguments: Sequence[ArrayArgument], grid: tuple[int, int, int], tolerant: bool) -> _DeviceMemory:
            own = [argument.array for argument in arguments]
            others = [
                ArrayArgument(_BY_ADDRESS, other.title, other.array)
                for other in turns.arrays
                if not any(other.array is array for array in own)
            ]
            return _DeviceMemory(turns, queued.device, [*arguments, *others], grid, tolerant)

        with queued.within():
            self.launch = Launch.of(
                queued.model, None, queued.grid, queued.values, names=queued.names, strict=queued.strict,
                tolerant=queued.tolerant, limit=LOOP_LIMIT, persistent_ctas=PERSISTENT_CTAS, kind=_DeviceMachine,
                of_memory=memory,
            )  # fmt: skip
        require_few(first + self.launch.programs, queued.title)
        self.memory: Memory = self.launch.memory
        self.memory.races = None
        self.programs = [_Program(first + linear, self, linear) for linear in range(self.launch.programs)]
        self.plans: Any = None  # The steps of the bodies, which the machines share.


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

    def __init__(self, memory: Memory, strict: bool, turns: _Turns, program: _Program) -> None:
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
        self._program.last_strong = op, shadow, int(units[0])
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


def scope_of(op: Op) -> MemScope | None:
    """The scope of a strong access; None for a weak one. A volatile one is relaxed, at system scope (PTX manual)."""
    scope = getattr(op, "scope", None)
    if isinstance(scope, MemScope):
        return scope
    return MemScope.SYSTEM if getattr(op, "volatile", False) else None


class _DeviceMachine(Machine):
    """A machine that runs one program of a device."""

    def join(self, turns: _Turns, program: _Program) -> None:
        """Run as a program of several devices."""
        self._turns, self._own = turns, program
        self.sharing = _DeviceSharing(self.memory, self.strict, turns, program)
        self._plans = program.launch.plans = program.launch.plans or self._plans

    def access(self, verb: str, op: Op, type_: Any) -> ElementAccess:
        self._turns.before_access(self._own, is_strong=scope_of(op) is not None)
        return super().access(verb, op, type_)

    def stuck(self, message: str) -> None:
        if message is WAITS:
            self._turns.wait(self._own)
        else:
            super().stuck(message)


class _Turns:
    """The programs of all devices, of which one has the turn."""

    def __init__(self, launches: Sequence[QueuedLaunch], arrays: Sequence[DeviceArray], seed: int) -> None:
        names_of_arrays = {id(a.array): a for a in arrays}
        for queued in launches:
            for name, value in zip(queued.names, queued.values, strict=True):
                array: Any = getattr(value, "host", value)
                own = names_of_arrays.get(id(array))
                if is_array(array) and (own is None or not own.name):
                    names_of_arrays[id(array)] = DeviceArray(array, name, queued.device)
        self.arrays = [*names_of_arrays.values()]
        self.turns: Turns[_Program] = Turns(seed, [queued.device for queued in launches])
        self._idle = self._idle_since = 0  # Ordered accesses of all programs since this number of changes.
        self.memories: list[Memory] = []
        self._chances = self.turns.random.choice(((0.0, 0.0), (0.2, 0.05), (1.0, 0.0), (0.6, 0.3)))
        memories = [whole(a.array) if any(q.tolerant for q in launches) else a.array for a in self.arrays]
        self.shadows = Shadows(memories, [array.title for array in self.arrays])
        for queued in launches:
            self.turns.add(_DeviceLaunch(self, queued, len(self.turns.programs)).programs)
        programs = self.turns.programs
        devices = [program.device for program in programs]
        self.clocks = Clocks(devices, lambda n: programs[n].title, lambda op: op.location, KernelRuntimeError)
        self._main = threading.Lock()
        self._failure: BaseException | None = None
        self._is_cancelled = self._is_deadlock = False

    def run(self) -> None:
        """Run everything. Raises the error of the first program that fails."""
        program = self._next(None)
        if program is None:
            return
        self._main.acquire()
        try:
            self._give(program)
            self._main.acquire()  # Until all have ended, or one has failed.
        finally:
            self._is_cancelled = True
            for program in self.turns.programs:
                if program.thread is not None and program.thread.is_alive():
                    with suppress(RuntimeError):  # It has the turn.
                        program.turn.release()
                    program.thread.join()
        if self._failure is not None:
            raise self._failure

    # Called by the program that has the turn.

    def before_access(self, program: _Program, *, is_strong: bool) -> None:
        """Give the turn away or keep it, before an access of memory."""
        if self._is_cancelled:  # The main thread was interrupted.
            raise _Cancelled
        if self.turns.changes != self._idle_since:
            self._idle, self._idle_since = 0, self.turns.changes
        if self.turns.changes != program.tries_since:
            program.tries, program.tries_since = 0, self.turns.changes
        if is_strong:
            program.tries += 1
            self._idle += 1
            if self._idle > MAX_IDLE:
                raise self._deadlock(program)
        is_tired = program.tries > MAX_TRIES
        if is_tired or self.turns.random.random() < self._chances[0 if is_strong else 1]:
            following = self._next(program if is_tired else None)
            if following is not None and following is not program:
                self._give(following)
                self._resume(program)

    def wait(self, program: _Program) -> None:
        """Give the turn away until memory has changed. Raises `KernelRuntimeError` if all programs wait."""
        program.waits_since = self.turns.changes
        following = self._next(None) or self._waiting()
        if following is not program:
            self._give(following)
            self._resume(program)
        program.waits_since = -1
        if self._is_deadlock:
            self._is_deadlock = False
            raise self._deadlock(program)

    def _resume(self, program: _Program) -> None:
        program.turn.acquire()
        if self._is_cancelled:
            raise _Cancelled

    def _next(self, tired: _Program | None) -> _Program | None:
        """The program that has the next turn, drawn among those that do not wait; another than `tired` if there is."""
        able = [program for program in self.turns.ready() if program is not tired]
        return self.turns.draw(able) if able else None

    def _waiting(self) -> _Program:
        """The program that ends its wait, when all wait: one whose time passes, if there is one."""
        self._is_deadlock = True
        return min(self.turns.active, key=lambda program: not program.times_out)

    def _give(self, program: _Program) -> None:
        if program.thread is None:
            program.thread = threading.Thread(target=self._work, args=(program,), daemon=True)
            program.thread.start()
        else:
            program.turn.release()

    def _work(self, program: _Program) -> None:
        """Run a program to its end, and hand the turn on."""
        try:
            launch = program.launch
            with launch.queued.within():
                machine = launch.launch.machine()
                assert isinstance(machine, _DeviceMachine)
                machine.join(self, program)
                run_some(machine, launch.launch, program.linear, program.linear + 1)
                flush(machine, show)
        except _Cancelled:
            return
        except BaseException as error:
            self._failure = error
        if self._failure is None:
            self.turns.end(program, self.clocks)
            if self.turns.active:
                self._give(self._next(None) or self._waiting())
                return
        self._main.release()

    def _deadlock(self, program: _Program) -> KernelRuntimeError:
        """The error for programs that wait for ever, raised in one of them."""
        others = [self._wait_of(other) for other in self.turns.active if other is not program]
        return deadlock(self.clocks, [self._wait_of(program), *others], KernelRuntimeError)

    def _wait_of(self, program: _Program) -> Wait | None:
        if program.last_strong is None:
            return None
        op, shadow, unit = program.last_strong
        return Wait(program.number, shadow, unit, op)
