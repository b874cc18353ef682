"""Threads of the system, their sleep on words of memory, and their state, as functions of LLVM text."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Final

import attrs

from ziggurat.backend.llvm.functions import Function, define
from ziggurat.backend.llvm.routines import Number

_CLOCK: Final = {"linux": 1, "darwin": 6}.get(sys.platform)  # The system's clock that only moves on.
_WAIT, _WAKE = 128, 129  # Of futexes that only this process has.
_BLOCK, _SET = 0, 2  # Of masks of signals.
_SIGNALS: Final = 128  # The bytes of a set of signals.


@attrs.frozen
class Machine:
    """The facts of a machine: the number of the futex system call, the instruction of a waiting loop, and the setting
    of the floating-point control register to its default (round to nearest, keep subnormals, no traps). `plain_floats`
    gives the function that restores it."""

    futex: int
    pause: tuple[str, tuple[int, ...]]
    plain_floats: Callable[[Function], Callable[[], object]]


def _plain_mxcsr(f: Function) -> Callable[[], object]:
    saved, plain = f.local("i32"), f.local("i32", 8064)
    f.call("llvm.x86.sse.stmxcsr", saved.pointer)
    f.call("llvm.x86.sse.ldmxcsr", plain.pointer)
    return lambda: f.call("llvm.x86.sse.ldmxcsr", saved.pointer)


def _plain_fpcr(f: Function) -> Callable[[], object]:
    saved = f.call("llvm.aarch64.get.fpcr")
    f.call("llvm.aarch64.set.fpcr", 0)
    return lambda: f.call("llvm.aarch64.set.fpcr", saved)


_X86 = Machine(202, ("llvm.x86.sse2.pause", ()), _plain_mxcsr)
_ARM = Machine(98, ("llvm.aarch64.hint", (1,)), _plain_fpcr)
_MACHINE: Final = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}.get(platform.machine())
HAS_THREADS: Final = sys.platform == "linux" and _MACHINE is not None


def plain_floats(f: Function) -> Callable[[], object]:
    """Set the floating-point control register to its default; the result restores it."""
    return _MACHINE.plain_floats(f) if _MACHINE else lambda: None


def pause(f: Function) -> None:
    """Let a waiting loop leave the processor to others."""
    assert _MACHINE
    name, operands = _MACHINE.pause
    f.call(name, *operands)


def _futex(f: Function, word: Number, operation: int, value: Number, time: Number | None) -> None:
    assert _MACHINE
    f.call("syscall", _MACHINE.futex, word, f.value("i32", operation), value, time, None, f.value("i32", 0))


@define("void", "ptr i32 ptr")
def wait(f: Function, word: Number, value: Number, time: Number) -> None:
    """Sleep while a word has a value; no longer than a time, if it is not null."""
    _futex(f, word, _WAIT, value, time)


@define("void", "ptr i64")
def wake(f: Function, word: Number, count: Number) -> None:
    """Wake as many threads that sleep on a word."""
    _futex(f, word, _WAKE, count.to("trunc", "i32"), None)


@define("i1", "ptr")
def start(f: Function, function: Number) -> None:
    """Start a thread that gets no signals. The result tells whether the system has let it."""
    thread = f.local("i64")
    signals, before = f.room(_SIGNALS), f.room(_SIGNALS)
    f.call("sigfillset", signals)
    f.call("pthread_sigmask", _BLOCK, signals, before)
    started = f.call("pthread_create", thread.pointer, None, function, None).test("eq", 0)
    f.call("pthread_sigmask", _SET, before, None)
    with f.when(started):
        f.call("pthread_detach", thread.get())
    f.give(started)


@define("i64")
def now(f: Function) -> None:
    """Nanoseconds of a clock that only moves on; cycles of the processor where the system has none that is known."""
    if _CLOCK is None:
        f.give(f.call("llvm.readcyclecounter"))
        return
    time = f.room(16)
    f.call("clock_gettime", _CLOCK, time)
    f.give(f.load("i64", time) * 1_000_000_000 + f.load("i64", time, 8))
