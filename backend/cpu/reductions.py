"""Emission of reductions: neighbours are combined, then neighbours of the results, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.backend.cpu.control import apply, packed
from ziggurat.backend.cpu.emitter import Emitter, memory_kind
from ziggurat.backend.cpu.memory import from_memory, to_memory
from ziggurat.backend.ptx.routines import Number
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.types import element_of

Values = list[Number]  # One number or vector for each operand.


_EXACT = (
    arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF, arith.MaxSI, arith.MaxUI, arith.MinSI, arith.MinUI,
    arith.AddI, arith.MulI, arith.AndI, arith.OrI, arith.XOrI,
)  # fmt: skip


def _in_any_order(op: tt.Reduce, fast_math: bool) -> bool:
    """Whether elements may be combined in any order: nothing is rounded, or nobody asked for the bits."""
    ops, parameters = op.combine.entry.ops, op.combine.parameters
    plain = len(op.combine.blocks) == 1 and len(ops) == 2 and len(parameters) == 2
    known = (*_EXACT, arith.AddF, arith.MulF) if fast_math else _EXACT
    return plain and isinstance(ops[0], known) and set(ops[0].operands) == set(parameters)


class Tree:
    """One reduction. Groups of vectors are combined in the innermost loop, and the results, `groups` of them, lie in
    memory until `finish`. With `across` the reduction is along the lanes, too; with `rows` the groups are the vectors
    of as many rows as there are lanes, and the result is the vector of the rows' results."""

    def __init__(self, emitter: Emitter, op: tt.Reduce, groups: int, across: bool, rows: bool = False) -> None:
        self.emitter = emitter
        self.op = op
        self.groups = groups
        self.across = across and emitter.lanes > 0
        self.lanes = emitter.lanes
        self.types = [element_of(value.type) for value in op.values]
        self._shuffles = rows or (self.across and not _in_any_order(op, emitter.fast_math))
        size = max(self.lanes, 1) * groups
        self._places = [emitter.temporary(8 * size) for _ in self.types]

    def combine(self, first: Values, second: Values) -> Values:
        """The combining body."""
        return apply(self.emitter, self.op.combine, [*first, *second])

    def _pair(self, first: Values, second: Values) -> Values:
        """Two neighbours combined: along the lanes, the even elements of both with the odd ones, if that matters."""
        if not self._shuffles:
            return self.combine(first, second)
        lanes = self.lanes
        halves: list[Values] = []
        for offset in range(2):
            picks = ", ".join(f"i32 {2 * lane + offset}" for lane in range(lanes))
            half: Values = []
            for a, b in zip(first, second, strict=True):
                a, b = a.spread(lanes), b.spread(lanes)
                text = f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{picks}>"
                half.append(self.emitter.made(a.kind, text, lanes))
            halves.append(half)
        return self.combine(*halves)

    def _combined(self, values: Sequence[Values]) -> Values:
        while len(values) > 1:
            even = len(values) & ~1
            paired = [self._pair(values[at], values[at + 1]) for at in range(0, even, 2)]
            values = [*paired, *values[even:]]
        return list(values[0])

    def add(self, values: Sequence[Values], number: Number, step: int) -> None:
        """Combine the vectors of one iteration, which begins at element `number` and has `step` elements."""
        found = self._combined(values)
        self.keep(found, number / step if step > 1 else number)

    def keep(self, values: Values, group: Number) -> None:
        emitter = self.emitter
        for type_, value, place in zip(self.types, values, self._places, strict=True):
            value = to_memory(emitter, value.spread(self.lanes) if self.lanes else value, type_)
            where = emitter.address(emitter.scratch_address(place), group, 8 * max(self.lanes, 1))
            emitter.line(f"store {value.typed}, ptr {where}, align 8")

    def _load(self, group: Number) -> Values:
        emitter = self.emitter
        found: Values = []
        for type_, place in zip(self.types, self._places, strict=True):
            kind = memory_kind(type_)
            where = emitter.address(emitter.scratch_address(place), group, 8 * max(self.lanes, 1))
            text = emitter.number(kind, "", self.lanes).type
            found.append(
                from_memory(
                    emitter,
                    emitter.number(kind, emitter.effect(f"load {text}, ptr {where}, align 8"), self.lanes),
                    type_,
                )
            )
        return found

    def finish(self) -> Any:
        """The result: a number or a vector, or a tuple of them."""
        values = self.combined()
        return packed(self._across(values) if self.across else values)

    def combined(self) -> Values:
        """The groups combined to one vector, or one number."""
        emitter, count = self.emitter, self.groups
        while count > 8:
            width = next(width for width in (8, 4, 2, count) if count % width == 0)

            def group(number: Number, width: int = width) -> None:
                values = [self._load(number * width + at if at else number * width) for at in range(width)]
                self.keep(self._combined(values), number)

            emitter.loop(0, count // width, 1, group)
            count //= width
        return self._combined([self._load(emitter.i64(at)) for at in range(count)])

    def _across(self, values: Values) -> Values:
        """The lanes of a vector combined."""
        emitter, lanes = self.emitter, self.lanes
        while lanes > 1:
            lanes //= 2
            halves: list[Values] = []
            for offset in range(2):
                picks = ", ".join(f"i32 {2 * lane + offset}" for lane in range(lanes))
                half: Values = []
                for value in values:
                    if lanes == 1:
                        half.append(emitter.made(value.kind, f"extractelement {value.typed}, i64 {offset}"))
                        continue
                    text = f"shufflevector {value.typed}, {value.type} poison, <{lanes} x i32> <{picks}>"
                    half.append(emitter.made(value.kind, text, lanes))
                halves.append(half)
            values = [value.spread(lanes) if lanes > 1 else value for value in self.combine(*halves)]
        return values
