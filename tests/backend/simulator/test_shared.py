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


def test_many_barriers_of_some() -> None:
    shared = memory()
    for _ in range(1000):
        write(shared, 3)
        shared.barrier(FIRST)
        read(shared, 100)
        shared.barrier(FIRST)
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


def test_knowledge_of_complete_wgmmas() -> None:
    """A wgmma is known to be complete by threads that met its warp group at a barrier after the wait."""
    shared, places = memory(), np.arange(8)
    time = shared.begin_wgmma(0, places)
    shared.barrier(ALL)
    with pytest.raises(SimulationError, match="wgmma or a copy in flight"):
        write(shared, 3)
    shared.end_wgmma(0, time)
    with pytest.raises(SimulationError, match="wgmma"):
        write(shared, 200)
    shared.barrier(FIRST)
    assert not shared.read_by_wgmma(places, np.full(8, 3))
    assert shared.read_by_wgmma(places, np.full(8, 200))
    write(shared, 3)


def test_knowledge_that_a_thread_shares() -> None:
    """A thread knows the complete wgmmas of its own warp group, and those that a barrier made known to it."""
    shared, places = memory(), np.arange(8)
    for group, time in [(group, shared.begin_wgmma(group, places)) for group in (0, 1)]:
        shared.end_wgmma(group, time)
    assert shared.read_by_wgmma(places, np.full(8, 5)), "another warp may still read"
    shared.learn(np.array([200]), shared.knowledge(np.array([5])))
    assert shared.foreign(shared.wgmmas[:, 0], np.full(2, 200)).tolist() == [False, True]
    shared.barrier(ALL)
    assert not shared.read_by_wgmma(places, np.full(8, 5)) and not shared.read_by_wgmma(places, np.full(8, 200))
    shared.begin_wgmma(0, places)
    shared.barrier(ALL)
    assert shared.read_by_wgmma(places, np.full(8, 5))


def test_an_mbarrier_passes_on_what_those_that_arrive_know() -> None:
    """It orders the accesses of the thread that arrives, and those that this thread knows of, with later ones."""
    shared = memory()
    write(shared, 3)
    write(shared, 5, 8)
    shared.learn(np.array([200]), shared.knowledge(np.array([3])))
    read(shared, 200)
    with pytest.raises(SimulationError, match="another thread has written"):
        read(shared, 200, 8)
    with pytest.raises(SimulationError, match="another has touched"):
        write(shared, 3)
