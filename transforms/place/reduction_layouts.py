"""Layouts in which reductions and scans run within a warp, and the steps to get there.

Both combine the elements that each warp holds first, and then one value of each warp, or of each run of neighbours that
a warp holds. The whole tensor goes to other warps only for a scan along an axis of which no warp holds neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import attrs

from ziggurat.codemodel.layout import LANE_BITS, Layout, bits_of, filled


@attrs.frozen
class Stage:
    """A reduction along one axis, and the moves that make its operand from the result of the stage before.

    `moves` are pairs (shape, order): reshape to the shape, then transpose. Then the tensor is reshaped to `shape`, and
    converted to `layout`, if that is not None.
    """

    moves: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    shape: tuple[int, ...]
    axis: int
    layout: Layout | None = None


@attrs.frozen
class _Axis:
    """The bits of element numbers that belong to an axis: `count` of them from bit `offset`."""

    offset: int
    count: int

    @staticmethod
    def of(shape: Sequence[int], axis: int) -> _Axis:
        return _Axis(bits_of(math.prod(shape[axis + 1 :])), bits_of(shape[axis]))

    @property
    def mask(self) -> int:
        return ((1 << self.count) - 1) << self.offset

    def is_apart(self, layout: Layout) -> bool:
        """Whether each basis is a single bit of the axis, or has no bit of it."""
        return all(basis & (basis - 1) == 0 for basis in layout.bases if basis & self.mask)

    def held(self, bases: Sequence[int]) -> list[int]:
        """The bases that are on the axis."""
        return [basis for basis in bases if basis & self.mask]


def _compact(axis: _Axis, bits: int, num_warps: int) -> Layout:
    """A layout with the axis in the lanes, and its lowest bits in registers; the other axes fill the rest."""
    along = [1 << (axis.offset + bit) for bit in range(axis.count)]
    rest = [1 << bit for bit in range(bits) if not axis.mask >> bit & 1]
    # Low bits of the axis are in registers, so that a scan runs over neighbours first.
    serial = max(0, len(along) - LANE_BITS)
    return filled(along[:serial], [*along[serial:], *rest], num_warps)


def reduction_stages(layout: Layout, shape: tuple[int, ...], axis: int) -> tuple[Layout, tuple[Stage, ...]]:
    """The reduction of a tensor along an axis: the layout to begin in, and one or two stages.

    Each stage combines elements in the registers and lanes of one warp.
    """
    of_axis = _Axis.of(shape, axis)
    if not of_axis.is_apart(layout):
        layout = _compact(of_axis, bits_of(math.prod(shape)), layout.num_warps)
    in_warps = of_axis.held(layout.warps)
    if not in_warps:
        return layout, (Stage((), shape, axis),)
    before, after = shape[:axis], shape[axis + 1 :]
    outer = sum(basis >> of_axis.offset for basis in in_warps)  # The bits of the index that warps hold.
    runs = _runs(outer, of_axis.count)
    count = 1 << len(in_warps)
    small = (*before, count, *after)
    gathered = _everywhere(layout.dropped(shape, axis), of_axis.offset, len(in_warps))
    last = Stage((), small, axis, gathered)
    if count == shape[axis]:
        return layout, (last,)
    split = (*before, *(1 << width for _, width in runs), *after)
    first, end = len(before), len(before) + len(runs)
    ours = [first + at for at, (by_warps, _) in enumerate(runs) if by_warps]
    others = [first + at for at, (by_warps, _) in enumerate(runs) if not by_warps]
    order = (*range(first), *ours, *others, *range(end, len(split)))
    inner = (*before, count, shape[axis] // count, *after)
    return layout, (Stage(((split, order),), inner, axis + 1), last)


def _runs(mask: int, count: int) -> list[tuple[bool, int]]:
    """The runs of equal bits of a mask, from the highest: (bit, length)."""
    bits = (bool(mask >> bit & 1) for bit in reversed(range(count)))
    return [(value, len(list(run))) for value, run in groupby(bits)]


def _everywhere(rest: Layout, offset: int, count: int) -> Layout:
    """A layout of the tensor that has `count` more bits at bit `offset`, all of them within each warp.

    Without these bits it is `rest`, apart from copies in more registers.
    """
    low = (1 << offset) - 1

    def widened(basis: int) -> int:
        return basis & low | (basis & ~low) << count

    registers = [widened(basis) for basis in rest.registers]
    lanes = [widened(basis) for basis in rest.lanes]
    for bit in range(count):
        basis = 1 << (offset + bit)
        for held in (lanes, registers):
            if 0 in held:
                held[held.index(0)] = basis
                break
        else:
            registers.append(basis)
    return Layout(tuple(registers), tuple(lanes), tuple(widened(basis) for basis in rest.warps))


def scans_within_warps(layout: Layout, shape: Sequence[int], axis: int) -> bool:
    """Whether a scan can run in a layout: from the lowest bit, the axis is in registers, then lanes, then registers."""
    of_axis = _Axis.of(shape, axis)
    if not of_axis.is_apart(layout) or of_axis.held(layout.warps):
        return False
    lanes = of_axis.held(layout.lanes)
    if lanes != sorted(lanes):
        return False
    # No register bit is between two lane bits.
    return all(not lanes or basis < lanes[0] or basis > lanes[-1] for basis in of_axis.held(layout.registers))


def _in_order(layout: Layout, axis: _Axis) -> Layout:
    """The layout with the same elements in each warp, and the lowest bits of the axis in registers, then in lanes."""
    registers, lanes = list(layout.registers), list(layout.lanes)
    held = sorted(axis.held((*registers, *lanes)))
    of_registers = len(axis.held(registers))
    rest = iter(held)
    # Registers with the lowest bits come first, as in vectors.
    others = [basis for basis in registers if not basis & axis.mask]
    along = [next(rest) for _ in range(of_registers)]
    lanes = [next(rest) if basis & axis.mask else basis for basis in lanes]
    registers = [*along, *others] if registers and registers[0] & axis.mask else [*others, *along]
    return Layout(tuple(registers), tuple(lanes), layout.warps)


def run_of_warps(layout: Layout, shape: Sequence[int], axis: int) -> int:
    """The length of the aligned runs along an axis that one warp holds: those of a scan's first stage.

    1 if neighbours are in different warps, or if each warp holds the whole axis.
    """
    of_axis = _Axis.of(shape, axis)
    in_warps = of_axis.held(layout.warps)
    return min(in_warps) >> of_axis.offset if in_warps and of_axis.is_apart(layout) else 1


def short_scan_layout(layout: Layout, shape: Sequence[int], axis: int) -> Layout:
    """A layout in which the lanes of a warp scan an axis, for a tensor that moves to other threads anyway."""
    return _compact(_Axis.of(shape, axis), bits_of(math.prod(shape)), layout.num_warps)


def scan_layout(layout: Layout, shape: tuple[int, ...], axis: int) -> Layout:
    """A layout, close to the given one, in which a scan along the axis can run."""
    if scans_within_warps(layout, shape, axis):
        return layout
    of_axis = _Axis.of(shape, axis)
    if of_axis.is_apart(layout):
        # Bits of the axis go from warps to registers, and bits of other axes from registers to warps in exchange.
        registers, warps = list(layout.registers), list(layout.warps)
        for at, basis in enumerate(warps):
            if basis & of_axis.mask:
                other = next((r for r in reversed(registers) if r and not r & of_axis.mask), 0)
                if other:
                    registers.remove(other)
                registers.append(basis)
                warps[at] = other
        near = Layout(tuple(registers), layout.lanes, tuple(warps))
        if scans_within_warps(near, shape, axis):
            return near
        return _in_order(near, of_axis)
    return _compact(of_axis, bits_of(math.prod(shape)), layout.num_warps)
