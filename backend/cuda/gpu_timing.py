"""Timing on a GPU: `do_bench`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np

from ziggurat.backend.cuda.device_memory import empty
from ziggurat.backend.devices import driver
from ziggurat.backend.launch.device_arrays import stream_in_use
from ziggurat.backend.launch.timing import MODES, host_times
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import u8

_ESTIMATES = 5
# The bytes that are written to empty the L2 cache: more than any has. The GPU writes for long enough that the host has
# launched what is timed before it starts; else a short call would be timed with the launch.
_FLUSHED = 256 << 20
# The addresses that stand for the default stream, on which nothing can be captured.
_DEFAULT_STREAMS: Final = (0, 1)


def do_bench(
    run: Callable[[], Any],
    warmup: float = 25.0,
    rep: float = 100.0,
    *,
    flush: bool = True,
    graph: bool = False,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "median",
    stream: Any = None,
    host: bool | None = None,
) -> Any:
    """The time that `run()` takes on the GPU, or with `host` by the clock of this machine, in milliseconds. By default
    the clock measures on a machine without a GPU.

    It is the median, or by `return_mode` the "mean", "min" or "max", or the list of "all" calls. With `quantiles`, it
    is the list of these (0.5 is the median).

    `run` is called for about `warmup` milliseconds, and then timed for about `rep`, at least five times. With
    `flush`, 256 MB of memory are written before each call, so that the L2 cache holds none of the arrays. With
    `graph`, calls are captured into a CUDA graph, which takes the host's time out of short ones: the time of the graph
    is divided by its calls, and the cache is not flushed between them.

    `stream` must be the one that `run` names in its launches. Without it the current stream of torch or CuPy, or the
    default one, is timed, which is where launches go; a graph gets a stream of its own.

    Raises `LaunchError` for arguments out of range.
    """
    _demand(run, warmup, rep, quantiles, return_mode)
    if not driver.is_here() if host is None else host:
        times = host_times(run, warmup, rep, least=_ESTIMATES)
        return MODES[return_mode](times) if quantiles is None else np.quantile(times, quantiles).tolist()
    driver.current_context()
    handle = None if stream is None else driver.stream_address(stream)
    if graph and handle in _DEFAULT_STREAMS:
        raise LaunchError(
            "a CUDA graph cannot be captured on the default stream", hint="leave stream out: one is made for it"
        )
    if graph and handle is None:
        # Work that fills the arrays may be in flight, and streams do not wait for each other.
        library = driver.cuda()
        driver.check(library.cuStreamSynchronize(driver.STREAMS[stream_in_use()]), "waiting for the work before")
        flags = library.CUstream_flags.CU_STREAM_NON_BLOCKING
        handle = int(driver.check(library.cuStreamCreate(flags), "making a stream"))
    with on_stream(stream_in_use() if handle is None else handle) as address:
        times = _graph_times(run, address, warmup, rep) if graph else _times(run, address, warmup, rep, flush)
    if quantiles is None:
        return MODES[return_mode](times)
    return np.quantile(times, quantiles).tolist()


def _demand(run: Any, warmup: Any, rep: Any, quantiles: Sequence[float] | None, return_mode: str) -> None:
    """Raise `LaunchError` for arguments out of range, before anything is timed."""
    if not callable(run):
        raise LaunchError(
            f"do_bench: 'run' must be a function without arguments; got {run!r}",
            hint="do_bench(lambda: kernel[grid](…))",
        )
    for name, value in (("warmup", warmup), ("rep", rep)):
        if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise LaunchError(f"{name} of do_bench must be a number of milliseconds; got {value!r}")
    for share in quantiles or ():
        if not 0 <= share <= 1:
            raise LaunchError(f"a quantile must be from 0 to 1; got {share}")
    if return_mode not in MODES:
        raise LaunchError(f"return_mode of do_bench must be one of {', '.join(MODES)}; got {return_mode!r}")


def _measured(
    run: Callable[[], Any], stream: Any, rounds: int, before: Callable[[], None] = lambda: None
) -> list[float]:
    """The milliseconds of each of several calls. `before` is called before each, and not timed."""
    library = driver.cuda()
    with ExitStack() as stack:
        pairs: list[list[Any]] = []
        for _ in range(rounds):
            pairs.append([driver.check(library.cuEventCreate(0), "making an event") for _ in range(2)])
            for event in pairs[-1]:
                stack.callback(library.cuEventDestroy, event)
        for start, end in pairs:
            before()
            driver.check(library.cuEventRecord(start, stream), "recording an event")
            run()
            driver.check(library.cuEventRecord(end, stream), "recording an event")
        driver.check(library.cuStreamSynchronize(stream), "waiting for the timed calls")
        return [float(driver.check(library.cuEventElapsedTime(*pair), "reading events")) for pair in pairs]


def _estimate(run: Callable[[], Any], before: Callable[[], None], stream: Any) -> float:
    """The milliseconds that a call of both takes, roughly."""

    def several() -> None:
        for _ in range(_ESTIMATES):
            before()
            run()

    return max(_measured(several, stream, 1)[0] / _ESTIMATES, 1e-3)


def _times(run: Callable[[], Any], stream: int, warmup: float, rep: float, flush: bool) -> list[float]:
    library = driver.cuda()
    on = driver.STREAMS[stream]
    scratch = empty(_FLUSHED, u8) if flush else None

    def wipe() -> None:
        if scratch is not None:
            driver.check(library.cuMemsetD8Async(scratch.pointer, 0, scratch.nbytes, on), "wiping the cache")

    run()
    each = _estimate(run, wipe, on)  # The cost of a round, not the reported time.
    for _ in range(max(1, int(warmup / each))):
        run()
    return _measured(run, on, max(_ESTIMATES, int(rep / each)), wipe)


def _graph_times(run: Callable[[], Any], stream: int, warmup: float, rep: float) -> list[float]:
    library = driver.cuda()
    on = driver.STREAMS[stream]
    run()  # The first call compiles and loads, which cannot be captured.
    driver.check(library.cuStreamSynchronize(on), "waiting for the first call")
    each = _estimate(run, lambda: None, on)
    calls = max(1, min(1000, int(rep / 10 / each)))
    mode = library.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    driver.check(library.cuStreamBeginCapture(on, mode), "capturing a graph")
    try:
        for _ in range(calls):
            run()
    finally:
        captured = library.cuStreamEndCapture(on)
    graph = driver.check(captured, "capturing a graph")
    executable = driver.check(library.cuGraphInstantiate(graph, 0), "making a graph")

    def launch() -> None:
        driver.check(library.cuGraphLaunch(executable, on), "running a graph")

    try:
        for _ in range(max(1, int(warmup / (each * calls)))):
            launch()
        return [time / calls for time in _measured(launch, on, 10)]
    finally:
        library.cuGraphExecDestroy(executable)
        library.cuGraphDestroy(graph)


@contextmanager
def on_stream(stream: int) -> Generator[int, None, None]:
    """Make a stream of the current device the current one of all loaded libraries."""
    with ExitStack() as stack:
        stack.enter_context(driver.using_stream(stream))
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            device = driver.current_device().number
            if stream != torch.cuda.current_stream(device).cuda_stream:
                stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device)))
        cupy: Any = sys.modules.get("cupy")
        if cupy is not None and stream != cupy.cuda.get_current_stream().ptr:
            stack.enter_context(cupy.cuda.ExternalStream(stream) if stream else cupy.cuda.Stream.null)
        yield stream
