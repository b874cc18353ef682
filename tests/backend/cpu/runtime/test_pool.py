"""The threads that run native kernels: chunks, errors, forks, threads of Python, workers that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
from ziggurat.backend.cpu.runtime import native as runtime
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.cpu.runtime.native import Native, native

Made = Callable[..., NativeKernel]
N = 20_000

ADD = """
  %at = getelementptr i32, ptr %p0, i64 %program
  %old = load i32, ptr %at
  %new = add i32 %old, %p1
  store i32 %new, ptr %at
"""
# A program takes about %p1 times some nanoseconds.
SLOW = """
  br label %wait
wait:
  %turn = phi i32 [ 0, %body ], [ %turn.next, %wait ]
  %turn.next = add i32 %turn, 1
  call void asm sideeffect "", ""()
  %again = icmp slt i32 %turn.next, %p1
  br i1 %again, label %wait, label %counted
counted:
  %at = getelementptr i32, ptr %p0, i64 %program
  %old = atomicrmw add ptr %at, i32 1 seq_cst
"""
only_with_pool = pytest.mark.skipif(not runtime.HAS_POOL, reason="the pool is for Linux")


@pytest.fixture(autouse=True)
def threads() -> Generator[None]:
    """Four threads, whatever the machine has."""
    before = zg.get_num_threads()
    zg.set_num_threads(4)
    yield
    zg.set_num_threads(before)


def run(kernel: NativeKernel, count: int, *values: Any) -> None:
    kernel.launch((count, 1, 1), [f"a{number}" for number in range(len(values))], values)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 17, N])
def test_each_program_runs_once(made: Made, count: int):
    x = np.zeros(N, np.int32)
    run(made("ptr<i32> i32", ADD), count, x, 3)
    assert (x[:count] == 3).all() and not x[count:].any()


@only_with_pool
def test_workers_share_long_launches(made: Made):
    kernel = made("ptr<i32> i32", SLOW)
    x = np.zeros(400, np.int32)
    run(kernel, 400, x, 20_000)
    assert (x == 1).all()
    assert native().workers == 3


def test_ordered_kernels_run_on_one_thread_in_order(made: Made):
    body = "  %last = load i64, ptr %p0\n  %next.one = add i64 %last, 1\n  %in.order = icmp eq i64 %last, %program\n"
    body += "  br i1 %in.order, label %go, label %fail\ngo:\n  store i64 %next.one, ptr %p0\n"
    count = np.zeros(1, np.int64)
    run(made("ptr<i64>", body, ordered=True), N, count)
    assert count[0] == N


FAILS = (
    SLOW
    + """
  %wrong = icmp sge i64 %program, 5000
  br i1 %wrong, label %fail, label %fine
fine:
"""
)


def test_the_error_of_the_lowest_program_counts(made: Made):
    kernel = made("ptr<i32> i32", FAILS)
    for _ in range(20):
        x = np.zeros(N, np.int32)
        address = x.ctypes.data
        slots = np.array([address, 40], np.int64)
        launch = np.zeros(8, np.int64)
        record = native().run(kernel.entry, slots.ctypes.data, N, launch.ctypes.data, 0, ordered=False)
        assert record[:2] == [1, 5000]
        assert (x[:5001] == 1).all(), "programs before the failing one have done their work"


def test_several_threads_launch_at_once(made: Made):
    kernel = made("ptr<i32> i32", ADD)

    def work(number: int) -> bool:
        x = np.zeros(2000, np.int32)
        for _ in range(300):
            run(kernel, 2000, x, number)
        return bool((x == 300 * number).all())

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def test_other_threads_of_python_run_meanwhile(made: Made):
    kernel = made("ptr<i32> i32", SLOW)
    x = np.zeros(64, np.int32)
    calls = 0
    over = threading.Event()

    def launch() -> None:
        run(kernel, 64, x, 3_000_000)
        over.set()

    thread = threading.Thread(target=launch)
    thread.start()
    while not over.is_set():
        calls += 1
        time.sleep(0.001)
    thread.join()
    assert calls > 3


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.uname().machine != "x86_64", reason="MXCSR is of x86-64")
def test_programs_keep_subnormals_whatever_the_thread_does(made: Made):
    body = "  %half = fmul float %p1, 0.5\n  %at = getelementptr float, ptr %p0, i64 %program\n"
    body += "  store float %half, ptr %at\n"
    kernel = made("ptr<f32> f32", body)
    tiny = float(np.finfo(np.float32).tiny)
    torch = require("torch")
    x = np.zeros(4096, np.float32)
    assert torch.set_flush_denormal(True)
    try:
        run(kernel, 4096, x, tiny)
        flushed = float((torch.tensor([tiny]) * 0.5)[0])
    finally:
        torch.set_flush_denormal(False)
    assert (x == np.float32(tiny / 2)).all()
    assert flushed == 0.0, "the launch has restored the thread's own setting"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_launches(made: Made):
    kernel = made("ptr<i32> i32", SLOW)
    x = np.zeros(400, np.int32)
    run(kernel, 400, x, 20_000)
    child = os.fork()
    if not child:
        signal.alarm(60)
        run(kernel, 400, x, 20_000)
        again = made("ptr<i32> i32", ADD)
        run(again, 400, x, 5)
        os._exit(0 if (x == 7).all() and native().workers == 3 * runtime.HAS_POOL else 1)
    assert os.waitpid(child, 0)[1] == 0
    run(kernel, 400, x, 20_000)
    assert (x == 2).all()


@only_with_pool
def test_a_worker_that_ends_is_an_error_and_is_replaced(made: Made):
    """The program ends its thread, unless that is the launching one."""
    body = (
        SLOW
        + """
  %this = call i64 @pthread_self()
  %is.first = icmp eq i64 %this, %p2
  br i1 %is.first, label %stay, label %go
go:
  call void @pthread_exit(ptr null)
  unreachable
stay:
"""
    )
    more = "declare i64 @pthread_self()\ndeclare void @pthread_exit(ptr)"
    kernel = made("ptr<i32> i32 i64", body, more=more)
    x = np.zeros(400, np.int32)
    with pytest.raises(zg.KernelRuntimeError, match="has ended in the middle"):
        run(kernel, 400, x, 100_000, threading.get_ident())
    x[:] = 0
    run(made("ptr<i32> i32", SLOW), 400, x, 20_000)
    assert (x == 1).all()
    assert native().workers == 3


def test_scratch_memory_is_of_each_thread(made: Made):
    """Each program writes its number to its scratch memory, and later finds it there."""
    body = (
        SLOW.replace("  br label %wait\nwait:", "  store i64 %program, ptr %scratch\n  br label %wait\nwait:")
        + """
  %kept = load i64, ptr %scratch
  %address = ptrtoint ptr %scratch to i64
  %rest = and i64 %address, 63
  %aligned = icmp eq i64 %rest, 0
  %same = icmp eq i64 %kept, %program
  %good = and i1 %same, %aligned
  br i1 %good, label %fine, label %fail
fine:
"""
    )
    for scratch in (64, 1 << 20):
        x = np.zeros(400, np.int32)
        run(made("ptr<i32> i32", body, scratch=scratch), 400, x, 3000)
        assert (x == 1).all()


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2", 1 << 20, None])
def test_numbers_of_threads_that_are_refused(count: Any):
    with pytest.raises(zg.LaunchError, match="the number of threads must be an integer from 1 to 1024"):
        zg.set_num_threads(count)
    assert zg.get_num_threads() == 4


def test_one_thread_starts_no_workers():
    text = (
        "import numpy as np, ziggurat as zg\n"
        "zg.set_num_threads(1)\n"
        "from ziggurat.backend.cpu.runtime.native import native\n"
        "print(native().workers, zg.get_num_threads())\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "0 1\n"


def test_threads_of_python_where_there_is_no_pool(made: Made, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runtime, "HAS_POOL", False)
    other = Native()
    kernel = made("ptr<i32> i32", FAILS)
    x = np.zeros(N, np.int32)
    slots = np.array([x.ctypes.data, 40], np.int64)
    launch = np.zeros(8, np.int64)
    assert other.run(kernel.entry, slots.ctypes.data, 4000, launch.ctypes.data, 0, ordered=False) == [0] * 5
    assert (x[:4000] == 1).all() and not x[4000:].any()
    record = other.run(kernel.entry, slots.ctypes.data, N, launch.ctypes.data, 0, ordered=False)
    assert record[0] == 1 and record[1] == 5000
    other.run(kernel.entry, slots.ctypes.data, 4000, launch.ctypes.data, 0, ordered=True)
    other.forked()


def test_many_random_launches(made: Made):
    """Rounds of all sizes, one after the other: no program is lost or run twice."""
    kernel = made("ptr<i32> i32", SLOW)
    random = np.random.default_rng(0)
    x = np.zeros(3000, np.int32)
    expected = np.zeros(3000, np.int32)
    for _ in range(500):
        count, turns = int(random.integers(1, 3000)), int(random.integers(1, 60))
        run(kernel, count, x, turns)
        expected[:count] += 1
    np.testing.assert_array_equal(x, expected)


def test_memory_that_is_not_there(made: Made):
    with pytest.raises(zg.ResourceError, match=r"needs .* bytes of memory for each of its threads"):
        run(made("ptr<i32> i32", ADD, scratch=1 << 60), 1, np.zeros(1, np.int32), 1)


def test_addresses_outlive_their_kernel_in_no_launch(made: Made):
    """A kernel's code is there as long as the kernel, and kernels come and go."""
    for _ in range(50):
        x = np.zeros(8, np.int32)
        run(made("ptr<i32> i32", ADD), 8, x, 1)
        assert (x == 1).all()
