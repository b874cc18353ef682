"""Times of calls on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

# The results by the `return_mode` of `do_bench`, from the times of all calls in their order.
MODES: Final[dict[str, Callable[[Sequence[float]], Any]]] = {
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "median": statistics.median,
    "all": list,
}


def host_times(
    run: Callable[[], Any], warmup: float, rep: float, *, least: int = 1, before: Callable[[], None] = lambda: None
) -> list[float]:
    """The milliseconds of each call: calls for `rep` milliseconds and at least so many, after `warmup` milliseconds of
    calls. `before` is called before each, and not timed."""
    start = time.perf_counter()
    run()
    while 1e3 * (time.perf_counter() - start) < warmup:
        run()
    times: list[float] = []
    total = 0.0
    while total < rep or len(times) < least:
        before()
        start = time.perf_counter()
        run()
        times.append(max(1e3 * (time.perf_counter() - start), 1e-3))
        total += times[-1]
    return times
