"""Turns of programs, of one device or of several: which program runs next, and which begin when a launch has ended."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from ziggurat.backend.launch.clocks import Clocks, Wait
from ziggurat.codemodel.errors import KernelRuntimeError


class Turn(Protocol):
    """A program that takes turns. `waits_since` is the number of changes of memory at which it has begun to wait, or
    -1."""

    number: int
    waits_since: int

    @property
    def device(self) -> int: ...


T = TypeVar("T", bound=Turn)


class Turns(Generic[T]):
    """The programs of the launches of all devices, which run one after the other on each. `active` has those that have
    not ended, of launches that have begun. The same seed gives the same order; without one, the first program that can
    run has the next turn."""

    def __init__(self, seed: int | None, devices: Iterable[int]) -> None:
        self.random = random.Random(seed)
        self._is_drawn = seed is not None
        self._weights = {device: self.random.choice((1, 4, 16)) for device in devices}
        self._queues: dict[int, list[Sequence[T]]] = {}
        self._running: dict[int, int] = {}  # By device: the programs of its launch that have not ended.
        self.programs: list[T] = []
        self.active: list[T] = []
        self.changes = 0  # Of memory, by all programs.

    def add(self, programs: Sequence[T]) -> None:
        """Add the programs of a launch, which is the last one of its device."""
        self.programs += programs
        if programs:
            device = programs[0].device
            queue = self._queues.setdefault(device, [])
            queue.append(programs)
            if len(queue) == 1:
                self._begin(device)

    def ready(self) -> list[T]:
        """The programs that do not wait for memory to change."""
        return [program for program in self.active if program.waits_since != self.changes]

    def draw(self, programs: Sequence[T]) -> T:
        """The program that has the next turn: of some devices more often than of others."""
        if not self._is_drawn:
            return programs[0]
        return self.random.choices(programs, [self._weights[program.device] for program in programs])[0]

    def happens(self, chance: float) -> bool:
        """Whether something happens that has this chance."""
        return self.random.random() < chance

    def end(self, program: T, clocks: Clocks | None) -> None:
        """Note the end of a program. After the last one of a launch, the next launch of the device begins."""
        self.active.remove(program)
        queue = self._queues[program.device]
        self._running[program.device] -= 1
        if self._running[program.device] == 0 and len(queue) > 1:
            ended = [other.number for other in queue.pop(0)]
            if clocks is not None:
                for following in queue[0]:
                    clocks.begin(following.number, ended)
            self._begin(program.device)

    def _begin(self, device: int) -> None:
        programs = self._queues[device][0]
        self._running[device] = len(programs)
        self.active += programs


def deadlock(clocks: Clocks, waits: Iterable[Wait | None], error: type[KernelRuntimeError]) -> KernelRuntimeError:
    """The error for programs that wait for ever. None of `waits` says of a program that no access is to blame."""
    first, *others = waits
    if first is None:
        return error("deadlock: a loop waits for a change of memory that no program makes")
    return clocks.deadlock(first, [other for other in others if other is not None])
