"""Products of matrices whose rows are on several devices, in one kernel with the transfers of the rows.

Rows lie one after the other, as PyTorch has them. A tile of the result has rows of one device.
"""

from __future__ import annotations

from typing import Any, Final

import ziggurat as zg
from ziggurat.distributed.kernels import COUNTERS, begin, end, meet

TILES: Final = 1 << 16  # The most tiles of a device's rows, which are counted before the rows in its workspace.


@zg.function
def tile_of(number: Any, rows: Any, columns: Any, first: Any, GROUP: zg.constexpr) -> Any:
    """The row and the column of a tile among `rows` · `columns`: in groups of rows, so that tiles that are multiplied
    at once share operands, and from the row `first` on."""
    group = number // (GROUP * columns)
    height = zg.minimum(rows - group * GROUP, GROUP)
    row = group * GROUP + number % (GROUP * columns) % height
    return (row + first) % rows, number % (GROUP * columns) // height


@zg.function
def places_in(row: Any, column: Any, n: Any, BM: zg.constexpr, BN: zg.constexpr) -> Any:
    """The offsets of the elements of a tile in rows of n elements, and whether they are in the row."""
    columns = zg.expand(column + zg.arange(0, BN), 0)
    return zg.add(zg.expand(row + zg.arange(0, BM), 1) * n, columns), zg.less(columns, n)


@zg.kernel(do_not_specialize=["timeout_ns"])
def all_gather_matmul(
    a: Any, b: Any, out: Any, ready: Any, m: Any, n: Any, k: Any, table: Any, timeout_ns: Any, TEAM: zg.constexpr,
    COPIERS: zg.constexpr, CHUNK: zg.constexpr, BM: zg.constexpr, BN: zg.constexpr, BK: zg.constexpr,
    GROUP: zg.constexpr,
) -> None:  # fmt: skip
    """(WORLD · m, k) · (k, n), of which each device has m rows at its place in `a`, which is in symmetric memory.

    The first programs copy the other devices' rows into `a`, and count the copies of each CHUNK of rows in `ready`,
    which is zero at first. The others multiply: the own rows first, then those of the next devices as they come.
    """
    program = zg.program_id(0)
    if program >= COPIERS:
        left = zg.make_tensor_descriptor(a, (TEAM.world * m, k), (k, 1), (BM, BK))
        right = zg.make_tensor_descriptor(b, (k, n), (n, 1), (BK, BN))
        result = zg.make_tensor_descriptor(out, (TEAM.world * m, n), (n, 1), (BM, BN))
        rows, columns = TEAM.world * m // BM, zg.cdiv(n, BN)
        for number in range(program - COPIERS, rows * columns, zg.num_programs(0) - COPIERS):
            row, column = tile_of(number, rows, columns, TEAM.rank * (m // BM), GROUP)
            if row * BM // m != TEAM.rank:
                is_there = zg.wait(zg.add(ready, row * BM // CHUNK), COPIERS, "ge", scope="gpu", timeout_ns=timeout_ns)
                zg.device_assert(is_there, "rows of another device have not come within the timeout")
            total = zg.zeros((BM, BN), zg.f32)
            for at in range(0, k, BK):
                total = zg.dot(left.load((row * BM, at)), right.load((at, column * BN)), total)
            result.store((row * BM, column * BN), zg.cast(total, TEAM.dtype))
    else:
        team, epoch = begin(table, TEAM, "release")  # So that stores by TMA are not moved after it.
        epoch = meet(team, epoch, timeout_ns, TEAM)
        for step in zg.static_range(1, TEAM.world):
            rank = (TEAM.rank + step) % TEAM.world
            for chunk in range(0, m // CHUNK):
                number = rank * (m // CHUNK) + chunk
                for start in range(program * TEAM.block, CHUNK * k, COPIERS * TEAM.block):
                    at = start + zg.arange(0, TEAM.block)
                    inside = zg.less(at, CHUNK * k)
                    place = zg.add(number * (CHUNK * k), at)
                    zg.store(zg.add(a, place), zg.load(zg.add(team[0][rank], place), inside), inside)
                zg.signal(zg.add(ready, number), 1, op="add", scope="gpu")
        end(team, meet(team, epoch, timeout_ns, TEAM))  # Then the other devices have read their rows here.


@zg.kernel(do_not_specialize=["timeout_ns"])
def matmul_reduce_scatter(
    a: Any, b: Any, out: Any, m: Any, n: Any, k: Any, table: Any, timeout_ns: Any, TEAM: zg.constexpr,
    BM: zg.constexpr, BN: zg.constexpr, BK: zg.constexpr, GROUP: zg.constexpr,
) -> None:  # fmt: skip
    """The device's m rows of the sum over all devices of (WORLD · m, k) · (k, n).

    A device writes each tile of its product into the buffer of the device that has the rows, at its own place among
    WORLD · m rows, and counts it there. Then it adds the tiles of its rows as they come, and sets their counts back.
    """
    program = zg.program_id(0)
    team, epoch = begin(table, TEAM)
    left = zg.make_tensor_descriptor(a, (TEAM.world * m, k), (k, 1), (BM, BK))
    right = zg.make_tensor_descriptor(b, (k, n), (n, 1), (BK, BN))
    rows, columns = m // BM, zg.cdiv(n, BN)
    for number in range(program, TEAM.world * rows * columns, zg.num_programs(0)):
        # The own rows last: the others wait for theirs.
        row, column = tile_of(number, TEAM.world * rows, columns, (TEAM.rank + 1) * rows, GROUP)
        total = zg.zeros((BM, BN), zg.f32)
        for at in range(0, k, BK):
            total = zg.dot(left.load((row * BM, at)), right.load((at, column * BN)), total)
        owner = row // rows
        place, inside = places_in(TEAM.rank * m + (row - owner * rows) * BM, column * BN, n, BM, BN)
        target = zg.add(zg.peer(table, owner, TEAM.dtype), TEAM.start)
        zg.store(zg.add(target, place), zg.cast(total, TEAM.dtype), inside)
        count = zg.add(zg.peer(table, owner, zg.i64), COUNTERS)
        zg.signal(zg.add(count, (row - owner * rows) * columns + column), 1, op="add")
    mine = zg.add(zg.peer(table, TEAM.rank, zg.i64), COUNTERS)
    for number in range(program, rows * columns, zg.num_programs(0)):
        is_there = zg.wait(zg.add(mine, number), TEAM.world, timeout_ns=timeout_ns)
        zg.store(zg.add(mine, number), 0)
        zg.device_assert(is_there, "tiles of another device have not come within the timeout")
        total = zg.zeros((BM, BN), zg.f32)
        for rank in zg.static_range(TEAM.world):
            place, inside = places_in(rank * m + number // columns * BM, number % columns * BN, n, BM, BN)
            total = zg.add(total, zg.cast(zg.load(zg.add(team[0][TEAM.rank], place), inside, 0.0), zg.f32))
        place, inside = places_in(number // columns * BM, number % columns * BN, n, BM, BN)
        zg.store(zg.add(out, place), zg.cast(total, TEAM.dtype), inside)
    end(team, meet(team, epoch, timeout_ns, TEAM))  # Then the other devices may write into the buffer here again.
