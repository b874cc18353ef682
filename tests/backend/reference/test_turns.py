"""Programs of one launch that wait for later ones take turns."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference import machine, turns

MODES = [{"interpret": True}, {"strict": True}]


@zg.kernel
def down(flags, out, last):
    """Each program waits for the next one, and prints before and after."""
    i = zg.program_id(0)
    print("begins", i, end="; ")
    zg.wait(flags + i + 1, 1, scope="gpu")
    zg.store(out + i, zg.load(out + i + 1) + i)
    print("ends", i)
    zg.device_assert(i != last, "stop")
    zg.signal(flags + i, 1, scope="gpu")


def arrays(count: int) -> tuple[Any, Any]:
    flags, out = np.zeros(count + 1, np.int32), np.zeros(count + 1, np.int32)
    flags[count] = 1
    return flags, out


@pytest.mark.parametrize("mode", MODES)
def test_prints_are_in_the_order_of_the_programs(capsys: pytest.CaptureFixture[str], mode: Any) -> None:
    flags, out = arrays(8)
    down[(8,)](flags, out, -1, **mode)
    assert out.tolist() == [sum(range(i, 8)) for i in range(9)]
    assert capsys.readouterr().out == "".join(f"begins {i}; ends {i}\n" for i in range(8))


@pytest.mark.parametrize("mode", MODES)
def test_a_program_that_fails_ends_those_that_wait(mode: Any) -> None:
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(5, 0, 0\): device-side assertion failed: stop"):
        down[(8,)](*arrays(8), 5, **mode)


def test_a_deadlock_names_the_places_of_the_waits() -> None:
    flags, out = arrays(3)
    flags[3] = 0
    with pytest.raises(zg.KernelRuntimeError, match=r"deadlock: program \(0, 0, 0\).* 2 other programs") as info:
        down[(3,)](flags, out, -1, interpret=True)
    assert "zg.wait(flags + i + 1" in str(info.value) and "program (1, 0, 0) waits here" in str(info.value)


@zg.kernel
def overflows(flags, out, n):
    i = zg.program_id(0)
    if i == 0:
        zg.wait(flags, 1, scope="gpu")
        zg.store(out + (n * 65536 + 1 + i), 1)
    zg.signal(flags, 1, scope="gpu")


def test_an_overflow_is_looked_for_in_turns_too() -> None:
    with pytest.raises(zg.KernelRuntimeError, match="overflow"):
        overflows[(2,)](np.zeros(1, np.int32), np.zeros(4, np.int32), 50000, interpret=True)


@zg.kernel
def halves(flags, words, bytes_):
    """One program writes words, and the other reads their bytes: without `flags`, a race."""
    i = zg.program_id(0)
    at = zg.arange(0, 4)
    if i == 0:
        zg.store(words + at, at)
        zg.debug_barrier()
        zg.store(words + 4 + at, zg.load(words + at))
        zg.wait(flags, 1, scope="gpu")
        zg.store(words + at, zg.load(words + at) + 1)
    else:
        zg.store(bytes_ + at, zg.cast(at, zg.i8))
        zg.signal(flags, 1, scope="gpu")


def test_programs_that_divide_the_units_of_memory_are_checked_in_turns() -> None:
    words = np.zeros(8, np.int32)
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(1, 0, 0\) writes .*, which program \(0, 0, 0\) has"):
        halves[(2,)](np.zeros(1, np.int32), words, words.view(np.int8), strict=True)
    words[:], apart = 0, np.zeros(32, np.int8)
    halves[(2,)](np.zeros(1, np.int32), words, apart, strict=True)
    assert words.tolist() == [1, 2, 3, 4, 0, 1, 2, 3] and apart[:4].tolist() == [0, 1, 2, 3]


@zg.kernel
def times_out(flags, out):
    i = zg.program_id(0)
    if i == 0:
        zg.store(out, zg.cast(zg.wait(flags, 1, scope="gpu", timeout_ns=1000), zg.i32))
        zg.store(out + 1, zg.cast(zg.wait(flags, 2, scope="gpu", timeout_ns=1000), zg.i32))
    else:
        zg.signal(flags, 1, scope="gpu")


def test_time_passes_where_all_programs_wait() -> None:
    out = np.full(2, -1, np.int32)
    times_out[(3,)](np.zeros(1, np.int32), out, interpret=True)
    assert out.tolist() == [1, 0]


def test_more_programs_than_there_may_be_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_THREADS", 4)
    with pytest.raises(zg.LaunchError, match="at most 4 programs can wait for each other"):
        down[(8,)](*arrays(8), -1, interpret=True)
    down[(4,)](*arrays(4), -1, interpret=True)


def test_threads_that_the_process_does_not_get(monkeypatch: pytest.MonkeyPatch) -> None:
    start, starts = threading.Thread.start, iter(range(8))

    def start_few(thread: threading.Thread) -> None:
        if next(starts) >= 3:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)
    with pytest.raises(zg.LaunchError, match="at most 3 programs can wait for each other"):
        down[(8,)](*arrays(8), -1, interpret=True)


@zg.kernel
def sums(x, out, n):
    total = 0
    for i in range(n):
        total += zg.load(x + i, volatile=True)
    zg.store(out + zg.program_id(0), total)


def test_ordered_reads_of_an_array_are_no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_MAX_POLLS", 16)
    monkeypatch.setattr(turns, "MAX_IDLE", 16)
    out = np.zeros(4, np.int32)
    sums[(4,)](np.arange(100, dtype=np.int32), out, 100, interpret=True)
    assert out.tolist() == [4950] * 4
