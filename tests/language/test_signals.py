"""Waits, signals, fences and ordered accesses: one kernel at every tier, the instructions, and errors."""

from __future__ import annotations

import re
import time
from functools import partial
from itertools import count

import numpy as np
import pytest

import ziggurat as zg

INTS, FLOATS = zg.ptr(zg.i32), zg.ptr(zg.f32)


@zg.kernel
def hand_over(flags, data, more, out, N: zg.constexpr):
    """Program 0 hands data to program 1: by a release, and by a fence before a relaxed signal."""
    at = zg.arange(0, N)
    if zg.program_id(0) == 0:
        zg.store(zg.add(data, at), zg.cast(at, zg.f32))
        zg.signal(flags, 3)
        zg.store(zg.add(more, at), 1.0)
        zg.fence("gpu")
        zg.signal(zg.add(flags, 1), 5, op="add", sem="relaxed")
    else:
        zg.wait(flags, 2, "gt")
        x = zg.load(zg.add(data, at))
        zg.wait(zg.add(flags, 1), 5)
        y = zg.load(zg.add(more, at), at < 2, 4.0, sem="relaxed", scope="sys")
        is_late = zg.wait(zg.add(flags, 1), 6, timeout_ns=100_000) == 0
        zg.store(zg.add(out, at), zg.add(x, y), sem="release", scope="sys")
        zg.signal(zg.add(flags, at), 9, at == 1)
        if is_late:
            zg.store(flags, 7)


@pytest.mark.parametrize("way", ["interpreted", "strict", "native", "sanitized", "simulated"])
def test_one_program_hands_data_to_the_next(way) -> None:
    flags, data, more, out = np.zeros(2, np.int32), *(np.zeros(32, np.float32) for _ in range(3))
    options = {"interpreted": {"interpret": True}, "strict": {"interpret": True, "strict": True}}
    options["sanitized"] = {"sanitize": True}
    if way == "simulated":
        compiled = hand_over.compile(INTS, FLOATS, FLOATS, FLOATS, 32, target="sm_90a", num_warps=2)
        compiled.simulate[(2,)](flags, data, more, out)
    else:
        hand_over[(2,)](flags, data, more, out, 32, **options.get(way, {}))
    assert [*flags] == [7, 9] and [*out] == [1, 2, *range(6, 36)]


def test_instructions_of_waits_and_signals() -> None:
    text = hand_over.compile(INTS, FLOATS, FLOATS, FLOATS, 32, target="sm_90a").ptx
    ordered = r"(?:ld|st|red|fence|bar)\.(?:acquire|release|relaxed|acq_rel|sync)[\w.]*"
    expected = """
        bar.sync st.release.sys.global.b32
        bar.sync fence.acq_rel.gpu bar.sync red.relaxed.sys.global.add.u32
        ld.acquire.sys.global.b32 bar.sync
        ld.acquire.sys.global.b32 bar.sync ld.relaxed.sys.global.b32
        ld.acquire.sys.global.b32 bar.sync bar.sync
        bar.sync st.release.sys.global.b32 bar.sync st.release.sys.global.b32
    """
    assert sorted(re.findall(ordered, text)) == sorted(expected.split())
    assert text.count("nanosleep.u32") == 3 and "atom." not in text


@zg.kernel
def publish(flags, data, out, SEM: zg.constexpr):
    if zg.program_id(0) == 0:
        zg.store(data, 1.0)
        zg.signal(flags, 1, sem=SEM)
    else:
        zg.wait(flags, 1)
        zg.store(out, zg.load(data))


def test_a_missing_release_is_a_race() -> None:
    def run(sem: str) -> None:
        publish[(2,)](np.zeros(1, np.int32), *np.zeros((2, 1), np.float32), sem, interpret=True, strict=True)

    run("release")
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(1, 0, 0\) reads data\[0\], which .* has written"):
        run("relaxed")


@zg.kernel
def never(flags, LIMIT: zg.constexpr):
    zg.wait(flags, 1, timeout_ns=LIMIT)


@pytest.mark.parametrize("options", [{"interpret": True}, {}])
def test_a_wait_that_nothing_ends_is_an_error_with_its_line(options) -> None:
    with pytest.raises(zg.KernelRuntimeError, match="waits for a change of memory that no") as failure:
        never[(2,)](np.zeros(1, np.int32), None, **options)
    assert "zg.wait(flags, 1, timeout_ns=LIMIT)" in str(failure.value)
    never[(2,)](np.zeros(1, np.int32), 1000, **options)


@zg.kernel
def elapsed(out):
    before = zg.globaltimer()
    zg.store(out, 1)
    zg.store(out, zg.globaltimer() - before)


@pytest.mark.parametrize("simulated", [False, True])
def test_the_time_in_which_other_processes_run_does_not_count(simulated, monkeypatch) -> None:
    """A wait of a second must not end early on a loaded machine."""
    for name in ("monotonic_ns", "perf_counter_ns", "time_ns"):
        monkeypatch.setattr(time, name, partial(next, count(0, 3600 * 10**9)))
    out = np.zeros(1, np.int64)
    if simulated:
        elapsed.compile(zg.ptr(zg.i64), target="sm_90a").simulate[(1,)](out)
    else:
        elapsed[(1,)](out, interpret=True)
    assert 0 < out[0] < 60 * 10**9


@zg.kernel
def second(buffer, addresses, out, DTYPE: zg.constexpr):
    """The array `buffer` is known to the launch; its address comes out of the table."""
    table = zg.cast(zg.cast(addresses, zg.i64), zg.ptr(zg.u64))
    both = zg.peer(addresses, zg.arange(0, 2), DTYPE)
    zg.store(out, zg.add(zg.load(zg.peer(table, 1, DTYPE)), zg.sum(zg.load(both), 0)))


@pytest.mark.parametrize("options", [{"interpret": True}, {}])
def test_pointers_out_of_a_table_of_addresses(options) -> None:
    buffer, out = np.array([2, 0, 0, 0, 30], np.float32), np.zeros(1, np.float32)
    address = buffer.ctypes.data
    second[(1,)](buffer, np.array([address, address + 16], np.uint64), out, zg.f32, **options)
    assert out[0] == 62
