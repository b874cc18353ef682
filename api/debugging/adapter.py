"""An adapter of the Debug Adapter Protocol over standard input and output: `ziggurat debug --dap`.

https://microsoft.github.io/debug-adapter-protocol/specification. The programs of a grid are its threads, of which the
current one has frames. Requests are answered one after the other: a long `continue` cannot be interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import numpy as np

from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.debugging.prompt import Prompt, sessions_of
from ziggurat.debugging.session import Place, Session, debug
from ziggurat.debugging.values import Pointers, text_of

Message = dict[str, Any]
_CAPABILITIES = (
    "supportsConfigurationDoneRequest", "supportsConditionalBreakpoints", "supportsStepBack", "supportsDataBreakpoints",
    "supportsEvaluateForHovers",
)  # fmt: skip
_MAX_CHILDREN, _MAX_THREADS = 100, 64
_FRAME, _ARRAYS = 1, 1 << 20  # References of variables: those of frames from 1 on, the arrays, and values after them.
_MOVES = {
    "next": "next", "stepIn": "step", "stepOut": "out", "continue": "go", "stepBack": "next", "reverseContinue": "go",
}  # fmt: skip
_REPL = ("who", "watch", "clear", "program", "variables", "where", "break", "help")


def serve() -> int:
    """Serve one editor over standard input and output until it disconnects; the exit status."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What the program's own code writes must not come between the messages.
    adapter = Adapter(sys.stdin.buffer, output)
    sys.stdin, sys.stdout = io.StringIO(), _Output(adapter)
    with contextlib.suppress(_DisconnectedError):
        adapter.wait(lambda: False)
    return 0


class _DisconnectedError(BaseException):
    """The editor has gone."""


class _Output(io.TextIOBase):
    """Standard output as events."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.adapter.event("output", category="stdout", output=text)
        return len(text)


class Adapter:
    """The state of a conversation: `on_NAME` answers the request NAME with the body of its response."""

    def __init__(self, requests: BinaryIO, responses: BinaryIO) -> None:
        self.requests, self.responses = requests, responses
        self.count = 0
        self.launch: Message = {}
        self.lines: dict[str, list[Message]] = {}  # The breakpoints by file.
        self.numbers: dict[str, list[int]] = {}  # The breakpoints of the session by file.
        self.data: list[str] = []
        self.session: Session | None = None
        self.place: Place | None = None  # Where the last `continue` has stopped.
        self.goes_on = False
        self.after: Callable[[], None] | None = None
        self.values: list[tuple[str, Any]] = []  # Those that the editor can open, with their expressions.

    # Messages.

    def send(self, **message: Any) -> None:
        self.count += 1
        text = json.dumps({"seq": self.count, **message}).encode()
        try:
            self.responses.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
            self.responses.flush()
        except OSError:
            raise _DisconnectedError from None

    def event(self, event: str, **body: Any) -> None:
        self.send(type="event", event=event, body=body)

    def output(self, category: str, text: str) -> None:
        self.event("output", category=category, output=text)

    def receive(self) -> Message:
        length = 0
        while line := self.requests.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not length:
            raise _DisconnectedError
        try:
            return json.loads(self.requests.read(length))
        except ValueError as error:  # Where the next message begins is not known.
            print(f"ziggurat debug --dap: a message must be JSON: {error}", file=sys.stderr)
            raise _DisconnectedError from None

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Answer requests until it is over."""
        while not is_over():
            request = self.receive()
            command, answer = request["command"], {"type": "response", "request_seq": request["seq"]}
            handler: Any = getattr(self, f"on_{command}", None)
            if command in _MOVES:
                handler = functools.partial(self.move, command)
            try:
                if handler is None:
                    raise LaunchError(f"the request '{command}' is not supported")
                body = handler(request.get("arguments") or {})
                self.send(**answer, command=command, success=True, body=body or {})
            except Exception as error:  # A request that does not fit must not end the conversation.
                text = str(error) if isinstance(error, ZigguratError) else f"{type(error).__name__}: {error}"
                self.send(**answer, command=command, success=False, message=text)
                continue
            after, self.after = self.after, None
            if after is not None:  # An editor expects the response before the events that follow from it.
                after()

    # The program.

    def run(self) -> None:
        """Run what the launch names, and end the conversation's debuggee."""
        try:
            self.run_target(str(self.launch.get("program", "")))
        except ZigguratError as error:
            self.output("stderr", f"{error}\n")
        except SystemExit:
            pass
        except Exception as error:  # The user's own program.
            self.output("stderr", f"{type(error).__name__}: {error}\n")
        self.event("terminated")
        self.event("exited", exitCode=0)

    def run_target(self, target: str) -> None:
        from ziggurat.cli.sources import find_kernel
        from ziggurat.launches.simulated import drawn

        target = os.path.abspath(target)
        os.chdir(self.launch.get("cwd") or os.path.dirname(target))
        if target.endswith(".py"):
            arguments = [target, *map(str, self.launch.get("args", []))]
            sessions_of(arguments, "ziggurat debug --dap", self.debug, lambda text: self.output("stderr", f"{text}\n"))
            return
        kernel, grid = find_kernel(target), tuple(self.launch.get("grid", [1]))
        values = drawn(str(self.launch.get("arguments", "")))
        self.debug(debug(kernel, grid, *values, program=tuple(self.launch.get("at", [0]))))

    def debug(self, session: Session) -> None:
        """Let the editor step through a launch until it goes on from the end."""
        self.session, self.place, self.goes_on = session, None, False
        self.numbers.clear()
        for file in self.lines:
            for entry in self.set_lines(file):
                self.event("breakpoint", reason="changed", breakpoint=entry)
        self.set_data()
        place = session.place
        self.stopped(place) if self.launch.get("stopOnEntry") else self.go(session.go())
        self.wait(lambda: self.goes_on)
        self.session = None

    def go(self, place: Place) -> None:
        """Report where `continue` has stopped. The launch is over at the end of the last program, and where it goes on
        from an error."""
        before, self.place = self.place, place
        self.goes_on = place.reason == "end" or (before is not None and before.reason == place.reason == "error")
        self.show(place) if self.goes_on else self.stopped(place)

    def show(self, place: Place) -> None:
        for text in place.prints:
            self.output("stdout", text)
        for write in place.writes:
            self.output("console", f"{write}\n")

    def stopped(self, place: Place) -> None:
        self.values.clear()
        self.show(place)
        word = place.reason.split()[0].rstrip(":,")
        kinds = {"breakpoint": "breakpoint", "breakpoint()": "breakpoint", "watch": "data breakpoint"}
        reason = {**kinds, "error": "exception", "start": "entry"}.get(word, "step")
        text = str(place.error) if place.error else place.reason
        more = {"description": text, "text": text, "threadId": self.current().number + 1, "allThreadsStopped": True}
        self.event("stopped", reason=reason, **more)

    def current(self) -> Session:
        if self.session is None:
            raise LaunchError("no kernel is being debugged now")
        return self.session

    # Requests.

    def on_initialize(self, arguments: Message) -> Message:
        self.after = lambda: self.event("initialized")
        return dict.fromkeys(_CAPABILITIES, True)

    def on_launch(self, arguments: Message) -> None:
        self.launch = arguments

    def on_configurationDone(self, arguments: Message) -> None:
        self.after = self.run

    def on_disconnect(self, arguments: Message) -> None:
        self.after = self.leave

    def leave(self) -> None:
        raise _DisconnectedError

    def on_setBreakpoints(self, arguments: Message) -> Message:
        file = arguments["source"]["path"]
        self.lines[file] = arguments.get("breakpoints", [])
        return {"breakpoints": self.set_lines(file)}

    def set_lines(self, file: str) -> list[Message]:
        """Set the breakpoints of a file in the session, if there is one; what the editor shows of them."""
        entries: list[Message] = []
        session, numbers = self.session, self.numbers.setdefault(file, [])
        while session is not None and numbers:
            session.clear(numbers.pop())
        for number, request in enumerate(self.lines[file]):
            entry: Message = {"id": hash((file, number)) % (1 << 30), "verified": False, "line": request["line"]}
            entries.append(entry)
            if session is None:
                entry["message"] = "the kernel has not been launched yet"
                continue
            try:
                numbers.append(session.break_at(request["line"], request.get("condition") or None, file=file))
                entry |= {"verified": True, "line": session.breakpoints[numbers[-1]].line}
            except LaunchError as error:
                entry["message"] = error.summary
        return entries

    def on_dataBreakpointInfo(self, arguments: Message) -> Message:
        reference = arguments.get("variablesReference", 0)
        name = joined(self.opened(reference)[0] if reference else "", arguments["name"])
        is_element = name.endswith("]") and name.partition("[")[0] in self.current().arrays
        about = f"writes to {name}" if is_element else "only an element of an array of the launch can be watched"
        return {"dataId": name if is_element else None, "description": about, "accessTypes": ["write"]}

    def on_setDataBreakpoints(self, arguments: Message) -> Message:
        self.data = [request["dataId"] for request in arguments["breakpoints"]]
        return {"breakpoints": self.set_data()}

    def set_data(self) -> list[Message]:
        entries: list[Message] = []
        session = self.session
        if session is None:
            return [{"verified": False, "message": "no kernel is being debugged now"} for _ in self.data]
        for number in list(session.watches):
            session.clear(number)
        for name in self.data:
            try:
                session.watch(name)
                entries.append({"verified": True})
            except LaunchError as error:
                entries.append({"verified": False, "message": error.summary})
        return entries

    def on_threads(self, arguments: Message) -> Message:
        session = self.session
        if session is None:
            return {"threads": []}
        numbers = range(session.programs) if session.programs <= _MAX_THREADS else [session.number]
        return {"threads": [{"id": n + 1, "name": f"program {session.coordinates(n)}"} for n in numbers]}

    def on_stackTrace(self, arguments: Message) -> Message:
        if arguments["threadId"] != self.current().number + 1:
            return {"stackFrames": [], "totalFrames": 0}
        frames = [
            {
                "id": number, "name": place.function, "line": place.line, "column": place.location.column + 1,
                "source": {"name": os.path.basename(place.location.file), "path": os.path.abspath(place.location.file)},
            }
            for number, place in enumerate(self.current().where())
        ]  # fmt: skip
        return {"stackFrames": frames, "totalFrames": len(frames)}

    def on_scopes(self, arguments: Message) -> Message:
        names = {"Variables": _FRAME + arguments["frameId"], "Arrays of the launch": _ARRAYS}
        return {"scopes": [{"name": n, "variablesReference": r, "expensive": r == _ARRAYS} for n, r in names.items()]}

    def on_variables(self, arguments: Message) -> Message:
        reference, first = arguments["variablesReference"], arguments.get("start", 0)
        path, value = self.opened(reference)
        entries: list[Message] = []
        for name, child in children_of(value, first, arguments.get("count") or _MAX_CHILDREN):
            entries.append({"name": name, **self.shown(child, joined(path, name))})
        return {"variables": entries}

    def opened(self, reference: int) -> tuple[str, Any]:
        """The expression and the value of a reference."""
        session = self.current()
        if reference == _ARRAYS:
            return "", session.arrays
        if reference > _ARRAYS:
            return self.values[reference - _ARRAYS - 1]
        session.frame(reference - _FRAME)
        return "", session.variables

    def shown(self, value: Any, path: str) -> Message:
        """A value as the editor shows it."""
        entry: Message = {"value": text_of(value), "type": type(value).__name__, "evaluateName": path}
        if not isinstance(value, np.ndarray | tuple | dict | Pointers):
            return entry | {"variablesReference": 0}
        self.values.append((path, cast(Any, value)))
        parts = {"indexedVariables": len(cast(Any, value))} if isinstance(value, np.ndarray) else {}
        return entry | {"variablesReference": _ARRAYS + len(self.values), **parts}

    def on_evaluate(self, arguments: Message) -> Message:
        session, text = self.current(), arguments["expression"]
        if arguments.get("context") == "repl" and text.partition(" ")[0] in _REPL:
            lines: list[str] = []
            Prompt(session, lines.append).onecmd(text)
            return {"result": "\n".join(lines), "variablesReference": 0}
        session.frame(arguments.get("frameId", 0))
        entry = self.shown(session.evaluate(text), text)
        return {"result": entry.pop("value"), **entry}

    def move(self, command: str, arguments: Message) -> None:
        """Go on in the program that the request names."""
        session = self.current()
        if arguments.get("threadId", session.number + 1) != session.number + 1:
            session.select(session.coordinates(arguments["threadId"] - 1))
        move, report = getattr(session, _MOVES[command]), self.go if command == "continue" else self.stopped
        self.after = lambda: report(move(back=command in ("stepBack", "reverseContinue")))


def joined(path: str, name: str) -> str:
    """The expression of a part: `c` and `[3]` make `c[3]`, `c[3]` and `[4]` make `c[3, 4]`."""
    if not path:
        return name
    return f"{path[:-1]}, {name[1:]}" if path.endswith("]") and name.startswith("[") else f"{path}{name}"


def children_of(value: Any, first: int, count: int) -> list[tuple[str, Any]]:
    """The parts of a value with their names."""
    if isinstance(value, Pointers):
        return [(".offsets", value.offsets), (".values", value.values)]
    if isinstance(value, dict):
        return [(str(name), part) for name, part in cast("dict[Any, Any]", value).items()]
    return [(f"[{at}]", value[at]) for at in range(first, min(len(value), first + count))]
