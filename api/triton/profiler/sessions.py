"""Sessions of the profiler: what is measured, and the file that it is written to."""

from __future__ import annotations

import functools
import json
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ziggurat.triton import knobs
from ziggurat.triton.runtime.driver import driver

DEFAULT_PROFILE_NAME: Final = "proton"


@attrs.define
class ProfileNode:
    """A kernel or a scope: the number of its calls, the sum of their nanoseconds, and sums of further numbers."""

    name: str
    count: int = 0
    nanoseconds: float = 0.0
    metrics: dict[str, float] = attrs.Factory(dict[str, float])
    children: dict[str, ProfileNode] = attrs.Factory(dict[str, "ProfileNode"])

    def child(self, name: str) -> ProfileNode:
        return self.children.setdefault(name, ProfileNode(name))

    def as_json(self) -> dict[str, Any]:
        """The node as Hatchet's files have it."""
        numbers = {"count": self.count, "time (ns)": self.nanoseconds, **self.metrics}
        return {
            "frame": {"name": self.name, "type": "function"},
            "metrics": numbers if self.count else {},
            "children": [child.as_json() for child in self.children.values()],
        }


@attrs.define
class Session:
    """A file's name, the tree of what was measured, and whether it is measured now."""

    name: str
    root: ProfileNode = attrs.Factory(lambda: ProfileNode("ROOT"))
    active: bool = True
    # Calls whose events are not read yet, each with its node and the events of its start and its end.
    pending: list[tuple[ProfileNode, Any, Any]] = attrs.Factory(list[tuple[ProfileNode, Any, Any]])

    def settle(self) -> None:
        """Wait for the measured calls, and add their times."""
        if self.pending:
            driver.active.get_device_interface().synchronize()
        for node, begin, end in self.pending:
            node.nanoseconds += 1e6 * begin.elapsed_time(end)
        self.pending.clear()


_SESSIONS: Final[list[Session]] = []
# The names of the open scopes and of the kernel that is launched, with the events of their starts.
_OPEN: Final[list[tuple[str, Mapping[str, float], Any]]] = []


def _recorded() -> Any:
    event = driver.active.get_device_interface().Event(enable_timing=True)
    event.record()
    return event


def _measuring() -> bool:
    return any(session.active for session in _SESSIONS)


def enter_scope(name: str, *, metrics: Mapping[str, float] | None = None) -> None:
    """Begin a scope. `metrics` are numbers to be summed, such as "flops16" and "bytes"."""
    _OPEN.append((name, metrics or {}, _recorded() if _measuring() else None))


def exit_scope(name: str | None = None, *, metrics: Mapping[str, float] | None = None) -> None:
    """End the innermost scope. `metrics` are further numbers. Raises `ValueError` for the name of another scope."""
    if name is not None and name != _OPEN[-1][0]:
        raise ValueError(f"Scope name mismatch: {name} != {_OPEN[-1][0]}")
    name, numbers, begin = _OPEN.pop()
    if begin is None:
        return
    end = _recorded()
    for session in _SESSIONS:
        if session.active:
            node = functools.reduce(ProfileNode.child, [*(outer for outer, _, _ in _OPEN), name], session.root)
            node.count += 1
            for key, value in {**numbers, **(metrics or {})}.items():
                node.metrics[key] = node.metrics.get(key, 0) + value
            session.pending.append((node, begin, end))


class scope:
    """A named scope, `with scope("torch", {"flops16": n}):`, or as the decorator of a function."""

    def __init__(self, name: str, metrics: Mapping[str, float] | None = None) -> None:
        self.name, self.metrics = name, metrics

    def __enter__(self) -> scope:
        enter_scope(self.name, metrics=self.metrics)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        exit_scope()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            with self:
                return function(*arguments, **keywords)

        return call


class state(scope):
    """A named part of what a program does, `with state("backward"):`, or as the decorator of a function."""

    def __init__(self, name: str) -> None:
        super().__init__(name)


def enter_state(name: str) -> None:
    """Begin a state."""
    enter_scope(name)


def exit_state() -> None:
    """End the innermost state."""
    exit_scope()


class cpu_timed_scope(scope):
    """A scope whose time on the host is measured as well, as "cpu_time (ns)(exc)"."""

    def __init__(self, name: str, metrics: Mapping[str, float] | None = None) -> None:
        if "cpu_time" in (metrics or {}):
            raise ValueError("The metric name 'cpu_time' is reserved.")
        super().__init__(name, metrics)
        self.start_time = 0

    def __enter__(self) -> scope:
        self.start_time = time.time_ns()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        exit_scope(metrics={"cpu_time (ns)(exc)": time.time_ns() - self.start_time})


def _enter_launch(metadata: Any) -> None:
    facts = dict(metadata.get())
    name = str(facts.pop("name"))
    numbers = {key: float(value) for key, value in facts.items() if key == "bytes" or key.startswith("flops")}
    enter_scope(name, metrics=numbers)


def _exit_launch(metadata: Any) -> None:
    exit_scope()


def _hook() -> None:
    """Have launches measured while a session measures, and only then."""
    for chain, hook in (
        (knobs.runtime.launch_enter_hook, _enter_launch),
        (knobs.runtime.launch_exit_hook, _exit_launch),
    ):
        (chain.add if _measuring() else chain.remove)(hook)


def start(name: str | None = None, **settings: Any) -> int | None:
    """Begin to measure; the number of the session. The file will be `name` with the ending `.hatchet`. Gives None, and
    measures nothing, with `TRITON_PROTON_DISABLE=1`."""
    if knobs.proton.disable:
        return None
    _SESSIONS.append(Session(name or DEFAULT_PROFILE_NAME))
    _hook()
    return len(_SESSIONS) - 1


def _sessions_of(session: int | None) -> list[Session]:
    return list(_SESSIONS) if session is None else _SESSIONS[session : session + 1]


def activate(session: int | None = None) -> None:
    """Measure again, in one session or in all."""
    for entry in _sessions_of(session):
        entry.active = True
    _hook()


def deactivate(session: int | None = None) -> None:
    """Pause one session or all."""
    for entry in _sessions_of(session):
        entry.active = False
        entry.settle()
    _hook()


def finalize(session: int | None = None, output_format: str = "") -> None:
    """End one session or all, and write their files."""
    for entry in _sessions_of(session):
        entry.settle()
        Path(f"{entry.name}.hatchet").write_text(json.dumps([entry.root.as_json()]))
        _SESSIONS.remove(entry)
    _hook()


def profile(func: Callable[..., Any] | None = None, *, name: str | None = None, **settings: Any) -> Any:
    """Decorator of a function whose calls are measured, each in a session of its own."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            session = start(name, **settings)
            try:
                return function(*arguments, **keywords)
            finally:
                if session is not None:
                    finalize(session)

        return call

    return decorate if func is None else decorate(func)
