"""Stores around the caches, for arrays that are larger than these.

A row streams if its array is large enough when the kernel runs. Its vectors then begin at a whole cache line, and the
elements before it are stored with those after the last whole vector, by masks.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ziggurat.backend.cpu import memory
from ziggurat.backend.cpu.access import Head
from ziggurat.backend.cpu.emitter import CpuEmitter
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import cpu
from ziggurat.transforms.cpu.traffic import CACHE_LINE, arrays_read, root_of

FENCE = "void @llvm.x86.sse.sfence()"  # Before the other threads may see what was stored.


@attrs.frozen
class Stream:
    """Whether a row is streamed, and the index of the element with which its first whole line begins; else 0."""

    holds: Number
    first: Number


def stream_of(emitter: CpuEmitter, heads: Sequence[Head], full: Number) -> Stream | None:
    """The stream of a region with these accesses, whose lanes are all inside up to the index `full`. None if its store
    does not say that it streams."""
    store = next((head for head in heads if isinstance(head.op, cpu.Store) and head.op.stream), None)
    if store is None:
        return None
    assert isinstance(store.op, cpu.Store)
    size, base, root = store.size, store.base, root_of(store.op.ptr)
    assert root is not None
    first = (0 - base) % CACHE_LINE / size
    holds = (base % size).test("eq", 0) & full.test("uge", 2 * emitter.lanes)
    if not all(head.limits for head in heads):
        holds = holds & first.test("eq", 0)  # No vector may reach beyond the row.
    for head in heads:
        holds = holds & head.good
    bounds = memory.bounds_of(emitter, root)
    holds = holds & (bounds.high - bounds.low).test("uge", store.op.stream)
    for other in emitter.once_for_all(stream_of, lambda: arrays_read(emitter.func)):
        assert other is not None
        holds = holds & memory.bounds_of(emitter, other).low.test("ne", bounds.low)
    emitter.declarations[f"declare {FENCE}"] = None
    return Stream(holds, holds.select(first, 0))
