"""Stores around the caches, for arrays that are larger than these: a store to a cache first reads the line from memory.

Whether a region streams is decided when it runs. Its vectors then begin at a whole cache line, and the elements before
it are stored with those after the last whole vector, by masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from ziggurat.backend.cpu import memory
from ziggurat.backend.cpu.emitter import CACHE_LINE
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.traits import MayTrap
from ziggurat.transforms.cpu.plan import moved_operands

if TYPE_CHECKING:
    from ziggurat.backend.cpu.nest import Nest

STREAMED = 1 << 26  # Bytes of a written array. Eight cores of a Zen share a cache of half as many.
FENCE = "void @llvm.x86.sse.sfence()"  # Before the other threads may see what was stored.
_READS = (cpu.Load, tt.Load, tt.AtomicRMW, tt.AtomicCAS)


@attrs.frozen
class Stream:
    """Whether a row is streamed, and the index of the element with which its first whole line begins; else 0."""

    holds: Number
    first: Number


def stream_of(nest: Nest, full: Number) -> Stream | None:
    """The stream of a region whose lanes are all inside up to the index `full`. None if it never streams: if it reads a
    buffer, computes something at another index, or its kernel reads the array."""
    emitter, heads, inner = nest.emitter, list(nest.heads.values()), nest.op.body.entry.ops[:-1]
    store = next((head for head in heads if isinstance(head.op, cpu.Store)), None)  # A region has one at most.
    if emitter.module.vector <= 16 or not emitter.lanes or store is None or nest.reductions or len(nest.shape) > 1:
        return None  # Only x86 has vectors of 32 bytes here, and it has stores that stream.
    plain = all(isinstance(op, cpu.Load | cpu.Store) for op in nest.statements) and all(head.exact for head in heads)
    if not plain or any(isinstance(op, MayTrap | cpu.Get) or moved_operands(op) for op in inner):
        return None
    size, base, root = store.size, store.base, memory.root_of(store.op.ptr)
    read = emitter.once_for_all(
        stream_of, lambda: dict.fromkeys(memory.root_of(op.ptr) for op in emitter.func.walk() if isinstance(op, _READS))
    )
    if None in (root, *read) or root in read or store.strides[0].name != "1" or emitter.lanes * size % CACHE_LINE:
        return None
    assert root is not None
    first = (0 - base) % CACHE_LINE / size
    holds = (base % size).test("eq", 0) & full.test("uge", 2 * emitter.lanes)
    if not all(head.limits for head in heads):
        holds = holds & first.test("eq", 0)  # No vector may reach beyond the row.
    for head in heads:
        holds, head.step = holds & head.good, None  # The processor prefetches the rows of such a region.
    bounds = memory.bounds_of(emitter, root)
    holds = holds & (bounds.high - bounds.low).test("uge", STREAMED)
    for other in filter(None, read):
        holds = holds & memory.bounds_of(emitter, other).low.test("ne", bounds.low)
    emitter.declarations[f"declare {FENCE}"] = None
    return Stream(holds, holds.select(first, 0))


def edges(
    nest: Nest, stream: Stream, start: Number | int, stop: Number | int, group: Callable[[Number, int], None]
) -> None:
    """Run the vector that has the elements before the first whole line, and those from `start` on. `group` runs the
    vectors from an index on."""
    axis, lanes, heads = nest.axis, nest.emitter.lanes, nest.heads.values()

    def body(number: Number) -> None:
        before = number.test("ult", start)
        counts = [head.counts[axis] for head in heads]
        for head in heads:
            head.counts[axis] = before.select(stream.first, head.counts[axis])
        group(before.select(0, number), 1)
        for head, count in zip(heads, counts, strict=True):
            head.counts[axis] = count

    edge = stream.first.test("ne", 0).select(nest.emitter.i64(lanes), 0)
    nest.emitter.loop(start - edge, stop, lanes, body)
