"""Launchers on arrays in memory: those kept from before the first launch, many grids, functions of the grid."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.launch.grids import MAX_LAUNCHERS, MAX_SPECIALIZATIONS

N = 64


@zg.kernel
def count(x_ptr, n, B: zg.constexpr = N):
    offsets = zg.arange(0, B)
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    zg.atomic_add(zg.add(x_ptr, offsets), zg.full([B], 1, zg.i32), mask)


@triton.jit
def triton_count(x_ptr, n, B: tl.constexpr = N):
    offsets = tl.arange(0, B)
    tl.atomic_add(x_ptr + offsets, 1, offsets < n)


def explicit() -> Any:
    return zg.kernel(count.fn)


def in_triton() -> Any:
    return triton.jit(triton_count.fn)


def tuned() -> Any:
    return zg.autotune([zg.Config({"B": N})], key=["n"])(explicit())


def computed() -> Any:
    return zg.heuristics({"B": lambda args: N})(explicit())


KINDS = pytest.mark.parametrize("make", [explicit, in_triton, tuned, computed])


def launched(kernel: Any, launcher: Any, programs: int, calls: int) -> None:
    """Launch several times, and compare the number of programs that have run."""
    x = np.zeros(N, np.int32)
    for number in range(calls):
        launcher(x, N - 1)
        assert (x[:-1] == programs * (number + 1)).all() and x[-1] == 0


@KINDS
@pytest.mark.parametrize("grid", [3, (3,), (3, 1, 1), lambda meta: (meta["B"] // 32 + 1,)])
def test_a_launcher_kept_from_before_the_first_launch(
    make: Callable[[], Any], grid: Any, monkeypatch: pytest.MonkeyPatch
):
    kernel = make()
    launcher = kernel[grid]
    launched(kernel, launcher, 3, 1)
    monkeypatch.setattr(kernel, "launch", lambda *a, **k: pytest.fail("a known launch takes the slow path"))
    launched(kernel, launcher, 3, 5)
    launched(kernel, kernel[grid], 3, 2)


@KINDS
def test_a_launch_with_a_new_grid_takes_the_quick_path(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch):
    kernel = make()
    launched(kernel, kernel[2], 2, 2)
    monkeypatch.setattr(kernel, "launch", lambda *a, **k: pytest.fail("a new grid takes the slow path"))
    for _ in range(2):
        for size in range(1, 1001):
            x = np.zeros(N, np.int32)
            grid: Any = (size,) if size % 2 else lambda meta, size=size: (size, meta["B"] // N)
            kernel[grid](x, 5)
            assert (x[:5] == size).all() and not x[5:].any()


def test_launchers_are_bounded_in_number_and_quick_to_make():
    kernel = explicit()
    x = np.zeros(N, np.int32)
    kernel[1](x, 1)
    times: list[float] = []
    for size in range(2, MAX_LAUNCHERS + 500):
        start = time.process_time_ns()
        _ = kernel[size, 1]
        times.append(time.process_time_ns() - start)
    assert len(kernel.launchers) == MAX_LAUNCHERS
    assert kernel[size, 1] is kernel[size, 1]
    assert np.median(times) < 50_000, "nanoseconds; some 3,000 on a quiet machine"


def test_a_launcher_outlives_the_code(monkeypatch: pytest.MonkeyPatch):
    kernel = explicit()
    early = kernel[2]
    launched(kernel, early, 2, 3)
    later = kernel[2]
    kernel.forget()
    for launcher in (early, later, kernel[2]):
        launched(kernel, launcher, 2, 2)
    monkeypatch.setattr(kernel, "launch", lambda *a, **k: pytest.fail("the launcher is slow for ever"))
    for launcher in (early, later):
        launched(kernel, launcher, 2, 2)


class Failure(Exception):
    pass


@KINDS
@pytest.mark.parametrize("error", [Failure, KeyError, TypeError, ValueError, AttributeError, OverflowError])
def test_a_function_of_the_grid_that_raises_is_called_once(make: Callable[[], Any], error: type[Exception]):
    calls: list[Any] = []

    def grid(meta: Any) -> Any:
        calls.append(meta["n"])
        if meta["n"] == 7:
            raise error("by the grid")
        return (1,)

    kernel, x = make(), np.zeros(N, np.int32)
    before = 2 if make is tuned else 1  # A tuned kernel asks for the grid when it chooses.
    for _ in range(2):  # The first launch, and a later one.
        for launcher in (kernel[grid], kernel[grid]):
            calls.clear()
            with pytest.raises(error, match="by the grid"):
                launcher(x, 7)
            assert len(calls) <= before and not x.any()
        calls.clear()
        kernel[grid](x, 1)
        assert 1 <= len(calls) <= before and x[0]
        x[:] = 0
    calls.clear()
    kernel[grid](x, 1)
    assert len(calls) == 1


@KINDS
@pytest.mark.parametrize(
    "grid", [1.0, (1.0,), True, (True,), (np.float64(1),), (np.True_,), (1, 1.0), (1, True, 1), "1", (None,), (1 + 0j,),
             (-1,), (), (1, 1, 1, 2), (1 << 31,)],
)  # fmt: skip
@pytest.mark.parametrize("by_function", [False, True])
def test_other_things_than_grids_are_refused_before_and_after_launches(
    make: Callable[[], Any], grid: Any, by_function: bool
):
    kernel, x = make(), np.zeros(N, np.int32)
    value: Any = (lambda meta: grid) if by_function else grid
    early = kernel[value]
    for _ in range(2):
        for launcher in (kernel[value], early):
            with pytest.raises(zg.LaunchError, match="must be one to three sizes, integers from 0"):
                launcher(x, N)
        for size in (1, (1,), (1, 1), (1, 1, 1)):
            kernel[size](x, N)
    assert (x == 8).all()


@KINDS
@pytest.mark.parametrize("grid", [0, (0,), (3, 0), np.int64(0)])
def test_an_empty_grid_runs_nothing_and_checks_arguments(make: Callable[[], Any], grid: Any):
    kernel, x = make(), np.zeros(N, np.int32)
    for _ in range(2):
        kernel[grid](x, 5)
        with pytest.raises(zg.ZigguratError):
            kernel[grid](object(), 5) if make is not in_triton else kernel[grid](x.astype(object), 5)
        assert not x.any()
        kernel[1](x, 5)
        x[:] = 0


def test_a_grid_of_too_many_programs_is_refused_later_too():
    kernel, x = explicit(), np.zeros(N, np.int32)
    for _ in range(2):
        with pytest.raises(zg.LaunchError, match="must have at most 2147483647 programs"):
            kernel[1 << 20, 1 << 20](x, 0)
        kernel[1](x, 0)


@pytest.mark.parametrize("make", [explicit, in_triton])
def test_missing_arguments_are_found_before_the_function_of_the_grid_is_called(make: Callable[[], Any]):
    kernel, x = make(), np.zeros(N, np.int32)
    grid: Any = lambda meta: (meta["n"] // meta["B"] + 1,)  # noqa: E731
    for _ in range(2):
        for arguments, keywords, words in (
            ((x,), {}, "needs 'n'"), ((x, 1, N, 5), {}, "takes 3 arguments; got 4"), ((x, "1"), {}, "'n'"),
            ((x, 1), {"wraps": 3}, "wraps"), ((x, 1), {"n": 3}, "'n' twice"),
        ):  # fmt: skip
            if make is in_triton and arguments[1:] == ("1",):
                continue  # A string is compiled in.
            with pytest.raises((zg.LaunchError, KeyError), match=words):
                kernel[grid](*arguments, **keywords)
        kernel[grid](x, 1)


def sweep(kernel: Any, values: range) -> None:
    x = np.zeros(N, np.int32)
    for value in values:
        kernel[1](x, 3, B=4, **{"V": value})
        assert (x[:3] == value).all() and not x[3:].any()


@zg.kernel
def stored(x_ptr, n, B: zg.constexpr, V: zg.constexpr):
    offsets = zg.arange(0, B)
    zg.store(zg.add(x_ptr, offsets), V, zg.compare(offsets, n, zg.CompareKind.LESS_THAN))


@triton.jit
def triton_stored(x_ptr, n, B: tl.constexpr, V: tl.constexpr):
    offsets = tl.arange(0, B)
    tl.store(x_ptr + offsets, V, offsets < n)


def test_launches_with_many_constants_in_turn_are_quick(monkeypatch: pytest.MonkeyPatch):
    kernel, x = zg.kernel(stored.fn), np.zeros(N, np.int32)
    sweep(kernel, range(MAX_SPECIALIZATIONS))
    slow: list[Any] = []
    monkeypatch.setattr(type(kernel.native), "_remember", lambda *arguments: slow.append(arguments))
    for value in (*range(MAX_SPECIALIZATIONS), *reversed(range(MAX_SPECIALIZATIONS))):
        kernel[1](x, 3, B=4, V=value)
        assert (x[:3] == value).all() and not slow
    kernel[1](x, 3, B=4, V=MAX_SPECIALIZATIONS)
    assert len(slow) == 1, "a new constant has no plan yet"


@pytest.mark.parametrize("make", [lambda: zg.kernel(stored.fn), lambda: triton.jit(triton_stored.fn)])
def test_specializations_are_bounded_in_number(make: Callable[[], Any]):
    kernel = make()
    launcher = kernel[1]
    x = np.zeros(N, np.int32)
    launcher(x, 3, B=4, V=1000)
    values = range(MAX_SPECIALIZATIONS + 10)
    sweep(kernel, values)
    tables = [value for value in (*vars(kernel).values(), *vars(kernel.native).values()) if hasattr(value, "limit")]
    assert tables and max(map(len, tables)) <= MAX_LAUNCHERS
    assert len(kernel._models) <= MAX_SPECIALIZATIONS and len(kernel.compiled) <= 2 * MAX_SPECIALIZATIONS
    launcher(x, 3, B=4, V=1000)  # Its code is gone, and is made again.
    assert x[0] == 1000
    sweep(kernel, values)


@pytest.mark.parametrize("make", [explicit, in_triton])
def test_a_warm_launch_takes_two_calls_of_python(make: Callable[[], Any]):
    kernel, x, calls = make(), np.zeros(N, np.int32), list[str]()
    for _ in range(3):
        kernel[1,](x, N)
    sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        kernel[1,](x, N)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 2, calls


def test_integers_of_an_array_that_may_hold_strides():
    from ziggurat.launches.cpu import _integers

    whole = np.arange(1, 17)
    assert _integers(whole) == [*range(2, 17)] and _integers(np.arange(1, 18)) == []
    assert _integers(np.array([2, 0, 3])) == _integers(np.array([2, -1])) == _integers(np.array([2.0, 3.0])) == []
    assert _integers(whole[::2]) == [] and _integers(np.array([3, 4], np.uint8)) == [3, 4]
    assert _integers(5) == [5] and _integers(np.int64(5)) == [5] and _integers(1) == [1] and _integers(0) == [0]
    assert _integers(True) == _integers(2.5) == _integers("5") == _integers(None) == []
