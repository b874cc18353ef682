"""`breakpoint()` in a kernel that is interpreted: Python's own debugger, over the statements of the kernel.

A debugger of Python shows frames of Python, and steps by the lines of their code. So each call of a kernel's function
is run once more, as a code object whose lines are those of the function, and whose variables are the recorded ones:

    def k():                                        # in the file of the kernel
        while True:
            advance to the next place               # on no line, and without the debugger's trace
            if line == 8:
                visit; run the calls; return if it is the last one      # on line 8
            if line == 9: …

The debugger sees line 8, then line 9, with the variables before each. `advance` is called while tracing is off, so that
stepping does not enter it.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import attrs

from ziggurat.backend.reference.recording import Recording, Timeline
from ziggurat.backend.reference.run import Launch, run_all
from ziggurat.boundary import no_faults
from ziggurat.codemodel.dialects import debug, tt
from ziggurat.codemodel.printed import show
from ziggurat.debugging.session import stopping_launch
from ziggurat.debugging.values import variables_of
from ziggurat.kernels.kernel import Kernel

Trace = Callable[[FrameType, Any, Any], Any]
_OPTIMIZED, _NEW_LOCALS = 1, 2  # Flags of code objects (`inspect`): without them, `exec` gives a code its variables.


def run_with_breakpoints(
    kernel: Kernel, sizes: tuple[int, int, int], bound: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Run a launch by the interpreter, program by program: as frames of Python each that comes to `breakpoint()`, and
    all others while a debugger traces, which has breakpoints of its own."""
    launch = stopping_launch(kernel, sizes, bound, options)
    codes = _codes(launch)
    timeline, trace = Timeline(launch, in_place=True), sys.gettrace()
    for program in range(launch.programs):
        with no_faults("running", lambda: launch.kernel, kernel.name):
            recording = timeline.record(program)
        prints = iter(recording.prints)
        if any(point.op.breaks for point in recording.points) or sys.gettrace() is not None:
            root = _Calls(kernel, recording, codes, prints, trace).root()
            root.run()
        for text in prints:
            show(text)
        if recording.error is not None:
            recording.move(0)
            with no_faults("running", lambda: launch.kernel, kernel.name):
                run_all(launch, program, program + 1, 1, lambda line: None)  # Its error says more of an overflow.
        recording.move(len(recording.journal))


def _outside(trace: Trace) -> Trace:
    """A trace that passes over the frames of this package, and what they call, but for those of kernels. So a debugger
    that steps out of a kernel comes to the line after the launch."""

    def is_ours(frame: FrameType) -> bool:
        return str(frame.f_globals.get("__name__")).startswith("ziggurat.")

    def outside(frame: FrameType, event: str, argument: Any) -> Any:
        caller: FrameType | None = frame
        while caller is not None and ".advance" not in caller.f_builtins:
            if is_ours(caller):
                return None
            caller = caller.f_back
        return trace(frame, event, argument)

    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if is_ours(frame):
            frame.f_trace = None
        frame = frame.f_back
    return outside


@attrs.define(eq=False)
class _Visit:
    """A statement that a call comes to: the number of its place, the calls that it makes, and whether it or one of
    these calls comes to `breakpoint()`."""

    number: int
    calls: list[_Call]
    breaks: bool


class _Calls:
    """The calls of a recorded program as a tree. `trace` is that from before the launch."""

    def __init__(
        self, kernel: Kernel, recording: Recording, codes: Mapping[tuple[str, str], CodeType], prints: Iterator[str],
        trace: Trace | None,
    ) -> None:  # fmt: skip
        self.globals: Mapping[str, Any] = getattr(kernel.fn, "__globals__", {})
        self.recording = recording
        self.codes = codes
        self.prints = prints
        self.count = 0
        self.trace = trace

    def root(self) -> _Call:
        """The call of the kernel."""
        calls: list[_Call] = []
        for number, point in enumerate(self.recording.points):
            depth = len(point.callers)
            del calls[depth + 1 :]
            if len(calls) <= depth or calls[depth].number != point.call:
                del calls[depth:]
                calls.append(_Call(self, point.call, point.op))
                if depth:
                    calls[depth - 1].visits[-1].calls.append(calls[depth])
            calls[depth].visits.append(_Visit(number, [], point.op.breaks))
            if point.op.breaks:
                for call in calls:
                    call.visits[-1].breaks = True
        return calls[0]

    def show(self, count: int) -> None:
        """Show what the program has printed up to a place."""
        for text in itertools.islice(self.prints, max(0, count - self.count)):
            show(text)
        self.count = max(count, self.count)


class _Call:
    """A call of a function, to be run as a code of Python. `names` are those that the code reads beside the
    variables."""

    def __init__(self, program: _Calls, number: int, op: debug.Stop) -> None:
        self.program = program
        self.number = number
        self.visits: list[_Visit] = []
        self.variables: dict[str, Any] = {}
        assert op.location is not None
        self.code = program.codes[op.location.file, op.function]
        self.names = {
            **vars(builtins), ".gettrace": sys.gettrace, ".settrace": sys.settrace, ".advance": self.advance,
            ".deque": deque, ".starmap": itertools.starmap, ".exec": exec,
        }  # fmt: skip
        self.globals = {**program.globals, "__builtins__": self.names}
        self._next = 0

    def advance(self, trace: Any, _: None) -> Any:
        """Go to the next place of the call; without a debugger that traces, to one of `breakpoint()`. Gives `trace`."""
        names = self.names
        while self._next < len(self.visits) and trace is None and not self.visits[self._next].breaks:
            self._next += 1
        if self._next == len(self.visits):
            names[".line"] = -1
            return trace
        visit = self.visits[self._next]
        self._next += 1
        recording = self.program.recording
        point = recording.at(visit.number)
        self.program.show(point.prints)
        assert point.op.location is not None
        names |= {
            ".line": point.op.location.line, ".last": self._next == len(self.visits), ".breaks": point.op.breaks,
            ".calls": [(call.code, call.globals, call.variables) for call in visit.calls],
        }  # fmt: skip
        self.variables.clear()
        self.variables.update(variables_of(point, recording.memory))
        if trace is None or trace is self.program.trace or self.number or not names[".last"]:
            return trace
        return _outside(trace)  # The debugger has begun in this launch, and goes on after it.

    def run(self) -> None:
        """Run the code. A debugger that steps out of it does not stop here."""
        self._untrace(exec(self.code, self.globals, self.variables))  # On one line, which no event divides.

    def _untrace(self, _: None) -> None:
        sys._getframe(1).f_trace = None  # pyright: ignore[reportPrivateUsage]


def _codes(launch: Launch) -> dict[tuple[str, str], CodeType]:
    """The codes of the functions of a launch by file and name."""
    lines: dict[tuple[str, str], set[int]] = {}
    first: dict[tuple[str, str], int] = {}
    for function in launch.functions.values():
        for op in function.walk():
            if isinstance(op, debug.Stop) and op.location is not None:
                key = op.location.file, op.function
                lines.setdefault(key, set()).add(op.location.line)
                if isinstance(function, tt.Func) and function.location is not None:
                    first[key] = function.location.line
    return {key: code_of(*key, first.get(key, min(numbers)), sorted(numbers)) for key, numbers in lines.items()}


def code_of(file: str, name: str, first: int, lines: Sequence[int]) -> CodeType:
    """The code of a function of these lines, as the head of the file says."""
    nowhere = max(lines) + 1

    def placed(text: str, line: int) -> list[ast.stmt]:
        statements = ast.parse(text).body
        for node in itertools.chain.from_iterable(map(ast.walk, statements)):
            if isinstance(node, ast.Name) and node.id.startswith("_"):
                node.id = f".{node.id[1:]}"  # A name that no variable can have.
            if hasattr(node, "lineno"):
                node.lineno = node.end_lineno = line  # pyright: ignore[reportAttributeAccessIssue]
                node.col_offset = node.end_col_offset = 0  # pyright: ignore[reportAttributeAccessIssue]
        return statements

    def inside(text: str, line: int, body: list[ast.stmt]) -> ast.stmt:
        (statement,) = placed(text, line)
        statement.body = body  # pyright: ignore[reportAttributeAccessIssue]
        return statement

    module = ast.parse("def function(): pass")
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    body = placed("_settrace(_advance(_gettrace(), _settrace(None)))", nowhere)
    body.append(inside("if _line < 0: pass", nowhere, placed_return(nowhere)))
    for line in lines:
        visit = placed("_line\nif _breaks: breakpoint()\n_deque(_starmap(_exec, _calls), 0)", line)
        visit.append(inside("if _last: pass", line, placed_return(line)))
        body.append(inside(f"if _line == {line}: pass", nowhere, visit))
    function.name, function.body = name, [inside("while True: pass", nowhere, body)]
    function.lineno, function.end_lineno = first, nowhere
    compiled = compile(module, file, "exec")
    code = next(constant for constant in compiled.co_consts if isinstance(constant, CodeType))
    return code.replace(
        co_flags=code.co_flags & ~(_OPTIMIZED | _NEW_LOCALS), co_linetable=_line_table(code, first, nowhere)
    )


def placed_return(line: int) -> list[ast.stmt]:
    """A `return` on a line."""
    place = {"lineno": line, "end_lineno": line, "col_offset": 0, "end_col_offset": 0}
    return [ast.Return(value=None, **place)]


def _line_table(code: CodeType, first: int, nowhere: int) -> bytes:
    """The table of lines of a code (CPython's locations.md), with no line in the place of `nowhere`."""
    table, at = bytearray(), first
    for start, stop, line in code.co_lines():
        units = (stop - start) // 2
        while units > 0:
            length = min(units, 8)
            if line is None or line == nowhere:
                table.append(0x80 | 15 << 3 | length - 1)
            else:
                table.append(0x80 | 13 << 3 | length - 1)
                delta = (at - line) << 1 | 1 if line < at else (line - at) << 1
                while delta >= 64:
                    table.append(0x40 | delta & 63)
                    delta >>= 6
                table.append(delta)
                at = line
            units -= length
    return bytes(table)
