"""Fragments: which thread holds which element of the operands and sums of the matrix units, as layouts; and how a tile
is to lie in shared memory for them.

All of mma.sync and wgmma share one shape of fragment (PTX manual, "Matrix fragments for mma.m16n8k16" and its
neighbours, "Register fragments" of wgmma): of the 32 lanes, the 2 low bits go along k (or along n, in a sum) and the 3
high bits along m (or n, in an operand b). A whole tile repeats the fragment in further registers, and in the warps.

    unit = UNITS["m16n8k16"]
    c = accumulator(unit, (128, 64), Warps(4, 1, 4))          # a wgmma's: 4 warps down the rows
    a = operand_a(unit, (128, 32), Warps(4, 1, 4))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import attrs

from ziggurat.codemodel.layout import Layout, bits_of, combine, inverted
from ziggurat.codemodel.types import ScalarType, SharedType


@attrs.frozen
class Unit:
    """The shape m × n × k of a matrix instruction of one warp.

    `pack` neighbours along k share a register of 32 bits; an f64 has one of 64.
    """

    m: int
    n: int
    k: int
    pack: int

    @property
    def name(self) -> str:
        """As PTX spells it: m16n8k16."""
        return f"m{self.m}n{self.n}k{self.k}"


UNITS = {unit.name: unit for unit in (Unit(16, 8, 16, 2), Unit(16, 8, 8, 1), Unit(16, 8, 32, 4), Unit(8, 8, 4, 1))}


@attrs.frozen
class Warps:
    """How the warps of a program share a tile: `rows` × `columns` of them; what is left of `count` has copies.

    The low bits of a warp's number go down the rows.
    """

    rows: int
    columns: int
    count: int

    def bases(self, rows: Sequence[int], columns: Sequence[int]) -> tuple[int, ...]:
        """The bases of the warp bits, given those of the rows and of the columns."""
        spare = bits_of(self.count) - bits_of(self.rows) - bits_of(self.columns)
        return (*rows, *columns, *([0] * spare))


def _powers(start: int, stop: int, scale: int) -> list[int]:
    """`scale` × the powers of two from `start` up to but not including `stop`."""
    return [scale << bit for bit in range(bits_of(start), bits_of(stop))]


def accumulator(unit: Unit, shape: tuple[int, int], warps: Warps) -> Layout:
    """The layout of c and of the result, m × n: each warp has neighbouring columns, the rows go around the warps."""
    m, n = shape
    own = n // warps.columns
    low = [1, *_powers(8, unit.m, n)]
    lanes = [*_powers(2, 8, 1), *_powers(1, 8, n)]
    around = unit.m * warps.rows
    registers = [*low, *_powers(8, own, 1), *_powers(around, m, n)]
    return Layout(tuple(registers), tuple(lanes), warps.bases(_powers(unit.m, around, n), _powers(own, n, 1)))


def operand_a(unit: Unit, shape: tuple[int, int], warps: Warps) -> Layout:
    """The layout of a, m × k: warps beside each other hold the same."""
    m, k = shape
    pack = unit.pack
    low = [*_powers(1, pack, 1), *_powers(8, unit.m, k), *_powers(4 * pack, unit.k, 1)]
    lanes = [*_powers(pack, 4 * pack, 1), *_powers(1, 8, k)]
    around = unit.m * warps.rows
    registers = [*low, *_powers(unit.k, k, 1), *_powers(around, m, k)]
    beside = [0] * bits_of(warps.columns)
    return Layout(tuple(registers), tuple(lanes), warps.bases(_powers(unit.m, around, k), beside))


def operand_b(unit: Unit, shape: tuple[int, int], warps: Warps) -> Layout:
    """The layout of b, k × n: warps above each other hold the same."""
    k, n = shape
    pack = unit.pack
    own = n // warps.columns
    low = [*_powers(1, pack, n), *_powers(4 * pack, unit.k, n)]
    lanes = [*_powers(pack, 4 * pack, n), *_powers(1, 8, 1)]
    registers = [*low, *_powers(unit.k, k, n), *_powers(8, own, 1)]
    above = [0] * bits_of(warps.rows)
    return Layout(tuple(registers), tuple(lanes), warps.bases(above, _powers(own, n, 1)))


def warps_of(layout: Layout, unit: Unit, shape: tuple[int, int]) -> Warps | None:
    """How the warps share a tile whose sum has this layout; None where it is not that of the unit."""
    count = layout.num_warps
    for rows in (1 << bit for bit in range(bits_of(count), -1, -1)):
        for columns in (1 << bit for bit in range(bits_of(count // rows), -1, -1)):
            if rows * unit.m > shape[0] or columns * unit.n > shape[1]:
                continue
            found = Warps(rows, columns, count)
            if accumulator(unit, shape, found) == layout:
                return found
    return None


# Shared memory, as the matrix descriptors of wgmma know it.


@attrs.frozen
class Panels:
    """How an operand lies in shared memory for wgmma: panels of `width` bytes (128, 64 or 32) along the major axis.

    They lie side by side, each with all rows; within 8 rows, chunks of 16 bytes are swizzled. `k_major` says that the
    neighbours in memory go along k; else along m or n. PTX manual, "Shared memory matrix layout".
    """

    width: int
    k_major: bool

    @property
    def alignment(self) -> int:
        """Of the buffer, in bytes: after 8 rows the swizzle begins anew."""
        return 8 * self.width

    def offsets(self, shape: tuple[int, int], k_axis: int, size: int) -> tuple[int, ...]:
        """The `SharedType.offsets` for a tile of elements of `size` bytes, whose axis `k_axis` is k."""
        column_axis = k_axis if self.k_major else 1 - k_axis
        step = (shape[1], 1)
        rows, columns = shape[1 - column_axis], shape[column_axis]
        row, column = step[1 - column_axis], step[column_axis]
        wide = self.width // size
        chunk = 16 // size
        places = [column << bit for bit in range(bits_of(wide))]
        for bit in range(bits_of(rows)):
            turn = ((1 << bit) * self.width // 128) % (self.width // 16)
            places.append(row << bit ^ turn * chunk * column)
        return (*places, *_powers(wide, columns, column))

    def descriptor(self, shape: tuple[int, int], k_axis: int) -> int:
        """The constant part of a matrix descriptor, to which `address >> 4` is added (PTX manual, "Matrix descriptor").

        Bits 16-29 hold the bytes from panel to panel, where an instruction may take several of them (not k-major); bits
        32-45 those from 8 rows to the next 8; both in units of 16. Bits 62-63 are the kind of swizzle.
        """
        kind = {128: 1, 64: 2, 32: 3}[self.width]
        panel = 0 if self.k_major else shape[k_axis] * self.width
        return kind << 62 | (8 * self.width >> 4) << 32 | (panel >> 4) << 16


def panels_for(shape: tuple[int, int], k_axis: int, size: int, *, k_major: bool, per_instruction: int) -> Panels | None:
    """The widest panels for a tile of which one instruction takes `per_instruction` rows or columns.

    None where there are none: the major axis is too short.
    """
    major = shape[k_axis] if k_major else per_instruction
    for width in (128, 64, 32):
        if major * size >= width:
            return Panels(width, k_major)
    return None


def panels_of(shared: SharedType, k_axis: int) -> Panels | None:
    """How a buffer lies in shared memory; None where not as wgmma wants it."""
    shape = shared.shape
    if len(shape) != 2:
        return None
    for k_major in (True, False):
        for width in (128, 64, 32):
            panels = Panels(width, k_major)
            major = shape[k_axis] if k_major else shape[1 - k_axis]
            if major * shared.element.bytes < width or shape[k_axis if not k_major else 1 - k_axis] < 8:
                continue
            if panels.offsets((shape[0], shape[1]), k_axis, shared.element.bytes) == shared.offsets:
                return panels
    return None


# What the bulk copy engine moves at once, as it lies in shared memory.

# A box (outermost axis first) and the bytes of its swizzle.
Tile = tuple[tuple[int, ...], int]


def box_and_swizzle(block: Sequence[int], element: ScalarType) -> Tile:
    """The box that one copy of the bulk copy engine (TMA) moves of a block, and the bytes of its swizzle.

    A row of the box is at most 128 bytes, and swizzled where it is 32, 64 or 128 of them, so that the copies lie as
    `Panels`; a wider block takes several copies. No side is longer than 256.
    """
    inner = min(block[-1], 128 // element.bytes)
    row = inner * element.bytes
    return (*(min(size, 256) for size in block[:-1]), inner), row if row in (32, 64, 128) else 0


def byte_of(shared: SharedType, row: int, column: int) -> int:
    """Where an element of a matrix is in its buffer."""
    return combine(_places(shared.offsets), row * shared.shape[1] + column) * shared.element.bytes


@lru_cache(maxsize=256)
def _places(offsets: tuple[int, ...]) -> tuple[int, ...]:
    """For each bit of an element's number, its place in the buffer."""
    return inverted(offsets)
