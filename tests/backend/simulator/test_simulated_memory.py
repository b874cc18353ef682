"""Global memory of the simulation: regions, views, alignment, and accesses of threads that no barrier orders."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from ziggurat.backend.simulator.simulated_memory import SHIFT, SimulatedMemory
from ziggurat.codemodel.errors import SimulationError

ALL = np.ones(64, np.bool_)


def threads(*numbers: int) -> np.ndarray:
    return np.array(numbers)


def at(memory: SimulatedMemory, array: int, *offsets: int) -> np.ndarray:
    return memory.pointers[array] + np.array(offsets)


def test_arrays_keep_their_alignment_and_are_far_apart() -> None:
    arrays = [np.zeros(100, np.float32)[start:] for start in (0, 1, 3)]
    memory = SimulatedMemory(arrays)
    for array, pointer in zip(arrays, memory.pointers, strict=True):
        assert pointer % 1024 == array.ctypes.data % 1024
    assert len({pointer >> SHIFT for pointer in memory.pointers}) == 3 or len(memory.regions) < 3


def test_arrays_that_overlap_are_one_region() -> None:
    whole = np.arange(16, dtype=np.int32)
    memory = SimulatedMemory([whole[8:], np.zeros(4, np.int32), whole[:12]], ["a", "b", "c"])
    assert [region.name for region in memory.regions] == ["'a', 'c'", "'b'"]
    assert memory.pointers[0] - memory.pointers[2] == 32
    memory.store(at(memory, 2, 36), np.array([[7, 0, 0, 0]], np.uint8), threads(0))
    assert whole[9] == 7


@pytest.mark.parametrize("offset", [-4, -1, 13, 16, 1 << 20])
def test_accesses_are_inside_of_their_array(offset: int) -> None:
    memory = SimulatedMemory([np.zeros(4, np.float32)], ["x"])
    with pytest.raises(SimulationError, match=f"thread 5 reads 4 byte.s. at byte {offset} of 'x', which has 16"):
        memory.load(at(memory, 0, 0, offset), 4, threads(4, 5))
    with pytest.raises(SimulationError, match="a pointer must be into an array"):
        memory.load(np.array([16]), 4, threads(4))


def test_a_view_has_gaps_and_may_run_backwards() -> None:
    whole = np.arange(12, dtype=np.float32)
    memory = SimulatedMemory([whole[::-2]])
    assert memory.load(at(memory, 0, 0, -8), 4, threads(0, 1)).view(np.float32).ravel().tolist() == [11, 9]
    with pytest.raises(SimulationError, match="with gaps"):
        memory.load(at(memory, 0, -4), 4, threads(0))


def test_read_only_arrays_are_not_written() -> None:
    array = np.zeros(4, np.uint8)
    array.flags.writeable = False
    memory = SimulatedMemory([array])
    with pytest.raises(SimulationError, match="is read-only"):
        memory.store(at(memory, 0, 0), np.zeros((1, 1), np.uint8), threads(0))


def test_a_store_is_seen_by_others_after_a_barrier() -> None:
    memory = SimulatedMemory([np.zeros(4, np.uint8)])
    memory.store(at(memory, 0, 1), np.ones((1, 1), np.uint8), threads(3))
    assert memory.load(at(memory, 0, 1), 1, threads(3)) == 1
    with pytest.raises(SimulationError, match="thread 4 reads byte 1 of 'argument 0', which thread 3 has written"):
        memory.load(at(memory, 0, 1), 1, threads(4))
    memory.barrier(np.arange(64) < 32)
    assert memory.load(at(memory, 0, 1), 1, threads(4)) == 1


def test_a_barrier_of_others_orders_nothing() -> None:
    memory = SimulatedMemory([np.zeros(4, np.uint8)])
    memory.store(at(memory, 0, 1), np.ones((1, 1), np.uint8), threads(3))
    memory.barrier(np.arange(64) >= 32)
    with pytest.raises(SimulationError, match="barrier"):
        memory.load(at(memory, 0, 1), 1, threads(40))


def test_two_threads_write_one_element() -> None:
    memory = SimulatedMemory([np.zeros(4, np.uint8)])
    memory.store(at(memory, 0, 0, 0), np.ones((2, 1), np.uint8), threads(0, 1))
    memory.start()
    with pytest.raises(SimulationError, match="two threads must not write one element"):
        memory.store(at(memory, 0, 0, 0), np.array([[1], [2]], np.uint8), threads(0, 1))
    memory.start()
    memory.store(at(memory, 0, 0), np.ones((1, 1), np.uint8), threads(0))
    memory.store(at(memory, 0, 0), np.ones((1, 1), np.uint8), threads(1))
    with pytest.raises(SimulationError, match=r"thread 0 writes byte 0 .* and thread 1 does"):
        memory.store(at(memory, 0, 0), np.zeros((1, 1), np.uint8), threads(0))


def test_a_store_after_loads_of_several_warps_whose_values_are_used() -> None:
    memory = SimulatedMemory([np.zeros(4, np.uint8)])
    one, other = memory.new_load(), memory.new_load()
    for load in (one, other):
        memory.load(at(memory, 0, 0, 0, 0), 1, threads(0, 33, 65), load)
    memory.use([one], threads(0))
    memory.store(at(memory, 0, 0), np.ones((1, 1), np.uint8), threads(1))
    with pytest.raises(SimulationError, match="warp 2 has read and uses here"):
        memory.use([other], threads(65))
    memory.barrier(np.ones(96, np.bool_))
    again = memory.new_load()
    memory.load(at(memory, 0, 0, 0), 1, threads(0, 33), again)
    memory.use([again], threads(33))
    with pytest.raises(SimulationError, match=r"thread 1 writes byte 0 .* which warp 1 has read$"):
        memory.store(at(memory, 0, 0), np.ones((1, 1), np.uint8), threads(1))


def test_a_load_of_another_warp_comes_before_a_store_by_a_barrier_only() -> None:
    """Within a warp a shuffle may have brought the number that is stored."""
    memory = SimulatedMemory([np.zeros(4, np.uint8)])
    memory.load(at(memory, 0, 0), 1, threads(0))
    memory.store(at(memory, 0, 0), np.ones((1, 1), np.uint8), threads(31))
    memory.load(at(memory, 0, 1), 1, threads(0))
    with pytest.raises(SimulationError, match=r"thread 32 writes byte 1 .* warp 0 has read"):
        memory.store(at(memory, 0, 1), np.ones((1, 1), np.uint8), threads(32))


@pytest.mark.parametrize(("meet", "races"), [((0, 1), False), ((2, 3), True)])
def test_a_barrier_of_some_threads_orders_the_stores_of_these(meet: tuple[int, int], races: bool) -> None:
    """Thread 0 is treated as any other one."""
    memory = SimulatedMemory([np.zeros(4, np.int32)], ["x"])
    word = np.zeros((1, 4), np.uint8)
    memory.store(at(memory, 0, 0), word, threads(0))
    memory.barrier(
        np.isin(np.arange(128), [*range(32 * meet[0], 32 * meet[0] + 32), *range(32 * meet[1], 32 * meet[1] + 32)])
    )
    if races:
        with pytest.raises(SimulationError, match="thread 0"):
            memory.load(at(memory, 0, 0), 4, threads(32))
    else:
        assert memory.load(at(memory, 0, 0), 4, threads(32)).tolist() == word.tolist()


LOAD_AND_STORE = """
    %loaded = load i32, ptr addrspace(1) %p0
    %is.other = icmp eq i32 %tid, 32
    call void asm sideeffect "@$2 st.global.b32 [ $0 ], $1;", "l,r,b"(ptr addrspace(1) %p0, i32 7, i1 %is.other)
    %c = icmp eq i32 %loaded, 5
"""
USES = {
    "br i1 %c, label %one, label %two\n one:\n br label %two\n two:": True,
    "switch i32 %loaded, label %two [ i32 5, label %one i32 6, label %two ]\n one:\n br label %two\n two:": True,
    "br label %two\n two:": False,
}


@pytest.mark.parametrize(("end", "races"), USES.items())
def test_a_branch_uses_what_it_depends_on(by_hand: Callable[..., None], end: str, races: bool) -> None:
    """Another warp has overwritten what this one has loaded, and no barrier is between."""
    x = np.zeros(1, np.int32)
    with pytest.raises(SimulationError, match="barrier") if races else contextlib.nullcontext():
        by_hand(f"{LOAD_AND_STORE}\n{end}", x, num_warps=2)
    assert x[0] == 7
