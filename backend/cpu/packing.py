"""Packed matrices that a dot keeps for the next programs of a thread: those of a column of a matmul take the same.

A dot keeps the first matrices of a program, with the address and the pitch that each has in its array. A program that
finds them at its own turn does not pack the matrix again. Nothing is kept where the call has one program.
"""

from __future__ import annotations

import attrs

from ziggurat.backend.cpu.access import Matrix
from ziggurat.backend.cpu.emitter import CpuEmitter
from ziggurat.backend.cpu.memory import bounds_of
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import cpu
from ziggurat.codemodel.op import OpResult, expect
from ziggurat.transforms.cpu.traffic import arrays_written, root_of


@attrs.frozen
class Packed:
    """The address of a packed matrix, whether it is still to be packed there, and where its marks are."""

    place: Number
    missing: Number
    marks: tuple[tuple[Number, Number], ...]

    def mark(self, emitter: CpuEmitter) -> None:
        """Say of which matrix the place has the numbers."""
        for address, value in self.marks:
            emitter.line(f"store {value.typed}, ptr {emitter.address(address, 0, 8)}")


def packed_place(emitter: CpuEmitter, op: cpu.Dot, b: Matrix, own: Number, size: int) -> Packed:
    """The place of `size` bytes where the packed b of a dot is kept, or the dot's `own`."""
    assert b.direct is not None
    turn, matrices = emitter.turn(), emitter.lasting(op.keep * size)
    usable = b.direct & turn.test("ult", op.keep) & emitter.once_for_all(_runs_several, lambda: _runs_several(emitter))
    fill = next(use for use in op.b.uses if isinstance(use, cpu.Put))
    roots = [root_of(expect(expect(fill.value, OpResult).op, cpu.Load).ptr)]
    roots += emitter.once_for_all(packed_place, lambda: [*arrays_written(emitter.func)])
    array, *others = [bounds_of(emitter, root) for root in roots if root is not None]
    for other in others:
        usable = usable & other.low.test("ne", array.low)
    number = usable.select(turn, op.keep)  # The marks of the last one are not read.
    marks = tuple((emitter.zeros(op.keep + 1) + number * 8, value) for value in (b.base, b.pitch))
    here = usable
    for address, value in marks:
        mark = emitter.effect(f"load i64, ptr {emitter.address(address, 0, 8)}")
        here = here & value.test("eq", emitter.number("i64", mark))
    return Packed(usable.select(matrices + number * size, own), here ^ True, marks)


def _runs_several(emitter: CpuEmitter) -> Number:
    """Whether the call runs more than one program."""
    emitter.slots += ["  %second = add nsw i64 %first, 1", "  %several = icmp slt i64 %second, %end"]
    return emitter.number("i1", "%several")
