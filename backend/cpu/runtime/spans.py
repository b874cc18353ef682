"""The bounds of a launch's arrays, as LLVM text: arrays that share memory are one region."""

from __future__ import annotations

from typing import Final

from ziggurat.backend.cpu.code import BOUND, BOUNDS
from ziggurat.backend.llvm.functions import Function, Record, Struct, define, moved
from ziggurat.backend.llvm.routines import Number

# The lowest address and the one after the highest, the owner of the memory, whether it may be written, and the number
# of the array among the bounds, or -1.
SPAN: Final = Struct(low="i64", high="i64", owner="ptr", writable="i64", bound="i64")


def span_at(spans: Number, number: Number) -> Record:
    """A span of an array of these."""
    return SPAN.at(moved(spans, number * SPAN.size))


@define("void", "ptr i64 ptr")
def write_bounds(f: Function, spans: Number, count: Number, launch: Number) -> None:
    """Write the bounds of arrays to the description of a launch. Arrays that overlap or have one owner are one region.

    A merged span may overlap a further one: repeat until no span changes.
    """
    has_changed = f.local("i1")
    with f.loop() as sweep:
        has_changed.set(False)
        with f.count(count) as rows, f.count(count, rows.index + 1) as columns:
            span, other = span_at(spans, rows.index), span_at(spans, columns.index)
            low, high, writable = span["low"], span["high"], span["writable"]
            other_low, other_high, other_writable = other["low"], other["high"], other["writable"]
            overlap = low.test("slt", other_high) & other_low.test("slt", high)
            columns.next(~(overlap | span["owner"].test("eq", other["owner"])))
            differs = low.test("ne", other_low) | high.test("ne", other_high)
            columns.next(~(differs | writable.test("ne", other_writable)))
            for member in (span, other):
                member["low"] = low.call("llvm.smin", other_low)
                member["high"] = high.call("llvm.smax", other_high)
                member["writable"] = writable | other_writable
            has_changed.set(True)
        sweep.stop(~has_changed.get())
    with f.count(count) as loop:
        span = span_at(spans, loop.index)
        number = span["bound"]
        loop.next(number.test("slt", 0))
        bound = BOUND.at(moved(launch, number * BOUND.size + BOUNDS))
        for name in BOUND.kinds:
            bound[name] = span[name]
