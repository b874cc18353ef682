"""Attention whose keys and values are on several devices, one launch for the keys and values of one of them.

Each device writes its keys and values into its workspace, which the others read. While a launch works on the keys and
values of one device, its first programs copy those of the next one. What a softmax over all keys needs from one launch
to the next is in memory: for each query the maximum of the scores, the sum of the powers, and the sum of the values.
"""

from __future__ import annotations

from typing import Any

import ziggurat as zg
from ziggurat.distributed.kernels import begin, copy, end, meet


@zg.kernel(do_not_specialize=["timeout_ns"])
def publish(
    k: Any, v: Any, count: Any, table: Any, timeout_ns: Any, TEAM: zg.constexpr, num_warps: zg.constexpr = 16
) -> None:  # fmt: skip
    """Write `count` elements of keys and of values where the other devices read them."""
    team, epoch = begin(table, TEAM)
    target = team[0][TEAM.rank]
    epoch = meet(team, epoch, timeout_ns, TEAM)  # Then the others have read what is there.
    for first in range(zg.program_id(0) * TEAM.block, count, zg.num_programs(0) * TEAM.block):
        number = zg.minimum(TEAM.block, count - first)
        copy(zg.add(k, first), zg.add(target, first), number, TEAM.block)
        copy(zg.add(v, first), zg.add(target, count + first), number, TEAM.block)
    end(team, meet(team, epoch, timeout_ns, TEAM))


@zg.function
def attend(
    q: Any, keys: Any, values: Any, row: Any, at: Any, queries: Any, scale: Any, weighted: Any, total: Any, top: Any,
    MASKED: zg.constexpr, DTYPE: zg.constexpr,
) -> Any:  # fmt: skip
    """Add the block of keys and values at `at`. If MASKED, a query attends to no key after its own."""
    scores = zg.dot(q, zg.trans(keys.load((row + at, 0))))
    if MASKED:
        is_before = zg.expand(queries, 1) >= zg.expand(at + zg.arange(0, scores.shape[1]), 0)
        scores = zg.where(is_before, scores, -float("inf"))
    higher = zg.maximum(top, zg.max(scores, axis=1) * scale)
    powers = zg.exp2(scores * scale - zg.expand(higher, 1))
    shrink = zg.exp2(top - higher)
    weighted = zg.dot(zg.cast(powers, DTYPE), values.load((row + at, 0)), weighted * zg.expand(shrink, 1))
    return weighted, total * shrink + zg.sum(powers, axis=1), higher


@zg.kernel
def ring_step(
    q: Any, k: Any, v: Any, out: Any, lse: Any, sums: Any, totals: Any, tops: Any, heads: Any, shared: Any, n: Any,
    scale: Any, following: Any, source: Any, count: Any, table: Any, TEAM: zg.constexpr, CAUSAL: zg.constexpr,
    FIRST: zg.constexpr, LAST: zg.constexpr, COPIERS: zg.constexpr, BM: zg.constexpr, BN: zg.constexpr, D: zg.constexpr,
) -> None:  # fmt: skip
    """Attend to the keys and values of one device: `heads` of n queries, `shared` of which have one head of n keys.

    The first COPIERS programs copy the `count` keys and values of device `source` into `following`. With CAUSAL the
    keys are at the places of the queries. The LAST launch writes the results, `out` and the logarithms `lse` of sums.
    """
    program = zg.program_id(0)
    if program < COPIERS:
        theirs = zg.add(zg.peer(table, source, TEAM.dtype), TEAM.start)
        for first in range(program * TEAM.block, 0 if LAST else 2 * count, COPIERS * TEAM.block):
            number = zg.minimum(TEAM.block, 2 * count - first)
            copy(zg.add(theirs, first), zg.add(following, first), number, TEAM.block)
    else:
        blocks = n // BM
        head = (program - COPIERS) // blocks
        first = (blocks - 1 - (program - COPIERS) % blocks) * BM  # The last queries of a causal head take longest.
        rows = heads * n
        keys = zg.make_tensor_descriptor(k, (rows // shared, D), (D, 1), (BN, D))
        values = zg.make_tensor_descriptor(v, (rows // shared, D), (D, 1), (BN, D))
        queries = first + zg.arange(0, BM)
        place = head * n + queries
        matrix = zg.expand(place, 1) * D + zg.expand(zg.arange(0, D), 0)
        own = zg.load(zg.add(q, matrix))
        row, factor = head // shared * n, scale * 1.4426950408889634  # exp(x) is exp2 of x times the logarithm of e.
        if FIRST:
            weighted, total = zg.zeros((BM, D), zg.f32), zg.zeros((BM,), zg.f32)
            top = zg.full((BM,), -float("inf"), zg.f32)
        else:
            weighted, total = zg.load(zg.add(sums, matrix)), zg.load(zg.add(totals, place))
            top = zg.load(zg.add(tops, place))
        for at in range(0, first if CAUSAL else n, BN):
            weighted, total, top = attend(
                own, keys, values, row, at, queries, factor, weighted, total, top, False, TEAM.dtype
            )  # fmt: skip
        if CAUSAL:
            for at in range(first, first + BM, BN):
                weighted, total, top = attend(
                    own, keys, values, row, at, queries, factor, weighted, total, top, True, TEAM.dtype
                )  # fmt: skip
        if LAST:
            zg.store(zg.add(out, matrix), zg.cast(weighted / zg.expand(total, 1), TEAM.dtype))
            zg.store(zg.add(lse, place), (top + zg.log2(total)) * 0.6931471805599453)
        else:
            zg.store(zg.add(sums, matrix), weighted)
            zg.store(zg.add(totals, place), total)
            zg.store(zg.add(tops, place), top)
