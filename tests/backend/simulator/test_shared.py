"""Shared memory of the simulation: accesses ordered by barriers of all or some threads, and by complete wgmmas."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.simulator.shared import Array, Shared, SimulationError

ALL = np.ones(256, bool)
FIRST = np.arange(256) < 128


def memory() -> Shared:
    return Shared(64, 0, 256)


def write(shared: Shared, thread: int, place: int = 0) -> None:
    shared.store(np.array([place]), np.array([thread]), np.zeros((1, 4), np.uint8))


def read(shared: Shared, thread: int, place: int = 0) -> Array:
    return shared.load(np.array([place]), np.array([thread]), 4)


def test_a_barrier_of_all_ends_everything() -> None:
    shared = memory()
    write(shared, 3)
    with pytest.raises(SimulationError, match=r"another thread has written|in flight"):
        read(shared, 200)
    shared.barrier(ALL)
    read(shared, 200)
    with pytest.raises(SimulationError, match="another has touched"):
        write(shared, 3)


def test_a_barrier_of_some_ends_what_they_did() -> None:
    """The barrier orders accesses for its own threads only."""
    shared = memory()
    write(shared, 3)
    write(shared, 200, 8)
    read(shared, 3, 16)
    shared.barrier(FIRST)
    read(shared, 4)
    write(shared, 4, 16)
    for thread, place in ((4, 8), (3, 8), (201, 0)):
        with pytest.raises(SimulationError, match=r"another thread has written|in flight"):
            read(shared, thread, place)
    shared.barrier(ALL)
    read(shared, 201)


def test_only_those_who_met_may_write_what_was_read() -> None:
    shared = memory()
    read(shared, 3)
    read(shared, 4)
    shared.barrier(FIRST)
    with pytest.raises(SimulationError, match="another has touched"):
        write(shared, 200)
    write(shared, 5)


def test_barriers_of_some_are_forgotten() -> None:
    shared = memory()
    for _ in range(1000):
        write(shared, 3)
        shared.barrier(FIRST)
    assert len(shared.seen) < 200
    with pytest.raises(SimulationError, match=r"another thread has written|in flight"):
        read(shared, 200)


@pytest.mark.parametrize("other", [4, 200])
def test_bytes_that_several_threads_have_read(other: int) -> None:
    """A partial barrier orders the reads only if no other thread has read the bytes."""
    shared = memory()
    read(shared, 3)
    read(shared, other)
    shared.barrier(FIRST)
    if other < 128:
        write(shared, 5)
    else:
        with pytest.raises(SimulationError, match="another has touched"):
            write(shared, 5)
    shared.barrier(ALL)
    write(shared, 5)


def begin(shared: Shared, group: int, places: Array) -> None:
    shared.begun[group] += 1
    shared.reading[places] += 1
    shared.wgmmas[group][places] = shared.begun[group]


def finish(shared: Shared, group: int, places: Array) -> None:
    shared.over[group] += 1
    shared.reading[places] -= 1


def test_knowledge_of_complete_wgmmas() -> None:
    """A wgmma is known to be complete by threads that met its warp group at a barrier after the wait."""
    shared, places = memory(), np.arange(8)
    begin(shared, 0, places)
    shared.barrier(ALL)
    with pytest.raises(SimulationError, match="wgmma or a copy in flight"):
        write(shared, 3)
    finish(shared, 0, places)
    with pytest.raises(SimulationError, match="wgmma"):
        write(shared, 200)
    shared.barrier(FIRST)
    assert not shared.read_by_wgmma(places, np.full(8, 3))
    assert shared.read_by_wgmma(places, np.full(8, 200))
    write(shared, 3)


def test_knowledge_that_a_thread_shares() -> None:
    """A thread knows the complete wgmmas of its own warp group, and those that a barrier made known to it."""
    shared, places = memory(), np.arange(8)
    for group in (0, 1):
        begin(shared, group, places)
        finish(shared, group, places)
    begin(shared, 0, places)
    assert shared.knowledge(5).tolist() == [1, 0] and shared.knowledge(200).tolist() == [0, 1]
    shared.barrier(ALL)
    assert shared.knowledge(5).tolist() == [1, 1] == shared.knowledge(200).tolist()
