"""Times of calls on this machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ziggurat.backend.launch import timing


class Clock:
    """A clock that stands but for calls, which take 2 ms each, and what comes before them, which takes 10 ms."""

    def __init__(self) -> None:
        self.now, self.calls, self.preparations = 5.0, 0, 0

    def perf_counter(self) -> float:
        return self.now

    def call(self) -> None:
        self.now += 2e-3
        self.calls += 1

    def prepare(self) -> None:
        self.now += 10e-3
        self.preparations += 1


@pytest.mark.parametrize(
    ("warmup", "rep", "least", "warm", "timed"),
    [(0, 6, 1, 1, 3), (5, 7, 1, 3, 4), (2, 2, 1, 1, 1), (0, 0, 1, 1, 1), (0, 0, 5, 1, 5), (0, 6, 2, 1, 3)],
)
def test_the_times_of_calls(
    monkeypatch: pytest.MonkeyPatch, warmup: float, rep: float, least: int, warm: int, timed: int
) -> None:
    """One call more than none warms up, and what comes before a call is not of its time."""
    clock = Clock()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    times = timing.host_times(clock.call, warmup - 1e-6, rep - 1e-6, least=least, before=clock.prepare)
    assert times == pytest.approx([2.0] * timed)
    assert (clock.calls, clock.preparations) == (warm + timed, timed)


def test_a_call_takes_a_microsecond_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    assert timing.host_times(lambda: None, 0, 2e-3) == [1e-3, 1e-3]


@pytest.mark.parametrize(
    ("mode", "result"), [("mean", 3.0), ("min", 1.0), ("max", 6.0), ("median", 2.5), ("all", [3.0, 1.0, 6.0, 2.0])]
)
def test_the_result_of_each_mode(mode: str, result: float | list[float]) -> None:
    assert timing.MODES[mode]((3.0, 1.0, 6.0, 2.0)) == result
    assert len(timing.MODES) == 5
