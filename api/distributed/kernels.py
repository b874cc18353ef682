"""Collectives as kernels of one launch on each device.

All devices have a workspace of one form in symmetric memory: the counters of all programs (`COUNTERS`), and for each
program of a launch two slots. A program writes its part into a slot, meets the programs of its number on the other
devices, and reads their slots. It takes its two slots in turn, by the number of its meetings up to now: when it writes
a slot again, it has met the others since they read it. So a meeting is all the order that there is, and it orders
launches as well.

The number of meetings is in memory, so that a launch in a CUDA graph can be replayed.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

import ziggurat as zg
from ziggurat.codemodel.types import ScalarType

PROGRAMS: Final = 256  # Programs of the largest launch: two for each SM of an H100, one writes while another reads.
SLOT_BYTES: Final = 1 << 16
_CLOCKS: Final = 2 * PROGRAMS  # The place of the numbers of meetings, after two counters for each program.
COUNTERS: Final = _CLOCKS + PROGRAMS
_BUSY: Final = -1  # The number of meetings of a program that runs.


@attrs.frozen
class Team:
    """The rank of this device among `world` ones, the elements of their slots, those of a slot's part for one device,
    and the elements that a program copies or adds at once. Kernels are compiled for it."""

    rank: int
    world: int
    dtype: ScalarType
    size: int
    part: int
    block: int

    @property
    def start(self) -> int:
        """The elements before the first slot."""
        return 8 * COUNTERS // self.dtype.dtype.itemsize


@zg.function
def begin(table: Any, TEAM: zg.constexpr, SEM: zg.constexpr = "relaxed") -> Any:
    """The slots of this program on all devices, its counters there, its own counters, and the place of its number of
    meetings; and this number. `table` has the addresses of the workspaces of all devices."""
    program = zg.program_id(0)
    slots = ()
    for rank in zg.static_range(TEAM.world):
        slots = slots + (zg.add(zg.peer(table, rank, TEAM.dtype), TEAM.start + program * (2 * TEAM.size)),)  # noqa: RUF005
    ranks = zg.minimum(zg.arange(0, zg.next_power_of_2(TEAM.world)), TEAM.world - 1)
    counters = zg.add(zg.peer(table, ranks, zg.i64), program * 2)
    own = zg.peer(table, TEAM.rank, zg.i64)
    clock = zg.add(own, _CLOCKS + program)
    epoch = zg.atomic_xchg(clock, _BUSY, sem=SEM)
    zg.device_assert(epoch >= 0, "two collectives of a group run at once on one device; put them on one stream")
    return (slots, counters, zg.add(own, program * 2), clock), epoch


@zg.function
def end(team: Any, epoch: Any) -> None:
    """Leave the number of meetings to the next launch."""
    zg.store(team[3], epoch)


@zg.function
def meet(team: Any, epoch: Any, timeout_ns: Any, TEAM: zg.constexpr) -> Any:
    """Wait for the programs of this number on all devices, and see what they have written before. The result is the
    number of meetings after it.

    Each adds one to a counter of each device: meetings with an even number have one, and those with an odd number
    another. A device may be a meeting ahead, which must not count in place of one that is late; two it cannot be.
    """
    ranks = zg.arange(0, zg.next_power_of_2(TEAM.world))
    zg.signal(zg.add(team[1], epoch % 2), 1, zg.less(ranks, TEAM.world), op="add")
    is_complete = zg.wait(zg.add(team[2], epoch % 2), (epoch // 2 + 1) * TEAM.world, "ge", timeout_ns=timeout_ns)
    zg.device_assert(is_complete, "a device has not come to a collective within the timeout")
    return epoch + 1


@zg.function
def copy(source: Any, target: Any, count: Any, BLOCK: zg.constexpr) -> None:
    """Copy elements."""
    for start in range(0, count, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        inside = zg.less(at, count)
        zg.store(zg.add(target, at), zg.load(zg.add(source, at), inside), inside)


@zg.function
def sum_slots(own: Any, slots: Any, offset: Any, at: Any, inside: Any, TEAM: zg.constexpr) -> Any:
    """The sum of elements of `own` and of the other devices' slots from `offset` on, in f32 and in the order of the
    devices: all get the same bits."""
    total = zg.zeros(at.shape, zg.f32)
    for rank in zg.static_range(TEAM.world):
        source = own if rank == TEAM.rank else zg.add(slots[rank], offset)
        total = zg.add(total, zg.cast(zg.load(zg.add(source, at), inside, 0.0), zg.f32))
    return total


@zg.function
def write_sums(own: Any, slots: Any, offset: Any, target: Any, count: Any, TEAM: zg.constexpr) -> None:
    """Write the sums of `count` elements."""
    for start in range(0, count, TEAM.block):
        at = zg.add(start, zg.arange(0, TEAM.block))
        inside = zg.less(at, count)
        zg.store(zg.add(target, at), zg.cast(sum_slots(own, slots, offset, at, inside, TEAM), TEAM.dtype), inside)


@zg.function
def write_shares(x: Any, first: Any, n: Any, share: Any, chunk: Any, target: Any, TEAM: zg.constexpr) -> None:
    """Write a chunk of the share of each other device into the parts of a slot."""
    for rank in zg.static_range(TEAM.world):
        if rank != TEAM.rank:
            at = rank * share + first
            count = zg.minimum(zg.minimum(chunk, share - first), n - at)
            copy(zg.add(x, at), zg.add(target, rank * TEAM.part), count, TEAM.block)


@zg.kernel(do_not_specialize=["timeout_ns"])
def all_reduce_one_shot(
    x: Any, out: Any, n: Any, chunk: Any, table: Any, timeout_ns: Any, TEAM: zg.constexpr, num_warps: zg.constexpr = 16
) -> None:  # fmt: skip
    """Each device reads the elements of all and adds them."""
    team, epoch = begin(table, TEAM)
    slots = team[0]
    for first in range(zg.program_id(0) * chunk, n, zg.num_programs(0) * chunk):
        count = zg.minimum(chunk, n - first)
        own, offset = zg.add(x, first), epoch % 2 * TEAM.size
        copy(own, zg.add(slots[TEAM.rank], offset), count, TEAM.block)
        epoch = meet(team, epoch, timeout_ns, TEAM)
        write_sums(own, slots, offset, zg.add(out, first), count, TEAM)
    end(team, epoch)


@zg.kernel(do_not_specialize=["timeout_ns"])
def all_reduce_two_shot(
    x: Any, out: Any, n: Any, share: Any, chunk: Any, table: Any, timeout_ns: Any,
    TEAM: zg.constexpr, num_warps: zg.constexpr = 16,
) -> None:  # fmt: skip
    """Each device adds its share of the elements, and reads the sums of the others."""
    team, epoch = begin(table, TEAM)
    slots = team[0]
    for first in range(zg.program_id(0) * chunk, share, zg.num_programs(0) * chunk):
        offset, sums = epoch % 2 * TEAM.size, (epoch + 1) % 2 * TEAM.size
        write_shares(x, first, n, share, chunk, zg.add(slots[TEAM.rank], offset), TEAM)
        epoch = meet(team, epoch, timeout_ns, TEAM)
        at = TEAM.rank * share + first
        count = zg.minimum(zg.minimum(chunk, share - first), n - at)
        write_sums(
            zg.add(x, at), slots, offset + TEAM.rank * TEAM.part, zg.add(slots[TEAM.rank], sums), count, TEAM
        )  # fmt: skip
        epoch = meet(team, epoch, timeout_ns, TEAM)
        for rank in zg.static_range(TEAM.world):
            at = rank * share + first
            number = zg.minimum(zg.minimum(chunk, share - first), n - at)
            copy(zg.add(slots[rank], sums), zg.add(out, at), number, TEAM.block)
    end(team, epoch)


@zg.kernel(do_not_specialize=["timeout_ns"])
def reduce_scatter(
    x: Any, out: Any, share: Any, chunk: Any, table: Any, timeout_ns: Any,
    TEAM: zg.constexpr, num_warps: zg.constexpr = 16,
) -> None:  # fmt: skip
    """Each device adds its share of the elements of all."""
    team, epoch = begin(table, TEAM)
    slots = team[0]
    for first in range(zg.program_id(0) * chunk, share, zg.num_programs(0) * chunk):
        offset = epoch % 2 * TEAM.size
        write_shares(x, first, TEAM.world * share, share, chunk, zg.add(slots[TEAM.rank], offset), TEAM)
        epoch = meet(team, epoch, timeout_ns, TEAM)
        own, count = zg.add(x, TEAM.rank * share + first), zg.minimum(chunk, share - first)
        write_sums(own, slots, offset + TEAM.rank * TEAM.part, zg.add(out, first), count, TEAM)
    end(team, epoch)


@zg.kernel(do_not_specialize=["timeout_ns"])
def all_gather(
    x: Any, out: Any, n: Any, chunk: Any, table: Any, timeout_ns: Any, TEAM: zg.constexpr, num_warps: zg.constexpr = 16
) -> None:  # fmt: skip
    """Each device reads the elements of all."""
    team, epoch = begin(table, TEAM)
    slots = team[0]
    for first in range(zg.program_id(0) * chunk, n, zg.num_programs(0) * chunk):
        count, offset = zg.minimum(chunk, n - first), epoch % 2 * TEAM.size
        copy(zg.add(x, first), zg.add(slots[TEAM.rank], offset), count, TEAM.block)
        epoch = meet(team, epoch, timeout_ns, TEAM)
        for rank in zg.static_range(TEAM.world):
            source = zg.add(x, first) if rank == TEAM.rank else zg.add(slots[rank], offset)
            copy(source, zg.add(out, rank * n + first), count, TEAM.block)
    end(team, epoch)


@zg.kernel(do_not_specialize=["timeout_ns"])
def all_reduce_norm(
    x: Any, bias: Any, residual: Any, weight: Any, out: Any, sums: Any, rows: Any, hidden: Any, eps: Any, chunk: Any,
    table: Any, timeout_ns: Any, TEAM: zg.constexpr, num_warps: zg.constexpr = 16,
) -> None:  # fmt: skip
    """Each device adds the rows of all, and a bias and a residual if there are any: `sums`. `out` has each row divided
    by its root mean square, times the weight. A block has the columns of a row, and a chunk is of whole rows."""
    team, epoch = begin(table, TEAM)
    slots = team[0]
    column = zg.arange(0, TEAM.block)
    inside = zg.less(column, hidden)
    for first in range(zg.program_id(0) * chunk, rows, zg.num_programs(0) * chunk):
        count = zg.minimum(chunk, rows - first)
        own, offset = zg.add(x, first * hidden), epoch % 2 * TEAM.size
        copy(own, zg.add(slots[TEAM.rank], offset), count * hidden, TEAM.block)
        epoch = meet(team, epoch, timeout_ns, TEAM)
        for row in range(0, count):
            total = sum_slots(own, slots, offset, row * hidden + column, inside, TEAM)
            place = (first + row) * hidden + column
            if bias is not None:
                total = total + zg.cast(zg.load(zg.add(bias, column), inside, 0.0), zg.f32)
            if residual is not None:
                total = total + zg.cast(zg.load(zg.add(residual, place), inside, 0.0), zg.f32)
            zg.store(zg.add(sums, place), zg.cast(total, TEAM.dtype), inside)
            scale = zg.rsqrt(zg.sum(total * total, 0) / zg.cast(hidden, zg.f32) + eps)
            factor = zg.cast(zg.load(zg.add(weight, column), inside, 0.0), zg.f32)
            zg.store(zg.add(out, place), zg.cast(total * scale * factor, TEAM.dtype), inside)
    end(team, epoch)
