"""The native part of the runtime in this process: threads that run kernels, and functions that launch them."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import struct
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ziggurat.backend.cpu.code import HOST, LAUNCH
from ziggurat.backend.cpu.runtime import host, launcher, pool, ticker
from ziggurat.backend.cpu.runtime.threads import HAS_THREADS
from ziggurat.backend.jit.loading import Builtin, LinkedObject, is_known_python, linking, object_of
from ziggurat.backend.jit.symbols import SYMBOLS
from ziggurat.backend.launch.grids import MAX_SIZE
from ziggurat.backend.llvm.binding import has_llvm
from ziggurat.backend.llvm.functions import module
from ziggurat.codemodel.errors import LaunchError, shown

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

# The pool sleeps on futexes. Elsewhere, threads of Python run the chunks of a launch.
HAS_POOL: Final = HAS_THREADS
MAX_THREADS: Final = 1024
RECORD: Final = struct.Struct("=6q")  # That of the entry, and the address of notes.
# They release Python's lock themselves, and may leave an exception set.
_ENTRY: Final = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_RANGE: Final = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
# Chunks that a thread of Python gets, on average; the seconds after which a waiting thread looks for signals.
_SHARES: Final = 4
_TICK: Final = 0.05
_HOST: Final = ctypes.c_int64 * (HOST.size // 8)
_ROOTS: Final = [host.zg_set_main, host.zg_free, host.OTHER_HOST, ticker.zg_unlocked_range]
_POOL: Final = [ticker.zg_unlocked, ticker.zg_forked, pool.zg_set_threads, pool.zg_alive]

Launch = Callable[..., Any]


def default_threads() -> int:
    """The number of processors that this process may run on."""
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available is not None else os.cpu_count() or 1


_threads = 0  # 0 until someone asks.


def get_num_threads() -> int:
    """The number of threads that run a native kernel: by default one for each processor of this process."""
    global _threads
    if not _threads:
        _threads = min(default_threads(), MAX_THREADS)
    return _threads


def set_num_threads(count: int) -> None:
    """Run native kernels from now on with this number of threads, the launching one included.

    Raises `LaunchError` for anything but an integer from 1 to 1024.
    """
    global _threads
    if type(count) is not int or not 1 <= count <= MAX_THREADS:
        raise LaunchError(f"the number of threads must be an integer from 1 to {MAX_THREADS}; got {shown(count)}")
    _threads = count
    if _made.cache_info().currsize:
        _made().use_threads()


class Native:
    """The compiled functions of `pool.py`, `ticker.py` and `launcher.py`."""

    def __init__(self) -> None:
        self._has_launcher = HAS_POOL and is_known_python() and _is_known_numpy()
        roots = [*_ROOTS, *(_POOL if HAS_POOL else ()), *([host.zg_waits_on] if host.HAS_YIELD else ())]
        roots += [launcher.zg_launch, launcher.zg_new] if self._has_launcher else []
        names = [root.symbol for root in roots]
        self._loaded = LinkedObject(object_of(" ".join(names), lambda: module(roots, SYMBOLS)), names)
        at = self._loaded.addresses
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(at["zg_set_main"])(threading.main_thread().ident or 0)
        self.free: Callable[[int], None] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(at["zg_free"])
        self._bound: Callable[[Any], Launch] | None = None
        self._waits_on = at["zg_waits_on"] if host.HAS_YIELD else 0
        self._host = _HOST.from_address(at["zg_other_host"])
        # Runs programs of a job, from the first to before the last; the result is the code of an error, or 0.
        self.run_range = _RANGE(at["zg_unlocked_range"])
        if HAS_POOL:
            self._run = _ENTRY(at["zg_unlocked"])
            self._set_threads = ctypes.CFUNCTYPE(None, ctypes.c_int64)(at["zg_set_threads"])
            self._alive = ctypes.CFUNCTYPE(ctypes.c_int64)(at["zg_alive"])
            self.forked: Callable[[], None] = ctypes.CFUNCTYPE(None)(at["zg_forked"])
        else:
            self._executor: ThreadPoolExecutor | None = None
            self.forked = self.use_threads
        if self._has_launcher:
            launch = Builtin(b"launch", self._loaded, "zg_launch", keywords=True)
            self._bound = Builtin(b"new", self._loaded, "zg_new").maker(launch)
        self.use_threads()

    def shared_host(self, arrays: int, waiting: int) -> Any:
        """The host of a launch beside which others run, as numbers: with the addresses of its arrays and waits."""
        assert self._waits_on
        parts = {**dict(zip(HOST.kinds, self._host, strict=True)), "waits": self._waits_on, "arrays": arrays}
        return (ctypes.c_int64 * len(host.SHARED_HOST.kinds))(*parts.values(), 0, waiting)

    @property
    def workers(self) -> int:
        """The number of threads that the pool has started."""
        return self._alive() if HAS_POOL else 0

    def use_threads(self) -> None:
        """Use as many threads as `get_num_threads` says."""
        if HAS_POOL:
            self._set_threads(get_num_threads())
        else:
            self._executor = None

    def launcher(self, sizes: tuple[int, int, int], plans: list[Any], slow: Launch) -> Launch:
        """The function that launches over a grid by the first plan that fits, or by `slow`."""
        if self._bound is None:
            return slow
        grid = launcher.GRID.pack(*sizes, 0, sizes[0] * sizes[1] * sizes[2])
        return self._bound((grid, plans, slow))

    def run(self, entry: int, arguments: int, total: int, launch: int, scratch: int, *, ordered: bool) -> list[int]:
        """Run all programs of a launch: the record of the error with the lowest program. Its first number, the code,
        is 0 without an error, -1 if a thread ended in the middle, and -2 if there is no scratch memory.

        `entry`, `arguments` and `launch` are addresses (docs/design/008-cpu.md). Other threads of Python run meanwhile.
        Raises what a handler of a signal raises, and what printing does.
        """
        threads = 1 if ordered else get_num_threads()
        if not HAS_POOL:
            return self._run_in_threads(entry, arguments, total, launch, scratch, threads)
        record = (ctypes.c_int64 * 5)()
        job = pool.JOB.packer.pack(entry, arguments, total, launch, scratch, threads, ctypes.addressof(record))
        code = self._run(job)
        return [code, *record[1:]]

    def _run_in_threads(
        self, entry: int, arguments: int, total: int, launch: int, scratch: int, threads: int
    ) -> list[int]:
        """`run` by threads of Python, which call native code without Python's lock. This thread only waits, so that it
        can run the handlers of signals."""
        chunk = max(1, total // (threads * _SHARES)) if threads > 1 else max(1, total)
        starts = itertools.count(0, chunk)
        failures: list[list[int]] = []
        own = _HOST(*self._host)
        ctypes.c_uint64.from_address(launch + LAUNCH.offsets["host"]).value = ctypes.addressof(own)

        def work() -> None:
            record = (ctypes.c_int64 * 5)()
            job = pool.JOB.packer.pack(entry, arguments, total, launch, scratch, 1, ctypes.addressof(record))
            while not failures and own[0] != host.STOP and (first := next(starts)) < total:
                code = self.run_range(job, first, min(first + chunk, total))
                if code:
                    failures.append([code, *record[1:]])

        from concurrent.futures import ThreadPoolExecutor, wait  # They cannot be imported while Python ends.

        # A handler of a signal that launches while this thread submits would wait for the executor's lock for ever.
        executor, self._executor, size = self._executor, None, get_num_threads()
        executor = executor or ThreadPoolExecutor(size, "ziggurat")
        running = [executor.submit(work) for _ in range(threads)]
        try:
            while wait(running, _TICK).not_done:
                pass
        except BaseException:  # That of a handler of a signal.
            own[0] = host.STOP
            wait(running)
            raise
        if size == get_num_threads():
            self._executor = executor
        for future in running:
            future.result()
        return min(failures, key=lambda record: (record[0] > 0, record[1]), default=[0] * 5)


@cache
def _made() -> Native:
    return Native()


def native() -> Native:
    """The native part of the runtime, compiled or taken from disk at the first call."""
    with linking:
        return _made()


def _after_fork() -> None:
    if _made.cache_info().currsize:
        _made().forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _is_known_numpy() -> bool:
    """Whether NumPy's arrays have the C structure that `zg_launch` reads."""
    whole = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    part = whole[::-1, 1:, ::2]
    part.flags.writeable = False
    for array, writable in ((whole, True), (part, False)):
        raw = ctypes.string_at(id(array), 72)
        data, axes, sizes, strides, base, dtype, flags = struct.unpack_from("=QixxxxQQQQi", raw, 16)
        if (data, axes, dtype) != (array.__array_interface__["data"][0], 3, id(array.dtype)):
            return False
        numbers = ctypes.c_ssize_t * 3
        if tuple(numbers.from_address(sizes)) != array.shape or tuple(numbers.from_address(strides)) != array.strides:
            return False
        if base != id(array.base) or bool(flags & 1024) != writable or not flags & 256:
            return False
    return True


def launcher_over(sizes: tuple[int, int, int], plans: list[Any], slow: Callable[..., Any]) -> Callable[..., Any]:
    """The launcher over a grid that tries some plans; `slow` for an empty grid, and where there is no native code."""
    return native().launcher(sizes, plans, slow) if 0 < math.prod(sizes) <= MAX_SIZE and has_llvm() else slow
