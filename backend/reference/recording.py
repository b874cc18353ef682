"""The run of one program as a debugger sees it: the places where it could stop, and the memory at each of them.

Programs are deterministic, and their values never change. So a program is run once, and its `Recording` keeps the
operands of each `debug.stop` that it comes to, and from the journal of the memory what each write has replaced. Going
to a place, forward or back, applies that part of the journal and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.reference.argument_memory import ArrayArgument, Memory
from ziggurat.backend.reference.machine import Machine
from ziggurat.backend.reference.run import Launch, run_all, run_some
from ziggurat.backend.reference.values import Array, is_array, is_tuple, plain
from ziggurat.codemodel.dialects import debug
from ziggurat.codemodel.errors import KernelRuntimeError, ZigguratError
from ziggurat.codemodel.interpret import Step
from ziggurat.codemodel.op import Body, Op
from ziggurat.codemodel.subnormals import keep_subnormals

MAX_BYTES = 1 << 28  # Of the values that a recording holds, and of the copies of memory that a timeline holds.
MAX_POINTS = 1 << 20


@attrs.define(eq=False)
class Point:
    """A place that a program came to: a `debug.stop` with the contents of its operands, None unless it `keeps` them.

    `callers` are the places of the calls that led there, the outermost first, and `call` is the number of the last
    call. `writes` and `prints` are the numbers of
    writes to memory and of printed texts before it.
    """

    op: debug.Stop
    contents: tuple[Any, ...] | None
    callers: tuple[Point, ...]
    call: int
    writes: int
    prints: int
    keeps: bool


class _Recorder(Machine):
    """A machine that records the places to which the program comes."""

    def __init__(self, *arguments: Any, recording: Recording, first: int, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.recording = recording
        self.first = first
        self.calls: list[Point | None] = []
        self.numbers: list[int] = []
        self.count = 0
        self.arrays: set[int] = set()
        self.bytes = 0

    def stop(self, op: debug.Stop, contents: tuple[Any, ...]) -> None:
        points, journal = self.recording.points, self.memory.journal
        if len(self.frame) > self.ctas:
            return  # Elements of a tensor, which a reduction combines.
        if len(points) >= MAX_POINTS:
            raise KernelRuntimeError(
                f"{self.program(0)} has more than {MAX_POINTS} statements, too many for a debugger"
            )
        keeps = len(points) >= self.first and self.bytes < MAX_BYTES
        if keeps:
            arrays = {id(array): array.nbytes for content in contents for array in _arrays(content)}
            self.bytes += sum(size for identity, size in arrays.items() if identity not in self.arrays)
            self.arrays.update(arrays)
        callers = tuple(point for point in self.calls[:-1] if point is not None)
        for point in callers if keeps else ():
            point.keeps = True
        self._leave(self.calls[-1])
        self.calls[-1] = Point(op, contents, callers, self.numbers[-1], len(journal), len(self.printed), keeps)
        points.append(self.calls[-1])

    def _leave(self, point: Point | None) -> None:
        """Forget the contents of a place that no other one needs."""
        if point is not None and not point.keeps:
            point.contents = None

    def call(self, body: Body, arguments: Any) -> tuple[Any, ...]:
        self.calls.append(None)
        self.numbers.append(self.count)
        self.count += 1
        try:
            return super().call(body, arguments)
        finally:
            self._leave(self.calls.pop())
            self.numbers.pop()

    def perform(self, step: Step) -> Any:
        writers, journal = self.recording.writers, self.memory.journal
        try:
            return super().perform(step)
        finally:
            if len(writers) < len(journal):
                writers += [step.op] * (len(journal) - len(writers))


def _arrays(content: Any) -> Iterator[Array]:
    content = plain(content)
    if is_tuple(content):
        for part in content:
            yield from _arrays(part)
    elif is_array(content):
        yield content


class Recording:
    """The run of one program from the state of the memory at its beginning. `error` is what has ended it, if it failed.

    `points` are the places that the program came to, `writers` the ops of the writes in the journal, and `prints` the
    printed texts. The memory is that of the place to which `move` has gone last: after the run, of its end.
    """

    def __init__(self, launch: Launch, program: int) -> None:
        self.launch, self.program = launch, program
        self.memory: Memory = launch.memory
        self.points: list[Point] = []
        self.writers: list[Op] = []
        self.prints: list[str] = []
        self.error: ZigguratError | None = None
        self._record(0)

    @keep_subnormals()
    def _record(self, first: int) -> None:
        """Run the program. The contents of places are kept from number `first` on, as far as there is memory."""
        self.points, self.writers, self.error = [], [], None
        self.memory.record()
        arguments = self.launch.machine
        machine = _Recorder(*arguments.args, recording=self, first=first, **arguments.keywords)
        try:
            run_some(machine, self.launch, self.program, self.program + 1)
        except ZigguratError as error:
            self.error = error
        self.prints = [text for _, text in machine.printed]
        self.journal = self.memory.journal
        self.writes = len(self.journal)

    def move(self, writes: int) -> None:
        """Bring the memory to the state after so many writes."""
        while self.writes != writes:
            back = writes < self.writes
            number = self.writes - 1 if back else self.writes
            view, index, other = self.journal[number]
            self.journal[number] = view, index, view[index]
            view[index] = other
            self.writes += -1 if back else 1

    def at(self, number: int) -> Point:
        """A place with its contents; the memory becomes that of the place. A place whose contents are not kept is
        recorded again, and the places around it."""
        if self.points[number].contents is None:
            count = sum(point.contents is not None for point in self.points)
            self.move(0)
            self._record(max(0, number - count // 2))
            if self.points[number].contents is None:
                self.move(0)
                self._record(number)
        point = self.points[number]
        self.move(point.writes)
        return point

    def writes_of(self, argument: ArrayArgument, offset: int, start: int, stop: int) -> Iterator[int]:
        """The numbers of the writes from `start` to `stop` that have set an element, at an offset in bytes from the
        first element of an argument."""
        sets = _setting(self.memory, argument, offset)
        return (number for number in range(start, stop) if sets(self.journal[number]))


def _setting(memory: Memory, argument: ArrayArgument, offset: int) -> Callable[[tuple[Array, Array, Array]], bool]:
    """Whether a write of the journal has set an element, at an offset in bytes from an argument's first element."""
    region = memory.region_of[argument.number]
    low = argument.address + offset - region.base
    high = low + argument.array.itemsize - 1

    def sets(write: tuple[Array, Array, Array]) -> bool:
        view, index, _ = write
        inside = region.owns(view) and (index >= low // view.itemsize) & (index <= high // view.itemsize)
        return bool(np.any(inside))

    return sets


class Timeline:
    """The programs of a launch one after the other, of which one is recorded.

    The memory is a copy, unless the launch happens `in_place`. Copies of it are kept at the beginning of some programs:
    to go back to a program, those from the nearest copy on are run again.
    """

    def __init__(self, launch: Launch, *, in_place: bool = False) -> None:
        self.launch = launch
        self.recording: Recording | None = None
        self.in_place = in_place
        self._at = 0  # The memory is that of the beginning of this program, if none is recorded.
        self._copies: dict[int, list[Array]] = {}
        if not in_place:
            launch.memory.detach()
            self._copies[0] = self._copy()

    def _copy(self) -> list[Array]:
        return [region.bytes.copy() for region in self.launch.memory.regions]

    def record(self, program: int) -> Recording:
        """The recording of a program; its errors are in it. Raises the error of a program before it."""
        recording = self.recording
        if recording is not None and recording.program == program:
            return recording
        if recording is not None and program == recording.program + 1 and recording.error is None:
            recording.move(len(recording.journal))
        elif not self.in_place:
            self._reach(program)
        self.recording = Recording(self.launch, program)
        return self.recording

    def _reach(self, program: int) -> None:
        """Bring the memory to the beginning of a program, and keep copies at halves of the way."""
        at = max(start for start in self._copies if start <= program)
        if self.recording is not None or not at <= self._at <= program:
            self._at = at
            for region, content in zip(self.launch.memory.regions, self._copies[at], strict=False):
                region.bytes[:] = content
        self.recording = None
        while self._at < program:
            self._run((self._at + program + 1) // 2)
            copies = self._copies
            if self._at not in copies and sum(array.nbytes for array in copies[0]) * (len(copies) + 1) <= MAX_BYTES:
                copies[self._at] = self._copy()

    def _run(self, program: int, after: Callable[[], None] | None = None) -> None:
        """Run the programs up to one."""
        start, self._at = self._at, -1  # Of no program, if one fails.
        run_all(self.launch, start, program, show=lambda _: None, after=after)
        self._at = program

    def writers(self, argument: ArrayArgument, offset: int) -> Iterator[Recording]:
        """The recordings of the programs that write an element, in their order, up to one that fails.

        Batches of programs are run, and halves of those that write the element again.
        """
        sets = _setting(self.launch.memory, argument, offset)
        ranges = [(0, self.launch.programs)]
        while ranges:
            start, stop = ranges.pop()
            if stop - start == 1:
                recording = self.record(start)
                yield recording
                if recording.error is not None:
                    return
            elif self._writes(start, stop, sets):
                ranges += [((start + stop) // 2, stop), (start, (start + stop) // 2)]

    def _writes(self, start: int, stop: int, sets: Callable[[tuple[Array, Array, Array]], bool]) -> bool:
        """Whether one of some programs makes a write of a kind, or fails."""
        self._reach(start)
        batches: list[bool] = []

        def after() -> None:
            batches.append(any(map(sets, self.launch.memory.journal)))

        try:
            self._run(stop, after)
        except ZigguratError:
            return True
        return any(batches)
