"""The block of the accumulator that a dot keeps in registers, and whether the dot packs its second operand."""

from __future__ import annotations

import attrs

from ziggurat.codemodel.dialects import cpu
from ziggurat.codemodel.dialects.tt import InputPrecision
from ziggurat.codemodel.op import constant_of, expect
from ziggurat.codemodel.types import ScalarType, f16, f32

# Vectors of a block, and of one of its rows, by the bytes of a vector: as many as registers hold. More than 10,
# because a fused multiply-add of Haswell and Zen 2 takes 5 cycles, and two begin in each.
SUMS = {64: (24, 4), 32: (12, 2), 16: (8, 2)}


@attrs.frozen
class DotBlock:
    """A block has `rows` rows of `vectors` vectors of `lanes` lanes. A number of rows that it does not divide leaves a
    smaller block at the end."""

    rows: int
    vectors: int
    lanes: int

    @classmethod
    def of(cls, sizes: tuple[int, int, int], element_bytes: int, vector: int, *, transposed: bool) -> DotBlock:
        """The block for rows, depth and columns of a dot whose accumulator has elements of these bytes."""
        rows, depth, columns = sizes
        lanes = lanes_of_block(depth, columns, element_bytes, vector, transposed=transposed)
        most, most_vectors = SUMS[vector]
        vectors = power_of_two_in(most_vectors, columns // lanes)
        height = most // vectors
        if rows < most or rows % height == 0:
            height = power_of_two_in(1 << (height.bit_length() - 1), rows)
        return cls(height, vectors, lanes)

    @property
    def columns(self) -> int:
        """Those of a panel of the packed operand."""
        return self.vectors * self.lanes


def power_of_two_in(limit: int, size: int) -> int:
    """The largest power of two up to `limit`, which is one, that divides a size."""
    while size % limit:
        limit //= 2
    return limit


def lanes_of_block(depth: int, columns: int, element_bytes: int, vector: int, *, transposed: bool) -> int:
    """The lanes of a vector of the accumulator."""
    lanes = power_of_two_in(vector // element_bytes, columns)
    return power_of_two_in(lanes, depth) if transposed else lanes  # It is packed in squares.


def packing_obstacle(dot: cpu.Dot, access: cpu.Access, vector: int) -> str | None:
    """Why a dot does not pack the matrix of an access where it is in memory; None if it does.

    A matrix of another type than that of the accumulation is converted as it is packed, or its neighbours along k are
    joined: it is always packed.
    """
    a, b, c = (expect(buffer.type, cpu.BufferType) for buffer in (dot.a, dot.b, dot.c))
    element, accumulator = expect(b.element, ScalarType), expect(c.element, ScalarType)
    if element == f32 and dot.input_precision not in (InputPrecision.DEFAULT, InputPrecision.IEEE):
        return "the dot packs parts of its numbers"
    if dot.transposed or element != (f32 if accumulator == f16 else accumulator):
        return None
    (rows, depth), columns = a.shape[-2:], c.shape[-1]
    block = DotBlock.of((rows, depth, columns), element.bytes, vector, transposed=dot.transposed)
    if rows <= block.rows:
        return f"the dot packs nothing for {rows} rows, which it computes at once"
    if columns == block.columns and constant_of(access.strides[0]) == columns:
        return "the rows of the matrix follow each other in memory"
    return None
