"""Collectives as kernels of one launch on each device.

All devices have a workspace of one form in symmetric memory: for each program of a launch two slots, and its counters
(`COUNTERS`). A program writes its part into a slot, meets the programs of its number on the other devices, and reads
their slots. It takes its two slots in turn, by the number of its meetings up to now: when it writes a slot again, it
has met the others since they read it. So a meeting is all the order that there is, and it orders launches as well.

The number of meetings is in memory, so that a launch in a CUDA graph can be replayed.
"""

from __future__ import annotations

from typing import Any, Final

import ziggurat as zg

PROGRAMS: Final = 256  # Programs of the largest launch: two for each SM of an H100, one writes while another reads.
SLOT_BYTES: Final = 1 << 16
CLOCKS: Final = 2 * PROGRAMS  # The place of the numbers of meetings, after two counters for each program.
COUNTERS: Final = CLOCKS + PROGRAMS


@zg.function
def places_of(
    buffers: Any, pads: Any, RANK: zg.constexpr, WORLD: zg.constexpr, DTYPE: zg.constexpr, SIZE: zg.constexpr
) -> Any:
    """The slots of this program on all devices, its counters there, its own counters, and its number of meetings."""
    program = zg.program_id(0)
    slots = ()
    for rank in zg.static_range(WORLD):
        slots = slots + (zg.add(zg.peer(buffers, rank, DTYPE), program * (2 * SIZE)),)  # noqa: RUF005
    ranks = zg.minimum(zg.arange(0, zg.next_power_of_2(WORLD)), WORLD - 1)
    counters = zg.add(zg.peer(pads, ranks, zg.i64), program * 2)
    own = zg.peer(pads, RANK, zg.i64)
    return slots, counters, zg.add(own, program * 2), zg.add(own, CLOCKS + program)


@zg.function
def meet(counters: Any, own: Any, epoch: Any, timeout_ns: Any, WORLD: zg.constexpr) -> None:
    """Wait for the programs of this number on all devices, and see what they have written before.

    Each adds one to a counter of each device: meetings with an even number have one, and those with an odd number
    another. A device may be a meeting ahead, which must not count in place of one that is late; two it cannot be.
    """
    ranks = zg.arange(0, zg.next_power_of_2(WORLD))
    zg.signal(zg.add(counters, epoch % 2), 1, zg.less(ranks, WORLD), op="add")
    is_complete = zg.wait(zg.add(own, epoch % 2), (epoch // 2 + 1) * WORLD, "ge", timeout_ns=timeout_ns)
    zg.device_assert(is_complete, "a device has not come to a collective within the timeout")


@zg.function
def copy(source: Any, target: Any, count: Any, BLOCK: zg.constexpr) -> None:
    """Copy elements."""
    for start in range(0, count, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        inside = zg.less(at, count)
        zg.store(zg.add(target, at), zg.load(zg.add(source, at), inside), inside)


@zg.function
def sum_slots(
    own: Any, slots: Any, offset: Any, target: Any, count: Any,
    RANK: zg.constexpr, WORLD: zg.constexpr, BLOCK: zg.constexpr, DTYPE: zg.constexpr,
) -> None:  # fmt: skip
    """Add `own` and the other devices' slots from `offset` on, in the order of the devices: all get the same bits."""
    for start in range(0, count, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        inside = zg.less(at, count)
        total = zg.zeros((BLOCK,), zg.f32)
        for rank in zg.static_range(WORLD):
            source = own if rank == RANK else zg.add(slots[rank], offset)
            total = zg.add(total, zg.cast(zg.load(zg.add(source, at), inside, 0.0), zg.f32))
        zg.store(zg.add(target, at), zg.cast(total, DTYPE), inside)


@zg.function
def write_shares(
    x: Any, first: Any, n: Any, share: Any, chunk: Any, target: Any,
    RANK: zg.constexpr, WORLD: zg.constexpr, BLOCK: zg.constexpr, PART: zg.constexpr,
) -> None:  # fmt: skip
    """Write a chunk of the share of each other device into the parts of a slot."""
    for rank in zg.static_range(WORLD):
        if rank != RANK:
            begin = rank * share + first
            count = zg.minimum(zg.minimum(chunk, share - first), n - begin)
            copy(zg.add(x, begin), zg.add(target, rank * PART), count, BLOCK)


@zg.kernel(do_not_specialize=["timeout_ns"])
def all_reduce_one_shot(
    x: Any, out: Any, n: Any, chunk: Any, buffers: Any, pads: Any, timeout_ns: Any,
    RANK: zg.constexpr, WORLD: zg.constexpr, BLOCK: zg.constexpr, DTYPE: zg.constexpr, SIZE: zg.constexpr,
) -> None:  # fmt: skip
    """Each device reads the elements of all and adds them."""
    slots, counters, own_counters, clock = places_of(buffers, pads, RANK, WORLD, DTYPE, SIZE)
    epoch = zg.load(clock)
    for first in range(zg.program_id(0) * chunk, n, zg.num_programs(0) * chunk):
        count = zg.minimum(chunk, n - first)
        own, offset = zg.add(x, first), epoch % 2 * SIZE
        copy(own, zg.add(slots[RANK], offset), count, BLOCK)
        meet(counters, own_counters, epoch, timeout_ns, WORLD)
        sum_slots(own, slots, offset, zg.add(out, first), count, RANK, WORLD, BLOCK, DTYPE)
        epoch = epoch + 1
    zg.store(clock, epoch)


@zg.kernel(do_not_specialize=["timeout_ns"])
def all_reduce_two_shot(
    x: Any, out: Any, n: Any, share: Any, chunk: Any, buffers: Any, pads: Any, timeout_ns: Any,
    RANK: zg.constexpr, WORLD: zg.constexpr, BLOCK: zg.constexpr, DTYPE: zg.constexpr, SIZE: zg.constexpr,
    PART: zg.constexpr,
) -> None:  # fmt: skip
    """Each device adds its share of the elements, and reads the sums of the others."""
    slots, counters, own_counters, clock = places_of(buffers, pads, RANK, WORLD, DTYPE, SIZE)
    epoch = zg.load(clock)
    for first in range(zg.program_id(0) * chunk, share, zg.num_programs(0) * chunk):
        offset, sums = epoch % 2 * SIZE, (epoch + 1) % 2 * SIZE
        write_shares(x, first, n, share, chunk, zg.add(slots[RANK], offset), RANK, WORLD, BLOCK, PART)
        meet(counters, own_counters, epoch, timeout_ns, WORLD)
        begin = RANK * share + first
        count = zg.minimum(zg.minimum(chunk, share - first), n - begin)
        target = zg.add(slots[RANK], sums)
        sum_slots(zg.add(x, begin), slots, offset + RANK * PART, target, count, RANK, WORLD, BLOCK, DTYPE)
        meet(counters, own_counters, epoch + 1, timeout_ns, WORLD)
        for rank in zg.static_range(WORLD):
            at = rank * share + first
            number = zg.minimum(zg.minimum(chunk, share - first), n - at)
            copy(zg.add(slots[rank], sums), zg.add(out, at), number, BLOCK)
        epoch = epoch + 2
    zg.store(clock, epoch)


@zg.kernel(do_not_specialize=["timeout_ns"])
def reduce_scatter(
    x: Any, out: Any, share: Any, chunk: Any, buffers: Any, pads: Any, timeout_ns: Any,
    RANK: zg.constexpr, WORLD: zg.constexpr, BLOCK: zg.constexpr, DTYPE: zg.constexpr, SIZE: zg.constexpr,
    PART: zg.constexpr,
) -> None:  # fmt: skip
    """Each device adds its share of the elements of all."""
    slots, counters, own_counters, clock = places_of(buffers, pads, RANK, WORLD, DTYPE, SIZE)
    epoch = zg.load(clock)
    for first in range(zg.program_id(0) * chunk, share, zg.num_programs(0) * chunk):
        offset = epoch % 2 * SIZE
        write_shares(x, first, WORLD * share, share, chunk, zg.add(slots[RANK], offset), RANK, WORLD, BLOCK, PART)
        meet(counters, own_counters, epoch, timeout_ns, WORLD)
        own, count = zg.add(x, RANK * share + first), zg.minimum(chunk, share - first)
        sum_slots(own, slots, offset + RANK * PART, zg.add(out, first), count, RANK, WORLD, BLOCK, DTYPE)
        epoch = epoch + 1
    zg.store(clock, epoch)


@zg.kernel(do_not_specialize=["timeout_ns"])
def all_gather(
    x: Any, out: Any, n: Any, chunk: Any, buffers: Any, pads: Any, timeout_ns: Any,
    RANK: zg.constexpr, WORLD: zg.constexpr, BLOCK: zg.constexpr, DTYPE: zg.constexpr, SIZE: zg.constexpr,
) -> None:  # fmt: skip
    """Each device reads the elements of all."""
    slots, counters, own_counters, clock = places_of(buffers, pads, RANK, WORLD, DTYPE, SIZE)
    epoch = zg.load(clock)
    for first in range(zg.program_id(0) * chunk, n, zg.num_programs(0) * chunk):
        count, offset = zg.minimum(chunk, n - first), epoch % 2 * SIZE
        copy(zg.add(x, first), zg.add(slots[RANK], offset), count, BLOCK)
        meet(counters, own_counters, epoch, timeout_ns, WORLD)
        for rank in zg.static_range(WORLD):
            source = zg.add(x, first) if rank == RANK else zg.add(slots[rank], offset)
            copy(source, zg.add(out, rank * n + first), count, BLOCK)
        epoch = epoch + 1
    zg.store(clock, epoch)
