"""Native programs that wait for memory that another program writes, before or after them."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import numpy as np
import pytest
from run_cpu import run_cpu

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu import control
from ziggurat.backend.cpu.runtime import devices
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.errors import KernelRuntimeError

P = zg.ptr(zg.i32)


@triton.jit
def by_load(flags, out, STEP: tl.constexpr):
    i = tl.program_id(0)
    if i + STEP >= 0:
        while tl.load(flags + i + STEP) == 0:
            pass
    tl.store(out + i, i)
    tl.store(flags + i, 1)


@triton.jit
def by_volatile_load(flags, out, STEP: tl.constexpr):
    i = tl.program_id(0)
    done = i + STEP < 0
    while not done:
        done = tl.load(flags + i + STEP, volatile=True) != 0
    tl.store(out + i, i)
    tl.store(flags + i, 1)


@triton.jit
def by_exchange(flags, out, STEP: tl.constexpr):
    i = tl.program_id(0)
    while tl.atomic_cas(flags + tl.maximum(i + STEP, 0), 1, 1) != (i + STEP >= 0):
        pass
    tl.store(out + i, i)
    tl.store(flags + i, 1)


@triton.jit
def by_sum(flags, out, STEP: tl.constexpr):
    i = tl.program_id(0)
    count = 0
    while tl.atomic_add(flags + tl.maximum(i + STEP, 0), 0) != (i + STEP >= 0):
        count += 1
    tl.store(out + i, i + count)
    tl.store(flags + i, 1)


@triton.jit
def by_block(flags, out, STEP: tl.constexpr):
    i = tl.program_id(0)
    at = tl.arange(0, 8)
    while tl.sum(tl.load(flags + at, volatile=True) * (at <= i + STEP)) <= i + STEP:
        pass
    tl.store(out + i, i)
    tl.store(flags + i, 1)


@triton.jit
def with_lock(flags, out, STEP: tl.constexpr):
    while tl.atomic_cas(flags, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) * 3 + tl.program_id(0))
    if STEP < 0:
        tl.atomic_xchg(flags, 0)


def outcome(runs: Any, kernel: Any, step: int) -> tuple[list[int], str, Any]:
    flags, out = np.zeros(16, np.int32), np.zeros(16, np.int32)
    try:
        result = runs(kernel.triton(P, P, step), (8,), [flags, out])
    except KernelRuntimeError as error:
        return [*flags, *out], error.summary.splitlines()[0], None
    return [*flags, *out], "", result


@pytest.mark.parametrize("kernel", [by_load, by_volatile_load, by_exchange, by_sum, by_block, with_lock])
@pytest.mark.parametrize("step", [-1, 1])
def test_waiting_for_an_earlier_program_and_for_a_later_one(kernel: Any, step: int):
    mine, text, code = outcome(run_cpu, kernel, step)
    if step > 0:  # Here programs run one after the other.
        assert re.match(r"program \([01], 0, 0\): the loop waits for a change of memory", text)
    theirs, why, _ = outcome(lambda model, grid, argument: run(model, None, grid, argument), kernel, step)
    assert mine == theirs and bool(why) == bool(text) == (step > 0)
    assert step < 0 or re.match(r"deadlock: program \([01], 0, 0\) waits .* so do [67] other programs", why)
    assert code is None or code.ordered


def test_where_programs_run_in_order_a_wait_says_what_to_do():
    """On Windows, and where code is run without threads."""
    flags, out = np.zeros(16, np.int32), np.zeros(16, np.int32)
    with pytest.raises(KernelRuntimeError, match="hint: pass interpret=True if a later program ends the wait"):
        run_cpu(by_load.triton(P, P, 1), (8,), [flags, out])


@triton.jit
def meets_twice(arrived, x, out, SIZE: tl.constexpr):
    """Each program sums what all have stored, twice, with a barrier of the grid before."""
    i, count = tl.program_id(0), tl.num_programs(0)
    for meeting in range(1, 3):
        tl.store(x + i, i + meeting)
        tl.atomic_add(arrived, 1, sem="release")
        while tl.atomic_add(arrived, 0, sem="acquire") < (2 * meeting - 1) * count:
            pass
        at = tl.arange(0, SIZE)
        tl.store(out + i * 2 + meeting - 1, tl.sum(tl.load(x + at, at < count, 0)))
        tl.atomic_add(arrived, 1, sem="release")
        while tl.atomic_add(arrived, 0, sem="acquire") < 2 * meeting * count:
            pass


@pytest.mark.parametrize("options", [
    {}, {"launch_cooperative_grid": True}, {"interpret": True}, {"strict": True}, {"sanitize": True},
])  # fmt: skip
def test_programs_meet_at_a_barrier_of_the_grid(options: Any):
    count = 40 if options.keys() <= {"launch_cooperative_grid"} else 5
    arrived, x, out = np.zeros(1, np.int32), np.zeros(count, np.int32), np.zeros((count, 2), np.int32)
    meets_twice[(count,)](arrived, x, out, 64, **options)
    assert (out == [sum(range(1, count + 1)), sum(range(2, count + 2))]).all()


def test_a_launch_waits_for_later_programs_and_tells_of_a_deadlock():
    flags, out = np.zeros(16, np.int32), np.zeros(16, np.int32)
    flags[8] = 1
    by_volatile_load[(8,)](flags, out, 1)
    assert out.tolist() == [*range(8), *[0] * 8]
    flags[:] = 0
    with pytest.raises(KernelRuntimeError, match=r"deadlock: program \(0, 0, 0\) waits .* so do 7 other programs"):
        by_volatile_load[(8,)](flags, out, 1)


def test_a_deadlock_for_want_of_threads_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices, "MAX_THREADS", 4)
    message = r"so do 3 other programs, and others have not begun(.|\n)*hint: at most 4 programs run at once"
    with pytest.raises(KernelRuntimeError, match=message):
        all_meet[(5,)](np.zeros(1, np.int32), 5)
    all_meet[(4,)](np.zeros(1, np.int32), 4)


def test_a_system_without_more_threads(monkeypatch: pytest.MonkeyPatch):
    start, threads = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(threads) == 4:  # One waits for the launch.
            raise RuntimeError("can't start new thread")
        threads.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(KernelRuntimeError, match=r"others have not begun(.|\n)*hint: at most 3 programs run at once"):
        all_meet[(5,)](np.zeros(1, np.int32), 5)


@zg.kernel
def first_waits_for_last(flag):
    if zg.program_id(0) == 0:
        zg.wait(flag, 1, "ge", scope="gpu")
    if zg.program_id(0) == 2:
        zg.atomic_add(flag, 1)


def test_a_thread_that_is_between_programs_is_no_deadlock(monkeypatch: pytest.MonkeyPatch):
    """The system may not run a thread for long: here the one that has run program 1, and is to begin program 2."""
    program = devices._Launches._program

    def run_and_rest(self: Any, running: Any, number: int, parts: Any) -> None:
        program(self, running, number, parts)
        if number == 1:
            time.sleep(0.5)

    monkeypatch.setattr(devices._Launches, "_program", run_and_rest)
    monkeypatch.setattr(devices, "MAX_THREADS", 2)
    flag = np.zeros(1, np.int32)
    first_waits_for_last[(3,)](flag)
    assert flag[0] == 1


@zg.kernel
def all_meet(flag, n):
    zg.atomic_add(flag, 1)
    zg.wait(flag, n, "ge", scope="gpu")


def test_a_failing_program_ends_those_that_wait_for_it():
    flags, out = np.zeros(16, np.int32), np.zeros(16, np.int32)
    with pytest.raises(KernelRuntimeError, match="assertion failed: the last one"):
        waits_for_a_failure[(4,)](flags, out, debug=True)


@triton.jit
def waits_for_a_failure(flags, out):
    i = tl.program_id(0)
    tl.device_assert(i < 3, "the last one")
    while tl.load(flags + 3, volatile=True) == 0:
        pass


def test_programs_that_need_not_wait_run_in_their_order():
    flags, out = np.zeros(512, np.int32), np.zeros(512, np.int32)
    by_exchange[(512,)](flags, out, -1)
    assert (out == np.arange(512)).all()


@triton.jit
def counts_and_waits(flags, out, n):
    i = tl.program_id(0)
    rounds = 0
    while rounds < n:
        rounds += tl.load(out + 15)
    if i > 0:
        while tl.load(flags + i - 1) == 0:
            pass
    tl.store(out + i, rounds)
    tl.store(flags + i, 1)


def test_only_loops_that_wait_have_the_limit_of_waits():
    count = 2 * control.MAX_WAITS
    flags, out = np.zeros(8, np.int32), np.ones(16, np.int32)
    code = run_cpu(counts_and_waits.triton(P, P, zg.i32), (8,), [flags, out, count])
    assert code.ordered and (out[:8] == count).all()


@triton.jit
def searches(x, out, n):
    i = tl.program_id(0)
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if tl.load(x + middle) < i:
            low = middle + 1
        else:
            high = middle
    while tl.load(x + low) <= i:
        low += 1
    tl.store(out + i, low)


def test_a_search_is_no_waiting():
    x, out = np.sort(np.random.default_rng(0).integers(0, 8, 64)).astype(np.int32), np.zeros(8, np.int32)
    code = run_cpu(searches.triton(P, P, zg.i32), (7,), [x, out, 64])
    assert not code.ordered
    np.testing.assert_array_equal(out[:7], np.searchsorted(x, np.arange(7), "right"))


@zg.kernel
def goes_on(x_ptr):
    i = 0
    while zg.load(zg.add(x_ptr, i & 1)) == 0:
        i += 1


# Blocks `a` and `c` are a loop, in which `b` waits or counts.


@triton.jit
def stores_and_asks(flags, out):
    while tl.load(flags) < 3:
        tl.store(flags, tl.load(flags) + 1)
    tl.store(out, tl.load(flags))


def test_a_loop_that_stores_does_not_wait():
    flags, out = np.zeros(8, np.int32), np.zeros(16, np.int32)
    code = run_cpu(stores_and_asks.triton(P, P), (1,), [flags, out])
    assert not code.ordered and out[0] == 3
