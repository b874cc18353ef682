"""Maxima and minima of floats that ignore NaN, along loops.

An exact maximum takes six instructions on machines whose own maximum does not order zeros and returns NaN for some
pairs of a number and a NaN. A loop takes a comparison and a choice in its place. Their result is wrong in two cases: a
zero may have the wrong sign, and elements that are all NaN give the infinity of the start. So the loop also computes
the least of the elements' bits, as unsigned and as signed integers; after it, they decide both cases.
"""

from __future__ import annotations

import math

import attrs

from ziggurat.backend.cpu.emitter import CpuEmitter
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import scalar_element

_GREATER: dict[type[Op], bool] = {arith.MaxNumF: True, arith.MinNumF: False}


@attrs.frozen
class Extremes:
    """Maxima or minima of vectors. A loop carries one for each vector of an iteration, and two of least bits."""

    greater: bool
    worst: Number  # The infinity with which they begin, in each lane.
    bits: int  # Of an element.

    @classmethod
    def of(cls, emitter: CpuEmitter, op: tt.Reduce) -> Extremes | None:
        """The state for a reduction of vectors; None for other operations, and for elements of 16 bits."""
        greater, scalar = _GREATER.get(type(op.combine.entry.ops[0])), scalar_element(op.values[0].type)
        if greater is None or scalar.bits < 32 or not emitter.lanes:
            return None
        worst = emitter.constant(-math.inf if greater else math.inf, scalar)
        return cls(greater, worst.spread(emitter.lanes), scalar.bits)

    def first(self, vectors: int) -> list[Number]:
        """The values with which a loop begins."""
        least = self.worst.bits()
        marks = (-1, (1 << self.bits - 1) - 1)
        return [self.worst] * vectors + [least.like(mark).spread(least.lanes) for mark in marks]

    def add(self, values: list[Number], position: int, value: Number) -> None:
        """Take a vector of an iteration."""
        value = value.spread(self.worst.lanes)
        bits = value.bits()
        values[position], *values[-2:] = self.combine([value, bits, bits], [values[position], *values[-2:]])

    def combine(self, first: list[Number], second: list[Number]) -> list[Number]:
        """Combine two vectors, each with its least bits."""
        (value, unsigned, signed), (other, *marks) = first, second
        best = value.test("ogt" if self.greater else "olt", other).select(value, other)
        return [best, unsigned.call("llvm.umin", marks[0]), signed.call("llvm.smin", marks[1])]

    def exact(self, value: Number, unsigned: Number, signed: Number) -> Number:
        """The result of the reduction, from the loop's result and the least bits."""
        worst, none = self.worst.lane(0), self.worst.like(math.nan)
        if self.greater:
            zero = unsigned.test("eq", 0).select(0.0, -0.0, value.kind)
            worst = signed.test("eq", worst.bits()).select(worst, none)
        else:
            zero = signed.test("eq", -1 << self.bits - 1).select(-0.0, 0.0, value.kind)
            worst = unsigned.test("eq", worst.bits()).select(worst, none)
        return value.test("oeq", 0.0).select(zero, value.test("oeq", self.worst.lane(0)).select(worst, value))
