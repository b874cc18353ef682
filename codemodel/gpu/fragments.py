"""Fragments: the layouts of the operands and accumulators of the matrix units, and the layout of a tile in shared
memory for them.

All of mma.sync and wgmma share one shape of fragment (PTX manual, "Matrix fragments for mma.m16n8k16" and its
neighbours, "Register fragments" of wgmma): of the 32 lanes, the 2 low bits go along k (or along n, in an accumulator)
and the 3 high bits along m (or n, in an operand b). A whole tile repeats the fragment in further registers, and in the
warps. Of a tile that is smaller along m or n than an instruction, lanes have copies, and the instruction takes
registers twice. In a batch of tiles, the warps share the matrices, and each warp holds further matrices in further
registers.

    unit = UNITS["m16n8k16"]
    c = accumulator(unit, (128, 64), WarpGrid(4, 1, 4))          # a wgmma's: 4 warps down the rows
    a = operand_a(unit, (128, 32), WarpGrid(4, 1, 4))
    c = accumulator(unit, (8, 32, 32), WarpGrid(1, 2, 8, batches=4))    # 2 warps for a matrix, each with 2 of the 8
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import attrs

from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.layout import Layout, bits_of, combine, inverted
from ziggurat.codemodel.types import DescriptorType, ScalarType, SharedType


@attrs.frozen
class Unit:
    """The shape m × n × k of a matrix instruction of one warp.

    `pack` neighbours along k share a register of 32 bits; an f64 has one of 64. A thread holds `run` neighbours along k
    of an operand. The order along k is free if both operands have the same one: with longer runs, threads read wider
    vectors of operands that they compute from narrower elements. The instructions then take the next parts of the runs.
    """

    m: int
    n: int
    k: int
    pack: int
    run: int = attrs.field(default=attrs.Factory(lambda self: self.pack, takes_self=True))

    @property
    def name(self) -> str:
        """The name in PTX: m16n8k16."""
        return f"m{self.m}n{self.n}k{self.k}"


WGMMA_COLUMNS = 256  # The most of one wgmma.

# By name, with the element type where there are several instructions of one shape.
UNITS = {
    "m16n8k16": Unit(16, 8, 16, 2),
    "m16n8k8": Unit(16, 8, 8, 1),
    "m16n8k32": Unit(16, 8, 32, 4),
    "m16n8k16.s8": Unit(16, 8, 16, 4),
    "m8n8k4": Unit(8, 8, 4, 1),
    "m16n8k4.f64": Unit(16, 8, 4, 1),
    "m16n8k8.f64": Unit(16, 8, 8, 1),
    "m16n8k16.f64": Unit(16, 8, 16, 1),
}


def unit_for(element: ScalarType, shape: tuple[int, int, int], target: str) -> Unit | None:
    """The best instruction of mma.sync for elements of this type (tf32, of f32) and a dot m × n × k on a target.

    It may have more rows than the dot where none has as few, and more columns. None where all are deeper. PTX manual,
    "mma", the types and shapes that each architecture has.
    """
    names = {8: ("m16n8k32",), 16: ("m16n8k16",), 32: ("m16n8k8",), 64: ("m8n8k4",)}[element.bits]
    if element.bits == 8 and not element.is_float:
        names += ("m16n8k16.s8",)
    if element.bits == 64 and TARGETS[target].has_large_f64:
        names = ("m16n8k16.f64", "m16n8k8.f64", "m16n8k4.f64", *names)
    m, _, k = shape
    fits = [unit for unit in map(UNITS.__getitem__, names) if k >= unit.k]
    return min(fits, key=lambda unit: max(0, unit.m - m), default=None)


MAX_RUN = 16


def with_runs(unit: Unit, k: int) -> list[Unit]:
    """An instruction with each length of runs for operands of this k, that of a register first."""
    runs = (unit.pack << bit for bit in range(bits_of(MAX_RUN)))
    return [attrs.evolve(unit, run=run) for run in runs if run <= min(MAX_RUN, k // 4)]


@attrs.frozen
class WarpGrid:
    """The division of a tile among the warps of a CTA: `rows` × `columns` of them; the others of `count` have copies.

    There are `batches` times as many for a batch of tiles, and each of these parts has every `batches`-th tile. The low
    bits of a warp's number go down the rows, the next along the columns, then through the batch.

    `paired` says that threads have neighbouring rows, as wgmma's operand a is read with its neighbours in memory along
    m. `swapped` says that the unit computes the transposed product: then the rows are columns.
    """

    rows: int
    columns: int
    count: int
    batches: int = 1
    paired: bool = False
    swapped: bool = False


# By `Unit.pack`: the `paired` rows of a thread's second register, of lanes 4, 8 and 16, and of warps 1 and 2. ldmatrix
# moves 16 neighbours of 8 bits, also those that threads widen to 16. Of 32 bits, half a warp reads pairs at 4 depths,
# from all banks.
PAIRED_ROWS = {4: (1, 2, 4, 8, 16, 32), 2: (1, 2, 4, 8, 16, 32), 1: (1, 2, 16, 4, 8, 32)}


Shape = tuple[int, ...]  # (rows, columns) of a matrix, or (batch, rows, columns).


def _powers(start: int, stop: int, scale: int) -> list[int]:
    """`scale` × the powers of two from `start` up to but not including `stop`."""
    return [scale << bit for bit in range(bits_of(start), bits_of(stop))]


def _lines(count: int, size: int) -> list[int]:
    """The bases of the three bits of a lane's number that count the lines of a tile, `size` elements apart: of fewer
    than 8 lines, lanes have copies."""
    return [size << bit if 1 << bit < count else 0 for bit in range(3)]


def _shared_out(
    shape: Shape, warps: WarpGrid, registers: Sequence[int], lanes: Sequence[int], of_warps: Sequence[int]
) -> Layout:
    """The layout of a batch from that of its first matrix."""
    count, size = math.prod(shape[:-2]), shape[-2] * shape[-1]
    bases = [*of_warps, *_powers(1, warps.batches, size)]
    spare = [0] * (bits_of(warps.count) - len(bases))
    return Layout((*registers, *_powers(warps.batches, count, size)), tuple(lanes), (*bases, *spare))


def accumulator(unit: Unit, shape: Shape, warps: WarpGrid) -> Layout:
    """The layout of c and of the result, m × n: each warp has neighbouring columns, the rows go around the warps."""
    if warps.swapped:
        across = shape[::-1]
        layout = accumulator(unit, across, attrs.evolve(warps, swapped=False)).transposed(across, (1, 0))
        if shape[-2] == 1:
            return layout
        right, pair, *further = layout.registers  # Neighbours come first, as stores of vectors need them.
        return attrs.evolve(layout, registers=(pair, right, *further))
    if warps.paired:
        return _in_pairs(accumulator(unit, shape, attrs.evolve(warps, paired=False)), unit, shape[-1])
    m, n = shape[-2:]
    own, around = n // warps.columns, unit.m * warps.rows
    registers = [*_powers(1, min(2, n), 1), *_powers(8, min(unit.m, m), n), *_powers(8, own, 1), *_powers(around, m, n)]
    lanes = [*_lines(n, 1)[1:], *_lines(m, n)]
    return _shared_out(shape, warps, registers, lanes, [*_powers(unit.m, around, n), *_powers(own, n, 1)])


def _in_pairs(layout: Layout, unit: Unit, width: int) -> Layout:
    """The layout of a matrix of this width with paired rows, from that with others."""
    rows = zip((8, 1, 2, 4, 16, 32), PAIRED_ROWS[unit.pack], strict=True)
    places = {old * width: new * width for old, new in rows}
    return layout.map(lambda basis: places.get(basis, basis))


def operand_a(unit: Unit, shape: Shape, warps: WarpGrid) -> Layout:
    """The layout of a, m × k: warps beside each other hold the same."""
    m, k = shape[-2:]
    run, around = unit.run, unit.m * warps.rows
    registers = [*_powers(1, run, 1), *_powers(8, min(unit.m, m), k), *_powers(4 * run, k, 1), *_powers(around, m, k)]
    lanes = [*_powers(run, 4 * run, 1), *_lines(m, k)]
    return _shared_out(shape, warps, registers, lanes, [*_powers(unit.m, around, k), *[0] * bits_of(warps.columns)])


def operand_b(unit: Unit, shape: Shape, warps: WarpGrid) -> Layout:
    """The layout of b, k × n: warps above each other hold the same."""
    k, n = shape[-2:]
    run, own = unit.run, n // warps.columns
    registers = [*_powers(1, run, n), *_powers(4 * run, k, n), *_powers(8, own, 1)]
    lanes = [*_powers(run, 4 * run, n), *_lines(n, 1)]
    return _shared_out(shape, warps, registers, lanes, [*[0] * bits_of(warps.rows), *_powers(own, n, 1)])


def fragment_of(unit: Unit, shape: Shape, warps: WarpGrid, k_axis: int) -> Layout:
    """The layout of a (with k_axis 1) or b (with k_axis 0) of a product, which the unit may compute transposed."""
    if warps.swapped:
        straight = attrs.evolve(warps, swapped=False)
        return fragment_of(unit, shape[::-1], straight, 1 - k_axis).transposed(shape[::-1], (1, 0))
    layout = (operand_b, operand_a)[k_axis](unit, shape, warps)
    return _in_pairs(layout, unit, shape[-1]) if warps.paired and k_axis == 1 else layout


def warps_of(layout: Layout, unit: Unit, shape: Shape) -> WarpGrid | None:
    """The division among warps of a tile or a batch whose accumulator has this layout; None if it is not the unit's."""
    count = layout.num_warps
    height, width = shape[-2:]
    for paired, swapped in product((False, True), repeat=2):
        if (len(shape) > 2 and (paired or swapped)) or (paired and unit.pack not in PAIRED_ROWS):
            continue
        m, n = (width, height) if swapped else (height, width)
        for batches in _shares(min(count, math.prod(shape[:-2]))):
            for rows in _shares(min(count // batches, max(1, m // unit.m))):
                for columns in _shares(min(count // batches // rows, max(1, n // unit.n))):
                    candidate = WarpGrid(rows, columns, count, batches, paired, swapped)
                    if (rows >= 4 or not paired or unit.pack == 2) and accumulator(unit, shape, candidate) == layout:
                        return candidate
    return None


def _shares(most: int) -> list[int]:
    """The powers of two up to a number, the largest first."""
    return [1 << bit for bit in range(bits_of(most), -1, -1)] if most else []


# Shared memory in the form that the matrix descriptors of wgmma describe.


@attrs.frozen
class Panels:
    """The form of an operand in shared memory for wgmma: panels of `width` bytes (128, 64 or 32) along the major axis.

    They lie side by side, each with all rows; within 8 rows, chunks of 16 bytes are swizzled. `k_major` says that the
    neighbours in memory go along k; else along m or n. PTX manual, "Shared memory matrix layout".
    """

    width: int
    k_major: bool

    @staticmethod
    def widest(bytes_: int, *, k_major: bool) -> Panels | None:
        """The widest panels for a major axis of this many bytes; None if it is too short for any. If the axis is not
        k, `bytes_` are those that one instruction takes."""
        return next((Panels(width, k_major) for width in (128, 64, 32) if bytes_ >= width), None)

    @property
    def alignment(self) -> int:
        """The alignment of the buffer in bytes: the swizzle repeats after 8 rows."""
        return 8 * self.width

    def offsets(self, shape: Shape, k_axis: int, size: int) -> tuple[int, ...]:
        """The `SharedType.offsets` for a tile of elements of `size` bytes. Of its two axes, `k_axis` is k.

        The tiles of a batch follow one another.
        """
        column_axis = k_axis if self.k_major else 1 - k_axis
        tile, step = shape[-2:], (shape[-1], 1)
        rows, columns = tile[1 - column_axis], tile[column_axis]
        row, column = step[1 - column_axis], step[column_axis]
        wide = self.width // size
        chunk = 16 // size
        places = [column << bit for bit in range(bits_of(wide))]
        for bit in range(bits_of(rows)):
            swizzle = ((1 << bit) * self.width // 128) % (self.width // 16)
            places.append(row << bit ^ swizzle * chunk * column)
        further = _powers(1, math.prod(shape[:-2]), shape[-2] * shape[-1])
        return (*places, *_powers(wide, columns, column), *further)

    def descriptor(self, shape: tuple[int, int], k_axis: int) -> int:
        """The constant part of a matrix descriptor, to which `address >> 4` is added (PTX manual, "Matrix descriptor").

        Bits 16-29 hold the bytes from panel to panel, where an instruction may take several of them (not k-major); bits
        32-45 those from 8 rows to the next 8; both in units of 16. Bits 62-63 are the kind of swizzle.
        """
        kind = {128: 1, 64: 2, 32: 3}[self.width]
        panel = 0 if self.k_major else shape[k_axis] * self.width
        return kind << 62 | (8 * self.width >> 4) << 32 | (panel >> 4) << 16


def panels_of(shared: SharedType, k_axis: int) -> Panels | None:
    """The panels of a buffer for a matrix or a batch; None if it is not in panels.

    `k_axis` counts the axes of a matrix: 0 or 1.
    """
    if len(shared.shape) < 2:
        return None
    size = shared.element.bytes
    shape = (shared.shape[-2], shared.shape[-1])
    for k_major in (True, False):
        for width in (128, 64, 32):
            panels = Panels(width, k_major)
            major, other = (shape[k_axis], shape[1 - k_axis])[:: 1 if k_major else -1]
            fits = major * size >= width and (other >= 8 or k_major)
            if fits and panels.offsets(shared.shape, k_axis, size) == shared.offsets:
                return panels
    return None


# Tensor maps, and the boxes of TMA copies.

SCRATCH = "scratch"  # The part that the last parameter of a kernel takes that makes tensor maps.
MAP = "map"  # The first word in the part of a tensor map that the launch makes.
STORED = " stored"  # The end of that part if the kernel stores through the map.
GRID = "grid"  # The first word in the part that is the size of the grid along an axis.
MAP_BYTES = 128  # The size of a tensor map, and its alignment where a kernel makes one.


def is_of_launch(part: str) -> bool:
    """Whether the launch provides a part, not an argument: scratch memory, a tensor map, or a size of the grid."""
    return part.partition(" ")[0] in (SCRATCH, MAP, GRID)


# A box (outermost axis first) and the bytes of its swizzle.
Tile = tuple[tuple[int, ...], int]


def box_and_swizzle(type_: DescriptorType) -> Tile:
    """The box of a block that one TMA copy moves, and the bytes of its swizzle.

    A row of the box is at most 128 bytes, and swizzled where it is 32, 64 or 128 of them, so that the copies lie as
    `Panels`; a wider block takes several copies. No side is longer than 256. Each part of a block is whole boxes.
    """
    block, size = type_.block, type_.element.bytes
    inner = min(block[-1], 128 // size)
    row = inner * size
    within = 1 if block[-1] // inner % type_.parts == 0 else type_.parts  # Parts that share the columns of a box.
    return (*(min(side // within, 256) for side in block[:-1]), inner), row if row in (32, 64, 128) else 0


def byte_of(shared: SharedType, row: int, column: int, batch: int = 0) -> int:
    """The place of an element of a matrix, or of a batch, in its buffer."""
    number = (batch * shared.shape[-2] + row) * shared.shape[-1] + column
    return combine(inverted(shared.offsets), number) * shared.element.bytes
