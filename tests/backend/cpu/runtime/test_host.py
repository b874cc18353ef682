"""Signals during native launches, prints that fail, and the clock."""

from __future__ import annotations

import functools
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu
from ziggurat.backend.cpu.runtime import kernels
from ziggurat.backend.cpu.runtime import native as runtime
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.cpu.runtime.native import Native

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread(),
    reason="needs signals",
)
LONG = 1 << 30


class Rung(Exception):
    """The handler's exception."""


@contextmanager
def alarm(after: float = 0.1) -> Generator[list[float]]:
    """A handler that raises `Rung` after some seconds; the times of its calls."""
    times: list[float] = []

    def ring(*unused: Any) -> None:
        times.append(time.perf_counter())
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        yield times
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@zg.kernel
def nested(x_ptr, n, m):
    total = 0.0
    for i in range(n):
        for j in range(m):
            total = total * 0.5 + zg.load(x_ptr)
    zg.store(zg.add(x_ptr, zg.program_id(0)), total)


@zg.kernel
def collatz(x_ptr, n, m):
    number = n
    while number * number != m - number:
        number += 2
    zg.store(x_ptr, zg.cast(number, zg.f32))


BLOCKS = """module ()void -> {
    tt.func @"blocks" (%x : ptr<f32>)void -> {
        %0 : i32 = arith.constant @0;
        %1 : i32 = arith.constant @1;
        cf.br ^a(%0);
      ^a(%2 : i32):
        %3 : i32 = arith.addi %2 %1;
        cf.br ^b;
      ^b:
        %4 : i32 = arith.addi %3 %1;
        %5 : i1 = arith.cmpi %4 %1 @ne;
        cf.cond_br %5 ^a(%4) ^c;
      ^c:
        tt.return;
    };
    unreachable;
};"""


@zg.kernel
def printing(x_ptr, n, m):
    for i in range(n):
        for j in range(m):
            zg.store(x_ptr, zg.load(x_ptr) * 0.5)
        zg.device_print("i", i)


@functools.cache
def compiled(kernel: Any) -> Any:
    """The native code of a kernel or a text, for all arguments: nothing is compiled while the alarm is set."""
    if isinstance(kernel, str):
        return zg.compile(zg.parse(kernel), target="cpu")
    return kernel.compile(zg.ptr(zg.f32), zg.i32, zg.i32, target="cpu")


X = np.zeros(1 << 20, np.float32)
LAUNCHES: dict[str, Callable[[], Any]] = {
    "a loop in a program": lambda: compiled(nested)[1,](X, LONG, 10),
    "the inner loop": lambda: compiled(nested)[1,](X, 1, LONG),
    "programs on two threads": lambda: compiled(nested)[2,](X, LONG, 1000),
    "a launch of many programs": lambda: compiled(nested)[1 << 20,](X, 100, 1000),
    "while": lambda: compiled(collatz)[1,](X, 1, 0),
    "blocks": lambda: compiled(BLOCKS)[1,](X),
    "prints": lambda: compiled(printing)[1,](X, LONG, 100_000),
    "prints all the time": lambda: compiled(printing)[1,](X, LONG, 0),
}


@pytest.fixture(autouse=True)
def all_compiled() -> None:
    for kernel in (nested, collatz, printing, BLOCKS):
        compiled(kernel)


@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=list(LAUNCHES))
@pytest.mark.parametrize("threads", [1, 2])
def test_a_handler_that_raises_ends_the_launch(launch: Callable[[], Any], threads: int):
    before = zg.get_num_threads()
    zg.set_num_threads(threads)
    try:
        with alarm() as times, pytest.raises(Rung):
            launch()
        assert time.perf_counter() - times[0] < 2, "a tenth of a second where nothing else runs"
    finally:
        zg.set_num_threads(before)
    X[0] = 3
    compiled(nested)[4,](X, 1, 1)
    assert X[0] == 3, "later launches run"
    X[:] = 0


def test_ctrl_c_is_an_interrupt_soon_after_the_signal():
    program = (
        "import os, signal, threading, time, numpy as np, ziggurat as zg, sys\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "from test_host import nested, X\n"
        # A shell makes jobs in the background ignore the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "nested[2,](X, 16, 1000)\n"
        "threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    nested[2,](X, 1 << 30, 1000)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr
    assert time.perf_counter() - start < 30


def test_the_launch_goes_on_where_a_handler_does_not_raise():
    """The handler itself launches the kernel, from within the launch."""
    rung: list[float] = []
    other, x = np.zeros(8, np.float32), np.zeros(4096, np.float32)

    def ring(*unused: Any) -> None:
        other[1:] = 1
        compiled(nested)[8,](other, 1, 1)
        rung.append(float(other[7]))

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        start = time.perf_counter()
        while not rung and time.perf_counter() - start < 20:
            x[1:] = 1
            compiled(nested)[4096,](x, 100, 1000)
            assert not x.any(), "each program has run"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == [0.0]


def test_launches_of_other_threads_go_on_while_the_main_one_is_interrupted():
    x, done = np.ones(64, np.float32), threading.Event()

    def work() -> None:
        compiled(nested)[64,](x, 100, 20_000)
        done.set()

    thread = threading.Thread(target=work)
    with alarm(), pytest.raises(Rung):
        thread.start()
        compiled(nested)[2,](X, LONG, 1000)
    thread.join()
    assert done.is_set() and x[63] > 0


@pytest.fixture
def without_pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(runtime, "HAS_POOL", False)
    other = Native()
    monkeypatch.setattr(kernels, "native", lambda: other)
    return nested.compile(zg.ptr(zg.f32), zg.i32, zg.i32, target="cpu")


def test_threads_of_python_where_there_is_no_pool(without_pool: Any):
    for programs in (1, 8):
        with alarm() as times, pytest.raises(Rung):
            without_pool[programs,](X, LONG, 1000)
        assert time.perf_counter() - times[0] < 2
    without_pool[2,](X, 1, 1)


@pytest.mark.parametrize("warnings", [False, True])
def test_a_launch_in_a_handler_does_not_end_the_other_where_there_is_no_pool(without_pool: Any, warnings: bool):
    """Nor where a second handler ends the launch in the first one, which catches its exception."""
    other, x = np.zeros(8, np.float32), np.ones(4096, np.float32)
    x[0], rung = 0, []

    def ring(*unused: Any) -> None:
        if rung and warnings:
            rung.append("raised")
            raise Rung
        rung.append("rung")
        if warnings:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Rung):
                without_pool[8,](other, 10_000, 10_000)
        else:
            without_pool[8,](other, 1, 1)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        without_pool[4096,](x, 100, 1000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == ["rung", "raised"][: 1 + warnings] and not x.any(), "each program has run"


class Broken(io.StringIO):
    """An output that cannot be written to."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("interpret", [False, True])
def test_an_output_that_fails_raises_what_print_would(interpret: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", Broken())
    with pytest.raises(BrokenPipeError):
        printing[1,](X, 3, 0, interpret=interpret)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    with pytest.raises(ValueError, match="closed file"):
        printing[2,](X, 3, 0, interpret=interpret)


@zg.kernel
def clock(out_ptr):
    first = zg.globaltimer()
    zg.store(out_ptr, first)
    zg.store(zg.add(out_ptr, 1), zg.globaltimer())


@pytest.mark.skipif(sys.platform != "linux", reason="the clock of perf_counter_ns")
def test_the_clock_counts_nanoseconds():
    out = np.zeros(2, np.int64)
    clock[1,](out)
    before = time.perf_counter_ns()
    clock[1,](out)
    after = time.perf_counter_ns()
    assert before <= out[0] <= out[1] <= after


@triton.jit
def strays(x_ptr, AT: tl.constexpr):
    tl.store(x_ptr + AT + tl.program_id(0), 1.0)


def test_what_two_launches_at_once_leave_out_is_told_apart(monkeypatch: pytest.MonkeyPatch):
    """A tolerant launch notes the stray accesses of its own arrays, whatever other launches of the kernel note."""
    kernel = NativeKernel(compile_cpu(strays.triton(zg.ptr(zg.f32), 8), CpuOptions(tolerant=True)), "strays")
    results: list[tuple[int, Any]] = []
    messages = NativeKernel.warn
    monkeypatch.setattr(
        NativeKernel, "warn", lambda self, rows, *argument: results.append((argument[2][0].ctypes.data, rows))
    )

    def work(number: int) -> None:
        x = np.zeros(8, np.float32)
        for _ in range(300):
            kernel.launch((2000 + number, 1, 1), ["x"], [x])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(results) == 1200
    for address, rows in results:
        assert [row[:4] for row in rows] == [(0, 0, 0, address + 32)]
    monkeypatch.setattr(NativeKernel, "warn", messages)
    with pytest.warns(zg.ZigguratWarning, match=r"program \(0, 0, 0\) writes x\[8\], but x has 8 elements"):
        kernel.launch((2, 1, 1), ["x"], [np.zeros(8, np.float32)])
