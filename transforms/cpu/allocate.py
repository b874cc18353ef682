"""Places of buffers in the scratch memory of a thread. Two buffers share memory if no op may run that needs both."""

from __future__ import annotations

import attrs

from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import Outcome, Rewriter, transform, with_attributes

ALIGNMENT = 64


@attrs.define(eq=False)
class _Range:
    """The first and the last op, by number, that need a buffer."""

    first: int
    last: int
    bytes: int
    offset: int = -1


def allocate(module: Op) -> cpu.Module:
    """The module with an offset for each buffer, and the size of the scratch memory."""
    (func,) = expect(module, cpu.Module).functions().values()
    ranges = _ranges(expect(func, tt.Func))
    live: list[_Range] = []
    for range_ in sorted(ranges.values(), key=lambda r: -r.bytes):
        at = 0
        for other in sorted(live, key=lambda r: r.offset):
            overlaps = range_.first <= other.last and other.first <= range_.last
            if overlaps and other.offset < at + range_.bytes and at < other.offset + other.bytes:
                at = other.offset + other.bytes
        range_.offset = at
        live.append(range_)
    scratch = max((r.offset + r.bytes for r in live), default=0)

    def place(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, cpu.Alloc):  # One that nothing uses any more may have had a place beyond the new end.
            return builder.add(cpu.Alloc(op.type, offset=ranges[op.result].offset if op.result in ranges else -1))
        return None

    return expect(with_attributes(transform(module, place, pass_name="allocate"), {"scratch": scratch}), cpu.Module)


def _ranges(func: tt.Func) -> dict[Value, _Range]:
    """The range of ops that need each buffer. A loop needs a buffer from its first op to its last if some op outside of
    the loop does. In a function of several blocks all buffers are needed from the first op to the last."""
    numbers: dict[Op, int] = {}
    spans: list[tuple[int, int]] = []
    ranges: dict[Value, _Range] = {}

    def visit(op: Op) -> None:
        number = numbers[op] = len(numbers)
        for value in op.operands:
            if isinstance(value.type, cpu.BufferType):
                size = -(-value.type.bytes // ALIGNMENT) * ALIGNMENT
                range_ = ranges.setdefault(value, _Range(number, number, size))
                range_.last = number
        for inner in op.inner_ops():
            visit(inner)
        if isinstance(op, Loop) or op.jumps:
            spans.append((number, len(numbers)))
        if isinstance(op, cpu.Region):  # Its loops run all statements again and again.
            for value in op.used_values():
                if value in ranges:
                    ranges[value].first = min(ranges[value].first, number)
                    ranges[value].last = len(numbers) - 1

    visit(func)
    changed = True
    while changed:
        changed = False
        for first, last in spans:
            for live_range in ranges.values():
                crosses = live_range.first < first <= live_range.last or live_range.first <= last < live_range.last
                if crosses and live_range.last >= first and (live_range.first > first or live_range.last < last):
                    live_range.first, live_range.last = min(live_range.first, first), max(live_range.last, last)
                    changed = True
    if len(func.body.blocks) > 1:
        for live_range in ranges.values():
            live_range.first, live_range.last = 0, len(numbers)
    return ranges
