"""Scratch memory: global memory that a launch provides for the programs of a kernel, which keep tensor maps in it.

Its address is the kernel's last parameter. The memory belongs to a stream: launches there run one after the other. It
is kept for the next launch, and grows when one needs more. A launch that is captured into a graph gets memory of its
own, as the graph may run beside other launches. A program can provide the memory instead: see
`backend/launch/allocation.py`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from ziggurat.backend.devices.driver import STREAMS, check, cuda
from ziggurat.backend.launch.allocation import ALLOCATOR, UNSET
from ziggurat.codemodel.gpu.fragments import MAP_BYTES

_PER_THREAD = 2  # The address that stands for another stream in each thread (CU_STREAM_PER_THREAD).

Launch = Callable[..., Any]  # Takes what `cuLaunchKernel` takes.

_memory: dict[tuple[int, int, int], tuple[int, int]] = {}  # By context, stream and thread: an address, and the bytes.
_lock = threading.Lock()


def launching(launch: Launch, context: int, size: int, count: int) -> Launch:
    """A function like `launch` that gives the kernel `size` bytes for each program. Before the address of the memory it
    has `count` parameters."""

    def launch_with_scratch(
        function: Any, x: int, y: int, z: int, threads: int, ty: int, tz: int, shared: int, stream: Any, pointers: int,
        extra: int,
    ) -> Any:  # fmt: skip
        if min(x, y, z) > 0:  # The driver refuses other grids.
            place = ctypes.c_uint64.from_address(pointers + 8 * count).value
            ctypes.c_uint64.from_address(place).value = provided(context, int(stream), x * y * z * size)
        return launch(function, x, y, z, threads, ty, tz, shared, stream, pointers, extra)

    return launch_with_scratch


def provided(context: int, stream: int, size: int) -> int:
    """The address of `size` bytes for a launch on a stream of a context, the current one."""
    allocator = ALLOCATOR.get()
    if allocator is not UNSET:
        buffer = allocator(size, MAP_BYTES, stream)
        return buffer if isinstance(buffer, int) else int(buffer.data_ptr())
    if check(cuda().cuStreamIsCapturing(stream), "asking a stream whether it is captured"):
        return allocated(size)  # The graphs that are made of the capture need it for as long as they are there.
    key = context, stream, threading.get_ident() if stream == _PER_THREAD else 0
    with _lock:
        memory, most = _memory.get(key, (0, 0))
        if size > most:
            # Launches before may still use the smaller memory. Twice the size each time bounds what is kept for them.
            most = max(size, 2 * most)
            memory = allocated(most)
            _memory[key] = memory, most
        return memory


def allocated(size: int, *, zero: bool = False) -> int:
    """The address of memory of the current context that is never freed, also during a capture: zeros, or anything."""
    driver = cuda()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED  # The others forbid it during a capture.
    before = check(driver.cuThreadExchangeStreamCaptureMode(relaxed), "allowing allocation in captures")
    try:
        address = int(check(driver.cuMemAlloc(size), f"getting {size} bytes for the tensor maps of a kernel"))
        if zero:
            own = STREAMS[_PER_THREAD]
            check(driver.cuMemsetD8Async(address, 0, size, own), "setting memory to zero")
            check(driver.cuStreamSynchronize(own), "setting memory to zero")
        return address
    finally:
        check(driver.cuThreadExchangeStreamCaptureMode(before), "forbidding allocation in captures")
