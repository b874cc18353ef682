"""Launches whose programs run beside each other, by native code: on several devices, or where programs wait.

A program may wait for any other, since each runs on a thread. On several devices all programs begin at once. Those of
another launch begin in their order on one thread; where all that have begun wait, further threads begin the next ones.
A loop that waits counts its iterations (`host.zg_waits_on`); where all programs that have begun have gone through such
a loop twice, without an end, since each has seen the memory that all others left, only further programs can end their
waits, and without these nothing.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.cpu.code import BOUND, LAUNCH
from ziggurat.backend.cpu.runtime import host
from ziggurat.backend.cpu.runtime.kernels import NativeKernel, number_of_programs
from ziggurat.backend.cpu.runtime.native import native
from ziggurat.backend.cpu.runtime.pool import JOB
from ziggurat.backend.cpu.sites import READ_ONLY, STRAY
from ziggurat.backend.launch.grids import program_name
from ziggurat.backend.launch.regions import span
from ziggurat.backend.reference.values import is_array
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError

MAX_THREADS = 1024  # Programs that may run at once.
_TICK = 0.01  # Seconds between two looks at the programs that wait.
_WORD, _STOP = (list(host.SHARED_HOST.kinds).index(name) for name in ("word", "stop"))
Array = np.ndarray[Any, np.dtype[Any]]


@attrs.frozen(eq=False)
class QueuedNative:
    """A launch of native code on arrays and numbers. Its programs run within the context of `within`, which gives
    errors their words. The device fills in its own number."""

    title: str
    kernel: NativeKernel
    grid: tuple[int, int, int]
    names: Sequence[str]
    values: Sequence[Any]
    within: Callable[[], AbstractContextManager[None]]
    device: int = 0


def run_at_once(launches: Sequence[QueuedNative], arrays: Sequence[Array]) -> None:
    """Run the launches of several devices at once, those of each device one after the other.

    Pointers made from integers may go to all arrays of the launches, and to `arrays`. Raises `KernelRuntimeError` where
    programs wait for ever, the first error of a program, and `LaunchError` for more programs at once than 1024.
    """
    if not host.HAS_YIELD:
        raise LaunchError("native code of several devices runs on Linux and macOS", hint="leave native=True out")
    queues: dict[int, list[QueuedNative]] = {}
    for launch in launches:
        queues.setdefault(launch.device, []).append(launch)
    programs = sum(max(number_of_programs(q.grid, q.title) for q in queue) for queue in queues.values())
    if programs > MAX_THREADS:
        raise LaunchError(
            f"at most {MAX_THREADS} programs of all devices can run at once; there are {programs}",
            hint="launch fewer programs on each device",
        )
    _Launches([*queues.values()], arrays, on_devices=True).run()


def run_beside(launch: QueuedNative) -> None:
    """Run a launch. Programs may wait for earlier and for later ones, up to 1024 at once; until one has to, they run in
    their order. Raises the errors of `NativeKernel.launch`, and `KernelRuntimeError` where programs wait for ever.
    """
    if launch.kernel.waits and host.HAS_YIELD and number_of_programs(launch.grid, launch.title) > 1:
        _Launches([[launch]], (), on_devices=False).run()
    else:
        with launch.within():
            launch.kernel.launch(launch.grid, launch.names, launch.values)


class _Cancelled(BaseException):
    """Ends a launch because another one has failed."""


class _Running:
    """A launch whose programs run: their waits, by number of loops and of iterations, the programs that have begun and
    not ended, the first that has not begun, and the function that runs programs on a thread, with the threads."""

    def __init__(self, queued: QueuedNative, total: int, arrays: int, work: Callable[[_Running], None]) -> None:
        self.queued, self.total, self.following = queued, total, 0
        self.waits = np.zeros((total, 2), np.int64)
        self.host = native().shared_host(arrays, self.waits.ctypes.data)
        self.active = np.zeros(total, np.bool_)
        self.records: list[list[int]] = []  # Of programs that have failed.
        self.error: BaseException | None = None  # What printing has raised.
        self.threads: list[threading.Thread] = []
        self._work = work

    def start(self, count: int) -> int:
        """Run programs on so many further threads, as far as there are programs, and as the system has threads. The
        number of these threads."""
        before = len(self.threads)
        for _ in range(min(count, self.total - before)):
            thread = threading.Thread(target=self._work, args=(self,), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # Limits of the process, or of its container.
                if not self.threads:
                    raise
                break
            self.threads.append(thread)
        return len(self.threads) - before

    def run(self, count: int) -> None:
        """Run all programs, by at first so many threads."""
        self.start(count)
        for thread in self.threads:  # Others come while one of these has not ended.
            thread.join()


class _Launches:
    """Launches while they run: a queue for each device, or one launch."""

    def __init__(self, queues: Sequence[Sequence[QueuedNative]], arrays: Sequence[Array], *, on_devices: bool) -> None:
        self._queues, self._on_devices = queues, on_devices
        own = [getattr(value, "host", value) for queue in queues for launch in queue for value in launch.values]
        distinct: dict[int, Array] = {id(a): a for a in (*arrays, *own) if is_array(a)}
        self._bounds = [(*span(array), array.flags.writeable) for array in distinct.values()]
        bounds = [BOUND.packer.pack(*bound) for bound in self._bounds]
        self._table = b"".join((len(bounds).to_bytes(8, "little"), *bounds))
        self._lock = threading.Lock()
        self._running: list[_Running] = []
        self._unfinished = len(queues)  # Devices with launches to run.
        self._events = 0  # Launches and programs that have begun or ended, and devices that have ended.
        self._failure: BaseException | None = None
        self._ends = self._is_deadlock = False
        self._threads = 0  # Their number where programs could not begin, for want of more, when there was a deadlock.
        self._waits: list[tuple[QueuedNative, list[int]]] = []

    def run(self) -> None:
        """Run everything. Raises the error of the first program that fails."""
        threads = [threading.Thread(target=self._work, args=(queue,), daemon=True) for queue in self._queues]
        for thread in threads:
            thread.start()
        try:
            self._watch(threads)
        except BaseException:  # That of a handler of a signal.
            self._stop()
            raise
        finally:
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure
        if self._waits:
            with self._waits[0][0].within():
                raise self._deadlock()

    def _watch(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for the end, or for a deadlock: twice in a row, all programs have gone on waiting in the same loops.

        In the first time memory is as it was, because no program leaves its loop until the second. So the iteration
        that each has made in between has seen the memory of now. It is no deadlock while further programs can begin.
        """
        before, times = self._waiting(), 0
        while thread := next((thread for thread in threads if thread.is_alive()), None):
            thread.join(_TICK)
            now = self._waiting()
            if before is None or now is None or before[0] != now[0] or (before[1] != now[1]).any():
                before, times = now, 0
            elif (now[2] - before[2] >= 2).all():
                before, times = now, times + 1
                if times == 2 and self._goes_on(now[0]):
                    times = 0
                elif times == 2:
                    self._is_deadlock = True
                    if any(running.following < running.total for running in self._running):
                        self._threads = sum(len(running.threads) for running in self._running)
                    self._stop()
                    return

    def _waiting(self) -> tuple[int, Array, Array] | None:
        """The number of events, and the loops and iterations of all programs; None if a device is between launches, or
        a launch between programs."""
        with self._lock:
            is_between = not all(running.active.any() for running in self._running)
            if len(self._running) < self._unfinished or not self._running or is_between:
                return None
            waits = np.concatenate([running.waits[running.active] for running in self._running])
            return self._events, waits[:, 0], waits[:, 1]

    def _goes_on(self, events: int) -> bool:
        """Let programs begin that have not, on as many further threads as there are. Whether some can, or something has
        happened since there were so many events."""
        with self._lock:
            room = MAX_THREADS - sum(len(running.threads) for running in self._running)
            started = [running.start(min(len(running.threads), room)) for running in self._running]
            # Threads that run no program begin one soon, if there is one: the system may not have run them meanwhile.
            starting = any(
                running.following < running.total and running.active.sum() < len(running.threads)
                for running in self._running
            )
            return any(started) or starting or events != self._events

    def _stop(self) -> None:
        """Let all programs end soon."""
        with self._lock:
            self._ends = True
            for running in self._running:
                running.host[_STOP] = 1
                if not self._is_deadlock:  # Then all programs wait, and end with the places where they do.
                    running.host[_WORD] = host.STOP

    def _work(self, queue: Sequence[QueuedNative]) -> None:
        """Run the launches of a device."""
        try:
            for launch in queue:
                with launch.within():
                    self._launch(launch)
        except _Cancelled:
            pass
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
            self._stop()
        with self._lock:
            self._unfinished -= 1
            self._events += 1

    def _launch(self, queued: QueuedNative) -> None:
        """Run a launch. The errors of programs of several devices name the device."""
        try:
            queued.kernel.launch(queued.grid, queued.names, queued.values, self._runner(queued))
        except KernelRuntimeError as error:
            if self._on_devices and error.summary.startswith("program "):
                error.summary = f"device {queued.device}, {error.summary}"
                error.args = error.summary, *error.args[1:]
            raise

    def _runner(self, queued: QueuedNative) -> Callable[..., Sequence[int]]:
        """A function that runs the programs of a launch, as `Native.run` does."""

        def run(entry: int, arguments: int, total: int, launch: int, scratch: int, *, ordered: bool) -> Sequence[int]:
            table = ctypes.cast(ctypes.c_char_p(self._table), ctypes.c_void_p).value or 0
            parts = entry, arguments, total, launch, scratch
            running = _Running(queued, total, table, functools.partial(self._programs, parts))
            ctypes.c_uint64.from_address(launch + LAUNCH.offsets["host"]).value = ctypes.addressof(running.host)
            with self._lock:
                if self._ends:
                    raise _Cancelled
                self._running.append(running)
                self._events += 1
            running.run(total if self._on_devices else 1)
            with self._lock:
                self._running.remove(running)
                self._events += 1
            return self._outcome(running)

        return run

    def _programs(self, parts: tuple[int, ...], running: _Running) -> None:
        """Run programs that have not begun on this thread, one after the other."""
        while True:
            with self._lock:
                number = running.following
                if self._ends or number == running.total:
                    return
                running.following += 1
                running.active[number] = True
                self._events += 1
            self._program(running, number, parts)

    def _program(self, running: _Running, number: int, parts: tuple[int, ...]) -> None:
        """Run one program on this thread."""
        record = (ctypes.c_int64 * 5)()
        try:
            code = native().run_range(JOB.packer.pack(*parts, 1, ctypes.addressof(record)), number, number + 1)
        except BaseException as error:
            code, running.error = -1, error
        with self._lock:
            running.active[number] = False
            self._events += 1
            if code and (self._is_deadlock or not self._ends):
                running.records.append([code, *record[1:]])
        if code:
            self._stop()

    def _outcome(self, running: _Running) -> Sequence[int]:
        """The record of the program that failed first, or one that says that none did."""
        if running.error is not None:
            raise running.error
        if self._is_deadlock:
            self._waits += [(running.queued, record) for record in running.records]
        elif running.records:
            record = running.records[0]
            locked = [(low, high) for low, high, is_writable in self._bounds if not is_writable]
            if record[0] == STRAY and any(low <= record[3] < high for low, high in locked):
                record[0] = READ_ONLY
            return record
        if self._ends:
            raise _Cancelled
        return [0] * 5

    def _deadlock(self) -> KernelRuntimeError:
        """The error for programs that wait for ever."""
        waits = sorted(self._waits, key=lambda wait: (wait[0].device, wait[1][1]))
        places = [queued.kernel.code.sites[record[2]].location for queued, record in waits]
        names = [program_name(record[1], queued.grid) for queued, record in waits]
        if self._on_devices:
            names = [f"device {queued.device}, {name}" for (queued, _), name in zip(waits, names, strict=True)]
        rest = ["all others have ended", "so does one other program", f"so do {len(waits) - 1} other programs"]
        hint = "run it without native=True, which names the element that it waits for" if self._on_devices else None
        if self._threads:
            rest = [f"{text}, and others have not begun" for text in rest]
            hint = f"at most {self._threads} programs run at once here: launch fewer, if they wait for each other"
        error = KernelRuntimeError(
            f"deadlock: {names[0]} waits for a change of memory that nothing makes any more: "
            f"{rest[min(len(waits) - 1, 2)]}",
            places[0],
            hint=hint,
        )
        for place in dict.fromkeys(places[1:]):
            if place is not None and place != places[0]:
                error.add(f"{names[places.index(place)]} waits here", place)
        return error
