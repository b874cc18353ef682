"""Tiles: the matrix instructions of a dot of whole tiles, and the registers and places that each reads.

The plans depend only on the elements that the registers of thread 0 hold, and not on the order of registers in a
layout. They are data, so that a test can interpret them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import attrs

from ziggurat.codemodel.gpu import fragments
from ziggurat.codemodel.gpu.dialect import transposed
from ziggurat.codemodel.gpu.scope import WARP_GROUP
from ziggurat.codemodel.layout import Layout, bits_of
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType


def unit_of(element: ScalarType) -> fragments.Unit:
    """The MMA for elements of this type that takes 32 bytes of each row, as wgmma does."""
    return fragments.UNITS[{8: "m16n8k32", 16: "m16n8k16", 32: "m16n8k8", 64: "m8n8k4"}[element.bits]]


def registers_of(layout: Layout) -> dict[int, int]:
    """The register of thread 0 for each element that it holds."""
    registers: dict[int, int] = {}
    for register in range(layout.num_registers):
        registers.setdefault(layout.element(register), register)
    return registers


def _rows(unit: fragments.Unit, paired: bool) -> range:
    """The rows of thread 0; wgmma has 16 rows a warp."""
    return range(unit.m // 8) if paired else range(0, unit.m, 8)


def places_c(unit: fragments.Unit, columns: int, *, paired: bool = False) -> list[tuple[int, int]]:
    """The (row, column) of each accumulator element of thread 0, in the order of operands."""
    rows = _rows(unit, paired)
    return [(row, column + pair) for column in range(0, columns, 8) for row in rows for pair in (0, 1)]


def _words(unit: fragments.Unit) -> list[range]:
    """The k of the elements in each register of an operand's row or column, in thread 0."""
    words = range(0, unit.k // 4, unit.pack)
    return [
        range(start, start + unit.pack) for start in (at // unit.run * 4 * unit.run + at % unit.run for at in words)
    ]


def places_a(unit: fragments.Unit, *, paired: bool = False) -> list[tuple[int, int]]:
    """The (row, k) of each element of operand a in thread 0."""
    return [(row, k) for word in _words(unit) for row in _rows(unit, paired) for k in word]


def places_b(unit: fragments.Unit) -> list[tuple[int, int]]:
    """The (k, column) of each element of operand b in thread 0."""
    return [(k, 0) for word in _words(unit) for k in word]


@attrs.frozen
class Tiles:
    """The mma.syncs of a dot m × n × k, or of a `batch` of them: each warp has one for each start of a part of a
    tile. Those of the transposed product if `warps` says so."""

    unit: fragments.Unit
    warps: fragments.WarpGrid
    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def matrices(self) -> range:
        """The matrices of the batch that the first warp multiplies."""
        return range(0, self.batch, self.warps.batches)

    @property
    def rows(self) -> range:
        """The first rows of the first warp's parts."""
        return range(0, self.m, self.unit.m * self.warps.rows)

    @property
    def columns(self) -> range:
        """The first columns of the first warp's parts."""
        return range(0, self.n // self.warps.columns, self.unit.n)

    @property
    def depths(self) -> list[int]:
        """The starts along k, in thread 0: those of the parts of each run, if an instruction takes a part."""
        part, whole = self.unit.k // 4, max(self.unit.k, 4 * self.unit.run)
        return [first + at for first in range(0, self.k, whole) for at in range(0, whole // 4, part)]


def mma_tiles(a: TensorType | SharedType, b: TensorType | SharedType, c: TensorType, target: str) -> Tiles | None:
    """The mma.syncs of a warp for a · b + c, or for a batch; None where the layouts are not those of its fragments."""
    assert isinstance(a.element, ScalarType)
    layout = c.layout
    if c.rank < 2 or layout is None:
        return None
    batch, (m, n), k = c.shape[:-2], c.shape[-2:], a.shape[-1]
    unit = fragments.unit_for(a.element, (m, n, k), target)
    warps = None if unit is None else fragments.warps_of(layout, unit, c.shape)
    if unit is None or warps is None or a.shape != (*batch, m, k) or b.shape != (*batch, k, n):
        return None
    unit = next((each for each in fragments.with_runs(unit, k) if _fits(a, b, each, warps)), None)
    m, n = (n, m) if warps.swapped else (m, n)
    return None if unit is None else Tiles(unit, warps, m, n, k, math.prod(batch))


def _fits(
    a: TensorType | SharedType, b: TensorType | SharedType, unit: fragments.Unit, warps: fragments.WarpGrid
) -> bool:
    """Whether both operands are fragments of a unit, or in shared memory in a form that ldmatrix reads as these."""
    for operand, k_axis in ((a, 1), (b, 0)):
        if isinstance(operand, TensorType):
            if operand.layout != fragments.fragment_of(unit, operand.shape, warps, k_axis):
                return False
        elif unit != unit_of(operand.element) or fragments.panels_of(operand, k_axis) is None:
            return False
    return True


@attrs.frozen
class Async:
    """One wgmma.mma_async: the registers of c, the registers of a or its byte in its buffer, and b's byte in its
    buffer."""

    c: tuple[int, ...]
    a: tuple[int, ...] | int
    b: int
    first: bool  # Whether it is the first to write these registers.


@attrs.frozen
class WgmmaGroup:
    """The wgmmas of one tile, or of its transpose if `warps` says so; then `a` and `b` are each other's transposes.

    `a_bases` and `b_bases` have the bytes by which each bit of the warp group's number moves an operand's start.
    """

    columns: int
    k: int
    steps: tuple[Async, ...]
    a: fragments.Panels | None
    b: fragments.Panels
    a_bases: tuple[int, ...]
    b_bases: tuple[int, ...]
    warps: fragments.WarpGrid


def wgmma_group(
    a: TensorType | SharedType, b: SharedType, c: TensorType, within: Sequence[int] = ()
) -> WgmmaGroup | None:
    """The wgmmas for a · b + c, or for the part `within` of it along k; None where the layouts or the buffers are not
    theirs."""
    unit, layout_c = unit_of(b.element), c.layout
    warps = None if layout_c is None else fragments.warps_of(layout_c, unit, c.shape)
    if warps is not None and warps.swapped:
        a, b = transposed(b, (1, 0)), transposed(a, (1, 0)) if isinstance(a, SharedType) else b
    (m, n), k = c.shape[:: -1 if warps is not None and warps.swapped else 1], b.shape[0]
    layout_a = a.layout if isinstance(a, TensorType) else None
    panels_a, panels_b = fragments.panels_of(a, 1) if isinstance(a, SharedType) else None, fragments.panels_of(b, 0)
    # The 4 warps of a group are stacked along rows.
    if layout_c is None or warps is None or warps.rows < WARP_GROUP or unit.m != 16:
        return None
    if panels_b is None or k < unit.k or (panels_a is None and layout_a != fragments.operand_a(unit, (m, k), warps)):
        return None
    # Only operands of 16 bits may have their neighbours along m or n, but for an a that the threads read.
    if b.element.bytes != 2 and not (panels_b.k_major and warps.paired != (panels_a is None or panels_a.k_major)):
        return None
    in_a, in_c = {} if layout_a is None else registers_of(layout_a), registers_of(layout_c)
    own = n // warps.columns
    columns = min(own, fragments.WGMMA_COLUMNS)
    steps: list[Async] = []
    start, end = within or (0, k)
    for m0, n0, k0 in product(range(0, m, unit.m * warps.rows), range(0, own, columns), range(start, end, unit.k)):
        if isinstance(a, SharedType):
            of_a: tuple[int, ...] | int = fragments.byte_of(a, m0, k0)
        else:
            of_a = tuple(in_a[(m0 + row) * k + k0 + depth] for row, depth in places_a(unit))
        places = ((m0 + row, n0 + column) for row, column in places_c(unit, columns, paired=warps.paired))
        of_c = tuple(in_c[x * m + y if warps.swapped else y * n + x] for y, x in places)
        steps.append(Async(of_c, of_a, fragments.byte_of(b, k0, n0), k0 == start))
    # The first rows of the warp groups whose numbers are powers of two along the rows.
    rows = [unit.m * WARP_GROUP << bit for bit in range(bits_of(warps.rows // WARP_GROUP))]
    a_bases = tuple(fragments.byte_of(a, row, 0) if isinstance(a, SharedType) else 0 for row in rows)
    b_bases = tuple(fragments.byte_of(b, 0, own << bit) for bit in range(bits_of(warps.columns)))
    a_bases, b_bases = (*a_bases, *([0] * len(b_bases))), (*([0] * len(a_bases)), *b_bases)
    return WgmmaGroup(columns, unit.k, tuple(steps), panels_a, panels_b, a_bases, b_bases, warps)
