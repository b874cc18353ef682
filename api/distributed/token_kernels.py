"""Tokens of a mixture of experts, sent to the devices that have their experts, and their results sent back.

Each device has as many tokens, each with K experts. A token and one of its experts are a pair. `route` has a number for
each pair of all devices: the row of the token here among those of its expert, if the expert is here, or -1 - r if the
expert is on device r. A token goes over the link once to each device that has experts of it.
"""

from __future__ import annotations

from typing import Any

import ziggurat as zg
from ziggurat.distributed.kernels import begin, copy, end, meet


@zg.kernel
def route_pairs(
    experts: Any, route: Any, ends: Any, pairs: Any, count: Any, capacity: Any,
    RANK: zg.constexpr, WORLD: zg.constexpr, BLOCK: zg.constexpr,
) -> None:  # fmt: skip
    """Number the pairs of the experts here: those of an expert one after the other, in the order of devices and tokens.
    `ends` gets the number after the last one of each expert. There is a program for each expert here."""
    program, here = zg.program_id(0), zg.num_programs(0)
    before = zg.zeros((BLOCK,), zg.i32)
    for start in range(0, pairs, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        expert = zg.load(zg.add(experts, at), zg.less(at, pairs), -1) - RANK * here
        before = before + zg.cast((expert >= 0) & (expert < program), zg.i32)
    row = zg.sum(before, 0)
    for start in range(0, pairs, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        is_own = zg.load(zg.add(experts, at), zg.less(at, pairs), -1) == RANK * here + program
        ones = zg.cast(is_own, zg.i32)
        zg.store(zg.add(route, at), row + zg.cumsum(ones, 0) - 1, is_own)
        row = row + zg.sum(ones, 0)
    zg.store(zg.add(ends, program), row)
    zg.device_assert(row <= capacity, "the pairs of the experts of a device must not be more than its capacity")
    for start in range(program * BLOCK, pairs, here * BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        expert = zg.load(zg.add(experts, at), zg.less(at, pairs), RANK * here)
        device = zg.where((expert >= 0) & (expert < count), expert // here, WORLD)
        zg.store(zg.add(route, at), -1 - device, device != RANK)


@zg.function
def has_pair(route: Any, device: Any, K: zg.constexpr) -> Any:
    """Whether a token has a pair on a device."""
    is_there = zg.load(route) == -1 - device
    for k in zg.static_range(1, K):
        is_there = is_there | (zg.load(zg.add(route, k)) == -1 - device)
    return is_there


@zg.function
def has_row(route: Any, K: zg.constexpr) -> Any:
    """Whether a token has a pair here."""
    row = zg.load(route)
    for k in zg.static_range(1, K):
        row = zg.maximum(row, zg.load(zg.add(route, k)))
    return row >= 0


@zg.kernel(do_not_specialize=["timeout_ns"])
def spread(
    x: Any, route: Any, out: Any, tokens: Any, hidden: Any, table: Any, timeout_ns: Any,
    TEAM: zg.constexpr, K: zg.constexpr, TOKENS: zg.constexpr, num_warps: zg.constexpr = 16,
) -> None:  # fmt: skip
    """Copy the tokens of all devices to the rows of their pairs here. A round of a program is TOKENS of each device."""
    team, epoch = begin(table, TEAM)
    slots = team[0]
    own = zg.add(route, TEAM.rank * tokens * K)
    for first in range(zg.program_id(0) * TOKENS, tokens, zg.num_programs(0) * TOKENS):
        offset, count = epoch % 2 * TEAM.size, zg.minimum(TOKENS, tokens - first)
        for rank in zg.static_range(TEAM.world):
            if rank != TEAM.rank:
                slot = zg.add(slots[rank], offset + TEAM.rank * TEAM.part)
                for token in range(0, count):
                    if has_pair(zg.add(own, (first + token) * K), rank, K):
                        copy(zg.add(x, (first + token) * hidden), zg.add(slot, token * hidden), hidden, TEAM.block)
        epoch = meet(team, epoch, timeout_ns, TEAM)
        for rank in zg.static_range(TEAM.world):
            for token in range(0, count):
                pairs = zg.add(route, (rank * tokens + first + token) * K)
                slot = zg.add(slots[TEAM.rank], offset + rank * TEAM.part + token * hidden)
                source = zg.add(x, (first + token) * hidden) if rank == TEAM.rank else slot
                if has_row(pairs, K):
                    for start in range(0, hidden, TEAM.block):
                        at = zg.add(start, zg.arange(0, TEAM.block))
                        inside = zg.less(at, hidden)
                        value = zg.load(zg.add(source, at), inside)
                        for k in zg.static_range(K):
                            row = zg.load(zg.add(pairs, k))
                            target = zg.add(zg.add(out, zg.cast(row, zg.i64) * hidden), at)
                            zg.store(target, value, inside & (row >= 0))
    end(team, epoch)


@zg.function
def weighted_rows(rows: Any, weights: Any, pairs: Any, hidden: Any, at: Any, inside: Any, K: zg.constexpr) -> Any:
    """The sum of the rows of a token's pairs here, each times its weight, in f32."""
    total = zg.zeros(at.shape, zg.f32)
    for k in zg.static_range(K):
        row = zg.load(zg.add(pairs, k))
        value = zg.load(zg.add(zg.add(rows, zg.cast(row, zg.i64) * hidden), at), inside & (row >= 0), 0.0)
        total = total + zg.cast(value, zg.f32) * zg.load(zg.add(weights, k))
    return total


@zg.kernel(do_not_specialize=["timeout_ns"])
def combine(
    rows: Any, weights: Any, route: Any, out: Any, tokens: Any, hidden: Any, table: Any, timeout_ns: Any,
    TEAM: zg.constexpr, K: zg.constexpr, TOKENS: zg.constexpr, num_warps: zg.constexpr = 16,
) -> None:  # fmt: skip
    """For each token of this device add the rows of its pairs on all devices, times their weights. A device sends one
    sum a token. `weights` has those of all devices."""
    team, epoch = begin(table, TEAM)
    slots = team[0]
    for first in range(zg.program_id(0) * TOKENS, tokens, zg.num_programs(0) * TOKENS):
        offset, count = epoch % 2 * TEAM.size, zg.minimum(TOKENS, tokens - first)
        for rank in zg.static_range(TEAM.world):
            if rank != TEAM.rank:
                slot = zg.add(slots[rank], offset + TEAM.rank * TEAM.part)
                for token in range(0, count):
                    pair = (rank * tokens + first + token) * K
                    pairs = zg.add(route, pair)
                    if has_row(pairs, K):
                        for start in range(0, hidden, TEAM.block):
                            at = zg.add(start, zg.arange(0, TEAM.block))
                            inside = zg.less(at, hidden)
                            total = weighted_rows(rows, zg.add(weights, pair), pairs, hidden, at, inside, K)
                            zg.store(zg.add(slot, token * hidden + at), zg.cast(total, TEAM.dtype), inside)
        epoch = meet(team, epoch, timeout_ns, TEAM)
        for token in range(0, count):
            pair = (TEAM.rank * tokens + first + token) * K
            pairs = zg.add(route, pair)
            for start in range(0, hidden, TEAM.block):
                at = zg.add(start, zg.arange(0, TEAM.block))
                inside = zg.less(at, hidden)
                total = zg.zeros((TEAM.block,), zg.f32)
                for rank in zg.static_range(TEAM.world):
                    if rank == TEAM.rank:
                        total = total + weighted_rows(rows, zg.add(weights, pair), pairs, hidden, at, inside, K)
                    else:
                        slot = zg.add(slots[TEAM.rank], offset + rank * TEAM.part + token * hidden)
                        is_there = inside & has_pair(pairs, rank, K)
                        total = total + zg.cast(zg.load(zg.add(slot, at), is_there, 0.0), zg.f32)
                zg.store(zg.add(out, (first + token) * hidden + at), zg.cast(total, TEAM.dtype), inside)
    end(team, epoch)
