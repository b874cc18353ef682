"""`zg.debug`: the programs of a launch, statement by statement, forward and back."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.reference.argument_memory import ArrayArgument
from ziggurat.backend.reference.marks import undefined_elements
from ziggurat.backend.reference.recording import Point, Recording, Timeline
from ziggurat.backend.reference.run import LOOP_LIMIT, PERSISTENT_CTAS, Launch
from ziggurat.backend.reference.values import Array
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.dialects import debug as dialect
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import shape_of
from ziggurat.debugging.values import array_of, variables_of
from ziggurat.kernels.kernel import Kernel
from ziggurat.launches.inspected import grid_of, programs_of
from ziggurat.tuning.inspected import launch_of

Program = tuple[int, int, int]


@attrs.frozen
class Write:
    """A write to an element of an array: the program and the place in the source, and the element before and after."""

    element: str
    program: Program
    location: Location
    old: Any
    new: Any

    def __str__(self) -> str:
        file = os.path.basename(self.location.file)
        source = (self.location.source_line() or "").strip()
        change = f"{self.element} was {self.old!s} and becomes {self.new!s}"
        return f"program {self.program}, {file}:{self.location.line}: {change}    {source}"


@attrs.frozen(eq=False)
class Place:
    """The place where a session stands: before a statement of a program, or at the program's end.

    `reason` says why it stopped there: "step", "breakpoint 1", "breakpoint()", "watch 1: c[17]", "end", "error" or
    "start". `writes` are those that a watch has seen, and `error` is what has ended a program that failed. `prints` are
    the texts that the programs have printed on the way here.
    """

    program: Program
    function: str
    location: Location
    reason: str
    writes: tuple[Write, ...] = ()
    error: ZigguratError | None = None
    prints: tuple[str, ...] = ()

    @property
    def line(self) -> int:
        """The line of the statement in its file."""
        return self.location.line

    @property
    def source(self) -> str:
        """The text of the line."""
        return (self.location.source_line() or "").strip()

    def __str__(self) -> str:
        head = f"program {self.program}, {os.path.basename(self.location.file)}:{self.line} in {self.function}"
        lines = [
            *"".join(self.prints).splitlines(),
            *map(str, self.writes),
            f"{head} ({self.reason})",
            f"-> {self.source}",
        ]
        if self.error is not None:
            lines[-1] = str(self.error)
        elif self.reason == "end":
            lines[-1] = "-- the program has ended"
        return "\n".join(lines)


@attrs.frozen
class Breakpoint:
    """A line at which a session stops, if the condition holds there."""

    file: str
    line: int
    condition: str | None


@attrs.frozen(eq=False)
class Watch:
    """An element of the array of an argument, by its index; a session stops after each write to it."""

    text: str
    argument: ArrayArgument
    index: tuple[int, ...]

    @property
    def offset(self) -> int:
        """The bytes from the first element to this one."""
        return sum(at * stride for at, stride in zip(self.index, self.argument.array.strides, strict=True))


@public
def debug(kernel: Any, grid: Any, /, *arguments: Any, program: Any = 0, **keywords: Any) -> Session:
    """A session that steps through the programs of a launch, forward and back, by the reference interpreter.

        session = zg.debug(softmax, (4,), y, x, 100, 128, program=1)
        session.break_at(12, "i == 3")
        session.go()
        session["row"]                       # the variable, as a NumPy array
        session.go(back=True)

    `arguments` and `keywords` are those of a launch, whose arrays must be in memory and stay as they are: the session
    has copies. The programs run one after the other, the first axis of the grid counting fastest. The session begins
    at the first statement of `program`, an index or one for each axis, after the programs before it.

    Raises the errors of the kernel's source, and `LaunchError` for arguments, a grid or a program that do not fit.
    """
    kernel, bound, options = launch_of("zg.debug", kernel, arguments, keywords)
    sizes = grid_of("zg.debug", kernel.sizes(grid, bound))
    (first,) = programs_of("zg.debug", program, sizes)
    launch = stopping_launch(kernel, sizes, bound, options)
    return Session(kernel, sizes, Timeline(launch), first)


def stopping_launch(
    kernel: Kernel, sizes: tuple[int, int, int], bound: Mapping[str, Any], options: Mapping[str, Any]
) -> Launch:
    """A launch of the model with places to stop. Raises `LaunchError` for a kernel whose model has none."""
    signature, names, values = kernel.specialized(bound)
    model = kernel.rules.model(kernel, attrs.evolve(signature, stops=True), {**options})
    if not model.holds(dialect.Stop):
        raise LaunchError(
            f"'{kernel.name}' has no statements to stop at: it was not made of a source",
            hint="debug the kernel that it was made from",
        )
    return Launch.of(
        model, None, sizes, values, names=names, strict=False, tolerant=kernel.rules.tolerant_memory,
        limit=LOOP_LIMIT, persistent_ctas=PERSISTENT_CTAS, undefined=True,
    )  # fmt: skip


class Session:
    """The programs of a launch, one after the other, and a place in one of them.

    Going to a place of the current program, forward or back, computes nothing: the program was run once, and its values
    and writes were recorded. Going to an earlier program runs those before it again, from the nearest copy of the
    arrays.
    """

    def __init__(self, kernel: Kernel, grid: tuple[int, int, int], timeline: Timeline, program: Program) -> None:
        self.kernel = kernel
        self.grid = grid
        self.breakpoints: dict[int, Breakpoint] = {}
        self.watches: dict[int, Watch] = {}
        self._timeline = timeline
        self._frame = 0
        self._numbers = 0
        model = timeline.launch.kernel.root()
        self._stops = [op for op in model.walk() if isinstance(op, dialect.Stop)]
        self._arguments = {a.name: a for region in timeline.launch.memory.regions for a in region.arguments}
        self._recording: Recording
        self._at = 0
        self.place: Place
        self.select(program)

    def __repr__(self) -> str:
        return str(self.place)

    # Where it stands.

    @property
    def number(self) -> int:
        """The number of the program that the session is in, in the order in which they run."""
        return self._recording.program

    @property
    def program(self) -> Program:
        """The program that the session is in."""
        return self.coordinates(self.number)

    @property
    def programs(self) -> int:
        """The number of programs in the grid."""
        return self._timeline.launch.programs

    def coordinates(self, number: int) -> Program:
        """The program with a number."""
        return self._recording.memory.coordinates(number)

    @property
    def variables(self) -> dict[str, Any]:
        """The variables by name, in the function that `frame` has chosen: NumPy's numbers, arrays that cannot be
        written, and `Pointers`."""
        point = self._stack()[-1 - self._frame]
        return variables_of(point, self._recording.memory)

    @public
    def undefined(self, name: str) -> Array | None:
        """The elements of a variable that are undefined, such as those that the mask of a load without `other=` leaves
        out, or that were computed from one; None if there are none."""
        if name not in self.variables:
            self.__getitem__(name)
        point = self._stack()[-1 - self._frame]
        if name not in point.op.names or point.contents is None:
            return None
        number = point.op.names.index(name)
        return undefined_elements(point.contents[number], shape_of(point.op.values[number].type))

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays of the launch by name, as the programs up to here have left them; copies."""
        memory = self._recording.memory
        return {name: array_of(memory, argument).copy() for name, argument in self._arguments.items()}

    def __getitem__(self, name: str) -> Any:
        """The value of a variable."""
        try:
            return self.variables[name]
        except KeyError:
            names = ", ".join(self.variables) or "none yet"
            raise LaunchError(f"there is no variable '{name}' here", hint=f"the variables are {names}") from None

    @public
    def evaluate(self, expression: str) -> Any:
        """The value of an expression of Python over the variables, and the names of the kernel's module, here."""
        variables = self.variables
        # One namespace: the bodies of lambdas and comprehensions see no local variables of an expression.
        namespace = {"np": np, **getattr(self.kernel.fn, "__globals__", {}), **variables}
        try:
            code = compile(str(expression).strip(), "<expression>", "eval")
            return eval(code, namespace)
        except Exception as error:  # The user's own expression.
            names = ", ".join(variables) or "none yet"
            summary = f"'{expression}' cannot be evaluated here: {type(error).__name__}: {error}"
            raise LaunchError(summary, hint=f"the variables are {names}") from None

    def where(self) -> list[Place]:
        """The statements that are in progress, the innermost first: that of the function, that of its call, and so
        on."""
        return [self._place_of(point, "step") for point in reversed(self._stack())]

    @public
    def frame(self, number: int) -> Place:
        """Choose the function whose variables are shown: 0 is the innermost, 1 its caller."""
        if number not in range(len(self._stack())):
            raise LaunchError(f"there is no frame {number}", hint=f"frames are 0 to {len(self._stack()) - 1}")
        self._frame = number
        return self.where()[number]

    def lines(self) -> list[int]:
        """The lines of the kernel's file that have a statement."""
        return sorted({op.location.line for op in self._stops if op.location and op.location.file == self._file()})

    # Breakpoints and watches.

    @public
    def break_at(self, line: int, condition: str | None = None, *, file: str | None = None) -> int:
        """Stop before the statement at a line, of the kernel's file or of another one, if the condition holds there:
        an expression of Python over the variables. The number of the breakpoint, for `clear`."""
        path = self._file() if file is None else str(file)
        if not isinstance(line, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(f"a line must be a number; got {line!r}", hint="session.break_at(12)")
        places = [op.location for op in self._stops if op.location and _same_file(op.location.file, path)]
        inside = [place for place in places if place.line <= line <= max(place.line, place.end_line)]
        if not inside:
            lines = ", ".join(map(str, sorted({place.line for place in places}))) or "none in that file"
            raise LaunchError(
                f"line {line} of {os.path.basename(path)} has no statement of '{self.kernel.name}'",
                hint=f"lines with statements are {lines}",
            )
        if condition is not None:
            try:
                compile(str(condition).strip(), "<condition>", "eval")
            except (SyntaxError, ValueError) as error:
                raise LaunchError(f"the condition '{condition}' is no expression of Python: {error}") from None
        start = max(place.line for place in inside)  # A statement of several lines begins at its first.
        return self._numbered(self.breakpoints, Breakpoint(inside[0].file, start, condition))

    @public
    def watch(self, element: str) -> int:
        """Stop after a write to an element of an array: "c[17]", "c[3, 4]". The number of the watch, for `clear`."""
        return self._numbered(self.watches, self._watch(element))

    @public
    def clear(self, number: int | None = None) -> None:
        """Remove a breakpoint or a watch; without a number all of them."""
        for entries in (self.breakpoints, self.watches):
            for key in list(entries) if number is None else [number]:
                entries.pop(key, None)

    @public
    def writers(self, element: str) -> list[Write]:
        """The writes to an element of an array, by all programs of the grid, in their order. The session stays where it
        is."""
        watch = self._watch(element)
        program, at = self.number, self._at
        writes: list[Write] = []
        for recording in self._timeline.writers(watch.argument, watch.offset):
            numbers = recording.writes_of(watch.argument, watch.offset, 0, len(recording.journal))
            writes += [self._write(watch, number, recording) for number in numbers]
        self._recording = self._timeline.record(program)
        self._go_to(at)
        return writes

    # Going forward and back.

    @public
    def step(self, *, back: bool = False) -> Place:
        """Go to the next statement, or the one before, into functions as well."""
        return self._move(back, lambda: True)

    @public
    def next(self, *, back: bool = False) -> Place:
        """Go to the next statement of the function, or of its caller; what a breakpoint stops at on the way comes
        first."""
        depth, program = self._depth(), self.number
        return self._move(back, lambda: self._depth() <= depth or self.number != program)

    @public
    def out(self, *, back: bool = False) -> Place:
        """Go to the first statement after the function in its caller, or back to the call; from the kernel itself, to
        the program's end or beginning."""
        depth, program = self._depth(), self.number
        if not depth:
            return self._move(back, lambda: self._at == (0 if back else len(self._recording.points)))
        return self._move(back, lambda: self._depth() < depth or self.number != program)

    @public
    def go(self, *, back: bool = False) -> Place:
        """Go to the next place that a breakpoint, a watch or `breakpoint()` stops at, or to the end of the last
        program; back, to the one before, or to the beginning of the first program."""
        return self._move(back, lambda: False)

    @public
    def select(self, program: Any) -> Place:
        """Go to the first statement of a program."""
        ((x, y, z),) = programs_of("zg.debug", program, self.grid)
        self._open(x + self.grid[0] * (y + self.grid[1] * z))
        self._go_to(0)
        return self._stand("start")

    # Inside.

    def _file(self) -> str:
        location = self._stops[-1].location
        return "" if location is None else location.file

    def _stack(self) -> list[Point]:
        """The places of the calls in progress, the outermost first; at the end of a program its last place."""
        points = self._recording.points
        if not points:
            return []
        point = self._recording.at(min(self._at, len(points) - 1))
        if self._at >= len(points):
            self._recording.move(len(self._recording.journal))
        return [*point.callers, point]

    def _depth(self) -> int:
        return 0 if self._ended() else len(self._recording.points[self._at].callers)

    def _place_of(self, point: Point, reason: str, **more: Any) -> Place:
        location = point.op.location
        assert location is not None
        return Place(self.program, point.op.function, location, reason, **more)

    def _open(self, program: int) -> None:
        try:
            with no_faults("debugging", lambda: self._timeline.launch.kernel, self.kernel.name):
                self._recording = self._timeline.record(program)
        except ZigguratError as error:
            raise self.kernel.rules.explained(self.kernel, error) from None

    def _go_to(self, at: int) -> None:
        """Stand at a place of the current program, whose number is that of its places at its end."""
        points = self._recording.points
        self._at, self._frame = at, 0
        self._recording.move(points[at].writes if at < len(points) else len(self._recording.journal))

    def _stand(self, reason: str, writes: Sequence[Write] = (), prints: Sequence[str] = ()) -> Place:
        """The place where the session stands now, with the reason for it."""
        recording, error = self._recording, None
        if self._ended() and recording.error is not None:
            error = self.kernel.rules.explained(self.kernel, recording.error)
        point = recording.points[min(self._at, len(recording.points) - 1)]
        self.place = self._place_of(point, reason, writes=tuple(writes), error=error, prints=tuple(prints))
        return self.place

    def _ended(self) -> bool:
        return self._at >= len(self._recording.points)

    def _move(self, back: bool, accepts: Callable[[], bool]) -> Place:
        """Go from place to place until one is accepted, a breakpoint or a watch stops it, or there are no more."""
        prints: list[str] = []
        while True:
            at = self._at + (-1 if back else 1)
            writes: list[Write] = []
            if 0 <= at <= len(self._recording.points):
                writes = self._watched(min(self._at, at), max(self._at, at))
                prints += [] if back else self._recording.prints[self._counts(self._at)[1] : self._counts(at)[1]]
            else:
                program = self.number + (-1 if back else 1)
                if not 0 <= program < self.programs or (self._recording.error is not None and not back):
                    return self._stand(self._last_reason(back), prints=prints)
                self._open(program)
                at = len(self._recording.points) if back else 0
            self._go_to(at)
            reason = self._stop_reason(writes)
            if self._ended() and self._recording.error is not None and not back:
                reason = "error"
            elif not reason and accepts():
                reason = "end" if self._ended() else "step"
            if reason:
                return self._stand(reason, writes, prints)

    def _last_reason(self, back: bool) -> str:
        if back:
            return "start"
        return "end" if self._recording.error is None else "error"

    def _counts(self, at: int) -> tuple[int, int]:
        """The numbers of writes and printed lines before a place of the current program."""
        recording = self._recording
        if at < len(recording.points):
            return recording.points[at].writes, recording.points[at].prints
        return len(recording.journal), len(recording.prints)

    def _stop_reason(self, writes: Sequence[Write]) -> str:
        """The breakpoint or watch that stops the session here; "" if there is none."""
        if writes:
            text = ", ".join(dict.fromkeys(write.element for write in writes))
            return f"watch: {text}"
        if self._ended():
            return ""
        op = self._recording.points[self._at].op
        for number, entry in self.breakpoints.items():
            if op.location is not None and entry.line == op.location.line and entry.file == op.location.file:
                try:
                    if entry.condition is None or bool(self.evaluate(entry.condition)):
                        return f"breakpoint {number}"
                except (LaunchError, ValueError) as error:
                    return f"breakpoint {number}, whose condition fails: {error}"
        return "breakpoint()" if op.breaks else ""

    # Watches.

    def _numbered(self, entries: dict[int, Any], entry: Any) -> int:
        self._numbers += 1
        entries[self._numbers] = entry
        return self._numbers

    def _watch(self, element: str) -> Watch:
        match = re.fullmatch(r"\s*(.*\S)\s*\[(.+)\]\s*", str(element))
        name = match[1] if match else element
        if match is None or name not in self._arguments:
            names = ", ".join(f"{name}[0]" for name in self._arguments)
            raise LaunchError(f"'{element}' is no element of an array of the launch", hint=f"as in {names}")
        array = self._arguments[name].array
        index = self.evaluate(f"({match[2]},)")
        try:
            place = tuple(operator.index(at) for at in index)
            if len(place) == 1 and array.ndim > 1:  # The elements are counted in their order.
                place = tuple(map(int, np.unravel_index(place[0], array.shape)))
            array[place].item()
        except (TypeError, IndexError, ValueError, AttributeError):
            raise LaunchError(f"{name} has the shape {array.shape}, and no element [{match[2]}]") from None
        place = tuple(at % size for at, size in zip(place, array.shape, strict=True))
        return Watch(element.strip(), self._arguments[name], place)

    def _watched(self, start: int, stop: int) -> list[Write]:
        """The writes between two places of the current program that a watch sees; the memory has moved after it."""
        low, high = self._counts(start)[0], self._counts(stop)[0]
        return [
            self._write(watch, number, self._recording)
            for watch in self.watches.values()
            for number in self._recording.writes_of(watch.argument, watch.offset, low, high)
        ]

    def _write(self, watch: Watch, number: int, recording: Recording) -> Write:
        values: list[Any] = []
        for at in (number, number + 1):
            recording.move(at)
            values.append(array_of(recording.memory, watch.argument)[watch.index][()])
        location = recording.writers[number].location
        assert location is not None
        return Write(watch.text, recording.memory.coordinates(recording.program), location, *values)


def _same_file(first: str, second: str) -> bool:
    return first == second or os.path.realpath(first) == os.path.realpath(second)
