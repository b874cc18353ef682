"""Emission of reductions: neighbours are combined, then neighbours of the results, and so on.

Two vectors of neighbours become one by two shuffles. Shuffles within 16 bytes are the fastest, so the results need not
lie in the lanes in their order: which lane has which one follows from the number of the steps before (`pairing`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from ziggurat.backend.cpu.control import apply
from ziggurat.backend.cpu.emitter import CpuEmitter, memory_kind
from ziggurat.backend.cpu.extremes import Extremes
from ziggurat.backend.cpu.memory import from_memory, to_memory
from ziggurat.backend.llvm.routines import Number, vector_type
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.types import Type, element_bytes, element_of, scalar_element

Values = list[Number]  # One number or vector for each operand.


# The neutral element of each operation whose order does not matter. Where it is None, it depends on the width.
_NEUTRAL: dict[type[Op], float | int | None] = {
    arith.MaximumF: -math.inf, arith.MinimumF: math.inf, arith.MaxNumF: math.nan, arith.MinNumF: math.nan,
    arith.MaxSI: None, arith.MaxUI: 0, arith.MinSI: None, arith.MinUI: -1,
    arith.AddI: 0, arith.MulI: 1, arith.AndI: -1, arith.OrI: 0, arith.XOrI: 0,
}  # fmt: skip
_ROUNDED: dict[type[Op], float] = {arith.AddF: -0.0, arith.MulF: 1.0}


def _neutral(op: tt.Reduce, fast_math: bool) -> float | int | None:
    """The neutral element of a reduction that may combine elements in any order: nothing is rounded, or
    `fast_math` is set. None for any other."""
    ops, parameters = op.combine.entry.ops, op.combine.parameters
    plain = len(op.combine.blocks) == 1 and len(ops) == 2 and len(parameters) == 2
    kind = type(ops[0])
    if not plain or set(ops[0].operands) != set(parameters) or (kind not in _NEUTRAL and kind not in _ROUNDED):
        return None
    scalar = scalar_element(op.values[0].type)
    if scalar.is_fp8:
        return None
    if kind in (arith.MaxSI, arith.MinSI):
        least = -1 << scalar.bits - 1
        return least if kind is arith.MaxSI else ~least
    # In any order, long chains of numbers of 16 bits would lose all digits.
    return _NEUTRAL.get(kind, _ROUNDED.get(kind) if fast_math and scalar.bits >= 32 else None)


@cache
def pairing(order: tuple[int, ...], block: int) -> tuple[tuple[int, ...], ...]:
    """The lanes of the first and of the second operands, and the numbers of the results, where neighbours are combined.
    The lanes of a vector, or of two one after the other, hold elements with the numbers `order`. A result stays in its
    block of lanes where all operands of a block are in it."""
    lanes, lane_of = len(order) // 2, {number: lane for lane, number in enumerate(order)}
    pairs = [(lane_of[2 * number], lane_of[2 * number + 1], number) for number in range(lanes)]
    near = all(first // block == second // block for first, second, _ in pairs)
    pairs.sort(key=lambda pair: (pair[0] % lanes // block if near else 0, pair[0]))
    return tuple(zip(*pairs, strict=True))


class Tree:
    """One reduction. The vectors of each iteration of the innermost loop are combined. If the order matters, the
    results, `groups` of them, lie in memory until `finish`; if not, loops carry what was combined: `parts`, one
    vector for each of an iteration, and what `Extremes` need. With `across` the reduction is along the lanes, too; with
    `rows` the groups are the vectors of as many rows as there are lanes, and the result is the vector of the rows'
    results."""

    def __init__(
        self, emitter: CpuEmitter, op: tt.Reduce, groups: int, vectors: int, across: bool, rows: bool = False
    ) -> None:
        self.emitter = emitter
        self.op = op
        self.groups = groups
        self.across = across and emitter.lanes > 0
        self.rows = rows
        self.lanes = emitter.lanes
        self.types = [element_of(value.type) for value in op.values]
        start = None if rows else _neutral(op, emitter.fast_math)
        self._extremes = Extremes.of(emitter, op) if start is not None else None
        self.parts: list[Number] = []
        self._places: list[int] = []
        if start is None:
            self._places = [emitter.temporary(groups * self._stride(type_)) for type_ in self.types]
        elif self._extremes is not None:
            self.parts = self._extremes.first(vectors)
        else:
            first = emitter.constant(start, self.types[0])
            self.parts = [first.spread(self.lanes) if self.lanes else first] * vectors
        self._shuffles = self.across and start is None
        self.orders = [tuple(range(max(self.lanes, 1)))]  # The numbers of the elements in the lanes, after each step.
        self._block = max(2, 16 // element_bytes(self.types[0]))
        self._steps = 0  # Those of what the groups hold.
        self._pending: list[tuple[Values, int]] = []  # The vectors of the present iteration, and their steps.

    def _stride(self, type_: Type) -> int:
        return element_bytes(type_) * max(self.lanes, 1)

    def combine(self, first: Values, second: Values) -> Values:
        """The combining body."""
        if self._extremes is not None:
            return self._extremes.combine(first, second)
        return apply(self.emitter, self.op.combine, [*first, *second])

    def _neighbours(self, vectors: Sequence[Values], order: tuple[int, ...]) -> tuple[Values, tuple[int, ...]]:
        """The even elements combined with the odd ones, of one vector or two for each operand; and the new order."""
        first, second, following = pairing(order, self._block)
        halves = [[self._picked(values, picks) for values in vectors] for picks in (first, second)]
        return self.combine(*halves), following

    def _picked(self, values: Values, picks: Sequence[int]) -> Number:
        """The elements with these numbers of one or two vectors."""
        lanes, first = len(picks), values[0]
        if lanes == 1:
            return self.emitter.made(first.kind, f"extractelement {first.typed}, i64 {picks[0]}")
        other = values[1].typed if len(values) > 1 else f"{first.type} poison"
        text = f"shufflevector {first.typed}, {other}, <{lanes} x i32> <{', '.join(f'i32 {pick}' for pick in picks)}>"
        return self.emitter.made(first.kind, text, lanes)

    def _pair(self, first: Values, second: Values, steps: int) -> Values:
        """Two neighbours combined, after so many steps: along the lanes, the neighbours in both."""
        if not self._shuffles:
            return self.combine(first, second)
        pairs = [[a.spread(self.lanes), b.spread(self.lanes)] for a, b in zip(first, second, strict=True)]
        order = self.orders[steps]
        combination, following = self._neighbours(pairs, (*order, *(self.lanes + number for number in order)))
        if len(self.orders) == steps + 1:
            self.orders.append(following)
        return combination

    def _take(self, values: Values, steps: int) -> None:
        """Combine vectors that have been through the same number of steps."""
        while self._pending and self._pending[-1][1] == steps:
            values = self._pair(self._pending.pop()[0], values, steps)
            steps += 1
        self._pending.append((values, steps))

    def _combined(self) -> tuple[Values, int]:
        """All that has come combined, and its steps."""
        taken, self._pending = self._pending, []
        while len(taken) > 1:
            (first, steps), (second, _) = taken[-2:]
            taken[-2:] = [(self._pair(first, second, steps), steps + 1)]
        return taken[0]

    def add(self, position: int, values: Values) -> None:
        """Combine a vector of the present iteration."""
        if self._extremes is not None:
            self._extremes.add(self.parts, position, values[0])
        elif self.parts:
            (self.parts[position],) = self.combine([self.parts[position]], values)
        else:
            self._take(values, 0)

    def end(self, group: Number) -> None:
        """End the iteration with this number."""
        if not self.parts:
            values, self._steps = self._combined()
            self.keep(values, group)

    def keep(self, values: Values, group: Number) -> None:
        emitter = self.emitter
        for type_, value, place in zip(self.types, values, self._places, strict=True):
            value = to_memory(emitter, value.spread(self.lanes) if self.lanes else value, type_)
            where = emitter.address(emitter.scratch_address(place), group, self._stride(type_))
            emitter.line(f"store {value.typed}, ptr {where}, align {element_bytes(type_)}")

    def _load(self, group: Number) -> Values:
        emitter = self.emitter
        loads: Values = []
        for type_, place in zip(self.types, self._places, strict=True):
            kind = memory_kind(type_)
            where = emitter.address(emitter.scratch_address(place), group, self._stride(type_))
            text = f"load {vector_type(kind, self.lanes)}, ptr {where}, align {element_bytes(type_)}"
            loads.append(from_memory(emitter, emitter.number(kind, emitter.effect(text), self.lanes), type_))
        return loads

    def finish(self) -> Any:
        """The result: a number or a vector, or a tuple of them."""
        values = self._all()
        order = self.orders[-1]
        if self.rows and order != tuple(range(self.lanes)):
            values = [self._picked([value], [order.index(lane) for lane in range(self.lanes)]) for value in values]
        while self.across and not self.rows and len(order) > 1:
            values, order = self._neighbours([[value.spread(len(order))] for value in values], order)
        return packed_values(self._exact(values))

    def combined(self) -> Values:
        """The groups combined to one vector, or one number; its lanes have the last one of the orders."""
        return self._exact(self._all())

    def _exact(self, values: Values) -> Values:
        return values if self._extremes is None else [self._extremes.exact(*values)]

    def _all(self) -> Values:
        marks = [] if self._extremes is None else self.parts[-2:]
        for number in self.parts[: len(self.parts) - len(marks)]:
            self._take([number, *marks], 0)
        count, steps = 0 if self.parts else self.groups, self._steps
        while count > 8:
            width = next(width for width in (8, 4, 2, count) if count % width == 0)

            def group(number: Number, width: int = width, steps: int = steps) -> None:
                for at in range(width):
                    self._take(self._load(number * width + at if at else number * width), steps)
                values, self._steps = self._combined()
                self.keep(values, number)

            self.emitter.loop(0, count // width, 1, group)
            count, steps = count // width, self._steps
        for at in range(count):
            self._take(self._load(self.emitter.i64(at)), steps)
        return self._combined()[0]
