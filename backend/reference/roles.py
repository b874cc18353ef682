"""Warp roles, and the ops by which they wait for each other: channels before `lower_channels`, mbarriers after it.

Roles run as coroutines. A role runs until it waits for another one, or frees something that another one may wait for.
Then a role that can go on runs, the last one first: it is the producer, which so fills each slot as early as it may. A
role that frees a slot too early finds it overwritten. Where no role can go on, they wait for each other for ever, which
is an error.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.shared_memory import SharedBuffer
from ziggurat.backend.reference.values import Array, Frame
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.scope import scope_of
from ziggurat.codemodel.op import Body, Op
from ziggurat.codemodel.subnormals import keep_subnormals

Operands = tuple[Any, ...]
Condition = Callable[[], bool]


class _Stopped(BaseException):
    """Another process has failed."""


@attrs.define(eq=False)
class _Process:
    """A process: whether it can go on, and the op at which it waits otherwise."""

    task: Callable[[], Any]
    ready: Condition
    op: Op
    done: bool = False
    error: BaseException | None = None
    resumed: SimpleQueue[None] = attrs.field(factory=SimpleQueue[None])
    thread: threading.Thread = attrs.field(init=False)


class Schedule:
    """Processes of which one runs at a time, each in a thread of its own: warp roles, or the CTAs of a cluster and
    their roles."""

    def __init__(self) -> None:
        self._processes: list[_Process] = []
        self._current: _Process | None = None
        self._paused = SimpleQueue[None]()
        self._stopped = False

    def run(self, machine: Machine, op: Op, tasks: Sequence[Callable[[], Any]]) -> None:
        """Run tasks of an op to their ends, earlier ones first. Raises the error of the first one that fails. A process
        of this schedule waits for its tasks, which come before the processes after it."""
        processes = [_Process(task, lambda: True, op) for task in tasks]
        place = 0 if self._current is None else self._processes.index(self._current) + 1
        self._processes[place:place] = processes
        for process in processes:
            context = contextvars.copy_context()
            process.thread = threading.Thread(target=context.run, args=(self._run, process), daemon=True)
            process.thread.start()
        if self._current is not None:
            self.pause(machine, op, lambda: all(process.done for process in processes))
            return
        frame = machine.frame
        try:
            while waiting := [process for process in self._processes if not process.done]:
                process = next((process for process in waiting if process.ready()), None)
                if process is None:
                    raise _endless(machine, waiting[0].op, "roles wait for each other")
                self._current = process
                process.resumed.put(None)
                self._paused.get()
                if process.error is not None:
                    raise process.error
        finally:
            self._stopped = True
            for process in self._processes:
                process.resumed.put(None)
                process.thread.join()
            machine.frame = frame

    @keep_subnormals()
    def _run(self, process: _Process) -> None:
        process.resumed.get()
        try:
            if not self._stopped:
                with np.errstate(all="ignore"):
                    process.task()
        except BaseException as error:
            process.error = error
        process.done = True
        self._paused.put(None)

    def pause(self, machine: Machine, op: Op, ready: Condition) -> None:
        """Let other processes run, and go on when the condition holds."""
        process, frame = self._current, machine.frame
        assert process is not None
        process.op, process.ready = op, ready
        self._paused.put(None)
        process.resumed.get()
        if self._stopped:
            raise _Stopped
        machine.frame = frame


def _endless(machine: Machine, op: Op, reason: str) -> KernelRuntimeError:
    return KernelRuntimeError(f"{machine.program(0)}: {reason}: {op.NAME} never ends", op.location)


def wait(machine: Machine, op: Op, ready: Condition) -> None:
    """Let the other roles run until the condition holds."""
    if ready():
        return
    if machine.schedule is None:
        raise _endless(machine, op, "no other role can run")
    machine.schedule.pause(machine, op, ready)


def _let_others_run(machine: Machine, op: Op) -> None:
    if machine.schedule is not None:
        machine.schedule.pause(machine, op, lambda: True)


def running(machine: Machine, predicate: Array | None) -> Frame | None:
    """The CTAs of the frame for which a predicate holds; None if there are none."""
    if predicate is None or predicate.all():
        return machine.frame
    return machine.frame.part(np.flatnonzero(predicate)) if predicate.any() else None


@triton.of(gpu.WarpSpecialize)
def _warp_specialize(machine: Machine, op: gpu.WarpSpecialize, operands: Operands) -> None:
    outer, frame = machine.schedule, machine.frame
    machine.schedule = outer or Schedule()
    try:
        tasks = [functools.partial(machine.run_in, body, (), frame) for body in reversed(op.roles)]
        machine.schedule.run(machine, op, tasks)
    finally:
        machine.schedule = outer


# Channels: for each row of the machine, numbers of slots since the kernel's start.


@attrs.define(eq=False)
class _Reader:
    """The slots that a role has waited for, and those of them that it has released."""

    waited: Array
    released: Array


@attrs.define(eq=False)
class ChannelSlots:
    """The slots of a channel that are acquired and committed, and those of each role that reads them."""

    stages: int
    acquired: Array
    committed: Array
    readers: dict[Body | None, _Reader]
    ctas: int  # Those that fill its slots together.

    def is_free(self, rows: Array, number: Array) -> bool:
        """Whether all readers have released the slots with some numbers, in some CTAs."""
        released = [reader.released[rows] for reader in self.readers.values()]
        return all(bool((count > number - self.stages).all()) for count in released)

    def next_slot(self, op: gpu.ChannelWait) -> Array:
        """The number of the slot that the role of an op waits for next, in each CTA."""
        return self.readers[_role_of(op)].waited


def _role_of(op: Op) -> Body | None:
    """The role that an op stands in; None outside of roles."""
    for inner, outer in itertools.pairwise(op.path()):
        if isinstance(outer, gpu.WarpSpecialize) and inner.parent is not None:
            return inner.parent.parent
    return None


@triton.of(gpu.Channel)
def _channel(machine: Machine, op: gpu.Channel, operands: Operands) -> ChannelSlots:
    def zeros() -> Array:
        return np.zeros(len(machine.shared), np.int64)

    waits = [user for user in op.result.uses if isinstance(user, gpu.ChannelWait)]
    readers = {_role_of(user): _Reader(zeros(), zeros()) for user in waits}
    return ChannelSlots(op.stages, zeros(), zeros(), readers, op.ctas)


@triton.of(gpu.ChannelAcquire)
def _acquire(machine: Machine, op: gpu.ChannelAcquire, operands: Operands) -> Array:
    channel, rows = operands[0], machine.frame.keys
    number = channel.acquired[rows]
    wait(machine, op, lambda: channel.is_free(rows, number))
    channel.acquired[rows] = number + 1
    return (number % channel.stages).astype(np.int32)


@triton.of(gpu.ChannelCommit)
def _commit(machine: Machine, op: gpu.ChannelCommit, operands: Operands) -> None:
    channel, rows = operands[0], machine.frame.keys
    channel.committed[rows] = channel.acquired[rows]


@triton.of(gpu.ChannelWait)
def _wait(machine: Machine, op: gpu.ChannelWait, operands: Operands) -> Array:
    channel, rows = operands[0], machine.frame.keys
    reader = channel.readers[_role_of(op)]
    number = reader.waited[rows]
    wait(machine, op, lambda: bool((channel.committed[rows] > number).all()))
    reader.waited[rows] = number + 1
    return (number % channel.stages).astype(np.int32)


@triton.of(gpu.ChannelRelease)
def _release(machine: Machine, op: gpu.ChannelRelease, operands: Operands) -> None:
    channel, rows = operands[0], machine.frame.keys
    reader = channel.readers[_role_of(op)]
    reader.released[rows] = np.maximum(reader.released[rows], reader.waited[rows] - op.held)
    _let_others_run(machine, op)


# Mbarriers.


@attrs.define(eq=False)
class Mbarriers:
    """The mbarriers of an allocation, in arrays with the axes (CTA, slot).

    `missing` and `bytes` are the arrivals and the bytes that the phase still waits for, and `phases` is the number of
    phases that have ended.
    """

    arrivals: int
    missing: Array
    bytes: Array
    phases: Array

    def arrive(self, place: Any, count: int, size: int = 0) -> None:
        """Arrive so often at some mbarriers, whose phase then waits for further bytes."""
        self.missing[place] -= count
        self.complete(place, -size)

    def complete(self, place: Any, size: int) -> None:
        """Count bytes that have come."""
        self.bytes[place] -= size
        if (self.missing < 0).any():
            raise KernelRuntimeError(f"an mbarrier for {self.arrivals} arrivals a phase has more of them")
        over = (self.missing == 0) & (self.bytes == 0)
        self.phases += over
        self.missing[over] = self.arrivals


def mbarriers_of(buffer: SharedBuffer) -> Mbarriers:
    """The mbarriers of a buffer."""
    mbarriers = buffer.allocation.mbarriers
    if mbarriers is None:
        raise KernelRuntimeError("the mbarrier is used before its initialisation, or after gpu.mbarrier_inval")
    return mbarriers


def complete_bytes(machine: Machine, barrier: Any, frame: Frame, size: int) -> None:
    """Count the bytes of a copy at its mbarrier. The loads of a channel are complete in their order, without counts."""
    if isinstance(barrier, SharedBuffer):
        mbarriers_of(barrier).complete(barrier.place(frame), size)


@triton.of(gpu.MbarrierInit)
def _init(machine: Machine, op: gpu.MbarrierInit, operands: Operands) -> None:
    allocation = operands[0].allocation
    missing, size, phases = (np.zeros(allocation.elements.shape[:2], np.int64) for _ in range(3))
    allocation.mbarriers = Mbarriers(op.arrivals, missing + op.arrivals, size, phases)


@triton.of(gpu.MbarrierInval)
def _inval(machine: Machine, op: gpu.MbarrierInval, operands: Operands) -> None:
    mbarriers_of(operands[0])
    operands[0].allocation.mbarriers = None


@triton.of(gpu.MbarrierExpect)
def _expect(machine: Machine, op: gpu.MbarrierExpect, operands: Operands) -> None:
    barrier, *predicate = operands
    frame = running(machine, predicate[0] if predicate else None)
    if frame is not None:
        mbarriers_of(barrier).arrive(barrier.place(frame), 1, op.bytes)


@triton.of(gpu.MbarrierArrive)
def _arrive(machine: Machine, op: gpu.MbarrierArrive, operands: Operands) -> None:
    barrier, predicate = operands
    arrive(machine, op, [barrier] * op.ctas, predicate)


def arrive(machine: Machine, op: gpu.MbarrierArrive, barriers: Sequence[SharedBuffer], predicate: Array) -> None:
    """Arrive at mbarriers where a condition holds; those may be of other CTAs."""
    frame, scope = running(machine, predicate), scope_of(op)
    if frame is not None:
        for barrier in barriers:
            count = scope.warps if op.each_warp else scope.warp_groups
            mbarriers_of(barrier).arrive(barrier.place(frame), count)
        _let_others_run(machine, op)


@triton.of(gpu.MbarrierWait)
def _wait_for_phase(machine: Machine, op: gpu.MbarrierWait, operands: Operands) -> None:
    barrier, parity = operands
    mbarriers, place = mbarriers_of(barrier), barrier.place(machine.frame)
    wait(machine, op, lambda: bool((mbarriers.phases[place] % 2 != parity).all()))
