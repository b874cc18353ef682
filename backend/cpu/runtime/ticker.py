"""Jobs without Python's lock, and the ticker, a thread that lets them run handlers of signals, as LLVM text.

The ticker sets the word of the main thread's host (`host.py`) every 50 milliseconds. It ends its ticks after two
seconds without launches; the next launch wakes it.
"""

from __future__ import annotations

from typing import Final

from ziggurat.backend.cpu.code import HOST, LAUNCH
from ziggurat.backend.cpu.runtime.host import MAIN, MAIN_HOST, OTHER_HOST
from ziggurat.backend.cpu.runtime.pool import JOB, forget, run, run_programs
from ziggurat.backend.cpu.runtime.threads import start, wait, wake
from ziggurat.backend.llvm.functions import Function, Global, Place, define
from ziggurat.backend.llvm.routines import Number

_TICK: Final = 50_000  # Microseconds.
_IDLE: Final = 40  # Ticks without launches until the ticker sleeps.
_ACTIVE: Final = Global("active", "i64")  # Launches of the main thread: one may be within another's handler.
_TICKING: Final = Global("ticking", "i32")  # Whether the ticker is awake; it sleeps on this word.
_HAS_TICKER: Final = Global("has_ticker", "i32")


def _main_word(f: Function) -> Place:
    return HOST.at(f.value("ptr", MAIN_HOST)).place("word")


@define("i64", "ptr", linkage="external")
def zg_unlocked(f: Function, at: Number) -> None:
    """Run a job without Python's lock. If an exception is set in Python afterwards, it counts, not the result."""
    thread = f.call("PyEval_SaveThread")
    launch = LAUNCH.at(JOB.at(at)["launch"])
    with f.unless(f.place(MAIN).get().test("eq", f.call("PyThread_get_thread_ident"))):
        launch["host"] = f.value("ptr", OTHER_HOST)
        code = f.call(run, at)
        f.call("PyEval_RestoreThread", thread)
        f.give(code)
    launch["host"] = f.value("ptr", MAIN_HOST)
    active = f.place(_ACTIVE)
    before = active.get()
    active.store(before + 1, "monotonic")
    with f.when(f.place(_TICKING).load("monotonic").test("eq", 0)):
        f.call(_start_ticks)
    code = f.call(run, at)
    active.store(before, "monotonic")
    _main_word(f).store(0, "monotonic")
    f.call("PyEval_RestoreThread", thread)
    f.give(code)


@define("i64", "ptr i64 i64", linkage="external")
def zg_unlocked_range(f: Function, at: Number, first: Number, end: Number) -> None:
    """Run some programs on this thread, without Python's lock."""
    thread = f.call("PyEval_SaveThread")
    code = f.call(run_programs, at, first, end)
    f.call("PyEval_RestoreThread", thread)
    f.give(code)


@define("void", linkage="external")
def zg_forked(f: Function) -> None:
    """Forget the pool and the ticker: a child process has only the thread that was forked."""
    f.place(_TICKING).set(0)
    f.place(_HAS_TICKER).set(0)
    this, active = f.call("PyThread_get_thread_ident"), f.place(_ACTIVE)
    active.set(f.place(MAIN).get().test("eq", this).select(active.get(), 0))
    f.place(MAIN).set(this)
    forget(f)


@define("void", attributes="noinline cold")
def _start_ticks(f: Function) -> None:
    f.place(_TICKING).store(1)
    has_ticker = f.place(_HAS_TICKER)
    with f.when(has_ticker.get().test("ne", 0)):
        f.call(wake, _TICKING, 1)
        f.give()
    has_ticker.set(1)
    f.call(start, _ticker)


@define("ptr", "ptr")
def _ticker(f: Function, unused: Number) -> None:
    active, ticking, idle = f.place(_ACTIVE), f.place(_TICKING), f.local("i64", 0)
    with f.loop() as loop:
        f.call("usleep", _TICK)
        with f.when(active.load("monotonic").test("ne", 0)):
            _main_word(f).claim(0, 1, "monotonic")
            idle.set(0)
            loop.next()
        idle.set(idle.get() + 1)
        loop.next(idle.get().test("ule", _IDLE))
        # A launch that has seen the ticker awake has begun by the end of one more tick, and is seen.
        ticking.store(0)
        f.call("usleep", _TICK)
        idle.set(0)
        with f.when(active.load().test("ne", 0)):
            ticking.store(1)
            loop.next()
        with f.loop() as sleep:
            f.call(wait, _TICKING, 0, None)
            sleep.stop(ticking.load().test("ne", 0))
