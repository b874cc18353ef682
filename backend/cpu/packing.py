"""Packed matrices that a dot keeps for the next programs of a thread. Programs of one column of a matmul read one b.

A dot keeps the packed matrices of its first executions in a program, with the address and the pitch that each matrix
has in its array. The same execution of the dot in a later program packs its matrix only if the address or the pitch is
another one. Nothing is kept where the call has one program.
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
    """The place of a packed matrix, and whether the matrix is still to be packed there. `marks` are the address and the
    pitch of the matrix in its array, and its rows and columns, each with the address at which it is kept."""

    place: Number
    missing: Number
    marks: tuple[tuple[Number, Number], ...]

    def mark(self, emitter: CpuEmitter) -> None:
        """Store the marks of the matrix that has been packed."""
        for address, value in self.marks:
            emitter.line(f"store {value.typed}, ptr {emitter.address(address, 0, 8)}")


def packed_place(emitter: CpuEmitter, op: cpu.Dot, b: Matrix, own: Number, size: int) -> Packed:
    """The `size` bytes for the packed b of a dot: memory that later programs find again, or the dot's `own`."""
    assert b.direct is not None
    execution, matrices = emitter.executions(), emitter.lasting(op.keep * size)
    usable = (
        b.direct & execution.test("ult", op.keep) & emitter.once_for_all(_runs_several, lambda: _runs_several(emitter))
    )
    fill = next(use for use in op.b.uses if isinstance(use, cpu.Put))
    roots = [root_of(expect(expect(fill.value, OpResult).op, cpu.Load).ptr)]
    roots += emitter.once_for_all(packed_place, lambda: [*arrays_written(emitter.func)])
    array, *others = [bounds_of(emitter, root) for root in roots if root is not None]
    for other in others:
        usable = usable & other.low.test("ne", array.low)
    number = usable.select(execution, op.keep)  # The marks of the last one are not read.
    values = b.base, b.pitch, *(b.counts if b.bare and b.counts is not None else ())
    marks = tuple((emitter.zeros(op.keep + 1) + number * 8, value) for value in values)
    here = usable
    for address, value in marks:
        mark = emitter.effect(f"load i64, ptr {emitter.address(address, 0, 8)}")
        here = here & value.test("eq", emitter.number("i64", mark))
    return Packed(usable.select(matrices + number * size, own), here ^ True, marks)


def _runs_several(emitter: CpuEmitter) -> Number:
    """Whether the call runs more than one program."""
    emitter.slots += ["  %second = add nsw i64 %first, 1", "  %several = icmp slt i64 %second, %end"]
    return emitter.number("i1", "%several")
