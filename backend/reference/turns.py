"""Programs that take turns: each is a thread, of which one runs, and gives the turn away where it waits for others.

So run the programs of several devices (`devices`), and those of one launch from the first one that waits for a later
one. A program that waits gets no turn until memory has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import attrs

from ziggurat.backend.launch.turns import Turns
from ziggurat.backend.reference.argument_memory import scope_of
from ziggurat.backend.reference.machine import Machine
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.subnormals import keep_subnormals

MAX_TRIES = 32  # Polls of a program since memory has changed, after which it loses its turn.
MAX_IDLE = 1 << 14  # Those of all programs, after which they are taken to wait for ever.
MAX_THREADS = 4096  # Programs that have begun and not ended.


class Cancelled(BaseException):
    """Ends a program because another one has failed."""


@attrs.define(eq=False)
class TurningLaunch:
    """A launch whose programs take turns, within the context of `within`. `plans` are the steps of the bodies, which
    the machines share."""

    launch: Any
    device: int = 0
    within: Callable[[], AbstractContextManager[None]] = nullcontext
    plans: Any = None


class Program:
    """A program of a launch, the thread that runs it, and the state in which it waits."""

    def __init__(self, number: int, launch: TurningLaunch, linear: int) -> None:
        self.number, self.launch, self.linear = number, launch, linear
        self.turn = threading.Lock()
        self.turn.acquire()
        self.thread: threading.Thread | None = None
        self.waits_since = -1  # The number of changes of memory at which it has begun to wait.
        self.tries, self.tries_since = 0, 0  # Its polls since this number of changes.
        self.last_strong: Op | None = None  # The last ordered access.

    @property
    def title(self) -> str:
        return self.launch.launch.memory.program(self.linear)

    @property
    def device(self) -> int:
        """The number of the device."""
        return self.launch.device

    @property
    def times_out(self) -> bool:
        """Whether it waits for a time only."""
        return getattr(self.last_strong, "timeout", None) is not None


class ProgramTurns:
    """Programs, of which one has the turn. `chances` are those that a program gives its turn away before a strong and
    before a weak access; `clocks` are the clocks of `turns`, if there are any."""

    chances = 0.0, 0.0
    clocks: Any = None

    def __init__(self, turns: Turns[Program]) -> None:
        self.turns = turns
        self._idle = self._idle_since = 0  # Polls of all programs since this number of changes.
        self._main = threading.Lock()
        self._failure: BaseException | None = None
        self._is_cancelled = self._is_deadlock = False

    def join(self, machine: Machine, program: Program) -> None:
        """Let a machine run a program."""
        machine.turn = Turn(self, program)

    def deadlock(self, program: Program) -> KernelRuntimeError:
        """The error for programs that wait for ever, raised in one of them."""
        others = [other for other in self.turns.active if other is not program]
        rest = ("all others have ended", "so does one other program", f"so do {len(others)} other programs")
        error = KernelRuntimeError(
            f"deadlock: {program.title} waits for a change of memory that nothing makes any more: "
            f"{rest[min(len(others), 2)]}"
        )
        places = [None if other.last_strong is None else other.last_strong.location for other in others]
        for place in dict.fromkeys(place for place in places if place is not None):
            error.add(f"{others[places.index(place)].title} waits here", place)
        return error

    def print(self, machine: Machine) -> None:
        """Show what a program that has ended has printed."""
        raise NotImplementedError

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

    def before_access(self, program: Program, op: Op, *, is_poll: bool) -> None:
        """Give the turn away or keep it, before an access of memory. A poll is one that was made before, and memory has
        not changed meanwhile."""
        if self._is_cancelled:  # The main thread was interrupted.
            raise Cancelled
        if self.turns.changes != self._idle_since:
            self._idle, self._idle_since = 0, self.turns.changes
        if self.turns.changes != program.tries_since:
            program.tries, program.tries_since = 0, self.turns.changes
        is_strong = scope_of(op) is not None
        if is_strong:
            program.last_strong = op
        if is_poll:
            program.tries += 1
            self._idle += 1
            if self._idle > MAX_IDLE:
                raise self.deadlock(program)
        is_tired = program.tries > MAX_TRIES
        if is_tired or self.turns.happens(self.chances[0 if is_strong else 1]):
            following = self._next(program if is_tired else None)
            if following is not None and following is not program:
                self._give(following)
                self._resume(program)

    def wait(self, program: Program) -> None:
        """Give the turn away until memory has changed. Raises `KernelRuntimeError` if all programs wait."""
        program.waits_since = self.turns.changes
        following = self._next(None) or self._waiting()
        if following is not program:
            self._give(following)
            self._resume(program)
        program.waits_since = -1
        if self._is_deadlock:
            self._is_deadlock = False
            raise self.deadlock(program)

    def _resume(self, program: Program) -> None:
        program.turn.acquire()
        if self._is_cancelled:
            raise Cancelled

    def _next(self, tired: Program | None) -> Program | None:
        """The program that has the next turn, drawn among those that do not wait; another than `tired` if there is."""
        able = [program for program in self.turns.ready() if program is not tired]
        return self.turns.draw(able) if able else None

    def _waiting(self) -> Program:
        """The program that ends its wait, when all wait: one whose time passes, if there is one."""
        self._is_deadlock = True
        return min(self.turns.active, key=lambda program: not program.times_out)

    def _give(self, program: Program) -> None:
        if program.thread is not None:
            program.turn.release()
            return
        threads = sum(other.thread is not None for other in self.turns.active)
        if threads < MAX_THREADS:
            program.thread = threading.Thread(target=self._work, args=(program,), daemon=True)
            with suppress(RuntimeError):  # Limits of the process, or of its container.
                program.thread.start()
                return
            program.thread = None
        what = f"at most {threads} programs can wait for each other by the interpreter here"
        raise LaunchError(what, hint="launch fewer programs")

    def _work(self, program: Program) -> None:
        """Run a program to its end, and hand the turn on."""
        from ziggurat.backend.reference.run import run_some

        try:
            launch = program.launch
            with launch.within(), keep_subnormals():
                machine: Machine = launch.launch.machine()
                machine.share_plans(launch)
                self.join(machine, program)
                run_some(machine, launch.launch, program.linear, program.linear + 1)
                self.print(machine)
            self.turns.end(program, self.clocks)
            if self.turns.active:
                self._give(self._next(None) or self._waiting())
                return
        except Cancelled:
            return
        except BaseException as error:
            self._failure = error
        self._main.release()


@attrs.frozen(eq=False)
class Turn:
    """The part of a program in `ProgramTurns`, for the machine that runs it."""

    turns: ProgramTurns
    program: Program

    @property
    def changes(self) -> int:
        """The number of changes of memory by all programs."""
        return self.turns.turns.changes

    def before_access(self, op: Op, *, is_poll: bool) -> None:
        self.turns.before_access(self.program, op, is_poll=is_poll)

    def wait(self) -> None:
        self.turns.wait(self.program)


class _InOrder(ProgramTurns):
    """The programs of one launch from a number on. The first one that can run has the turn."""

    def __init__(self, launch: TurningLaunch, start: int, total: int) -> None:
        super().__init__(Turns(None, [0]))
        self.turns.add([Program(linear - start, launch, linear) for linear in range(start, total)])
        launch.launch.memory.turns = self.turns
        self.printed: list[tuple[int, str]] = []

    def print(self, machine: Machine) -> None:
        self.printed += machine.printed


def run_in_turns(launch: Any, start: int, total: int, show: Callable[[str], None]) -> None:
    """Run the programs `start` … `total` - 1 of a launch: each until it waits for a change of memory, or ends. If one
    fails, they run once more, with machines that look for overflows."""
    launch.memory.record()
    try:
        turns = _InOrder(TurningLaunch(launch), start, total)
        turns.run()
    except KernelRuntimeError:
        launch.memory.take_back()
        turns = _InOrder(TurningLaunch(launch.looking_for_overflows()), start, total)
        turns.run()
    for _, text in sorted(turns.printed, key=lambda item: item[0]):
        show(text)
