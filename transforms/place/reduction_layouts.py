"""Layouts in which reductions and scans run within a warp, and the steps to get there.

Both combine the elements that each warp holds first, and then one value of each warp, or of each run of neighbours that
a warp holds. The whole tensor goes to other warps only for a scan along an axis of which no warp holds neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import attrs

from ziggurat.codemodel.layout import LANE_BITS, Layout, axis_bases, bits_of, filled


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


def _mask(shape: Sequence[int], axis: int) -> int:
    """The bits of element numbers that belong to an axis."""
    return sum(axis_bases(shape, axis))


def _held(bases: Sequence[int], mask: int) -> list[int]:
    """The bases with bits of an axis."""
    return [basis for basis in bases if basis & mask]


def _is_apart(layout: Layout, mask: int) -> bool:
    """Whether each basis is a single bit of an axis, or has no bit of it."""
    return all(basis & (basis - 1) == 0 for basis in _held(layout.bases, mask))


def in_lanes(shape: Sequence[int], axis: int, num_warps: int) -> Layout:
    """A layout with the axis in the lanes, and its lowest bits in registers; the other axes fill the rest."""
    along = axis_bases(shape, axis)
    rest = [1 << bit for bit in range(bits_of(math.prod(shape))) if 1 << bit not in along]
    # Low bits of the axis are in registers, so that a scan runs over neighbours first.
    serial = max(0, len(along) - LANE_BITS)
    return filled(along[:serial], [*along[serial:], *rest], num_warps)


def reduction_stages(layout: Layout, shape: tuple[int, ...], axis: int) -> tuple[Layout, tuple[Stage, ...]]:
    """The reduction of a tensor along an axis: the layout to begin in, and one or two stages.

    Each stage combines elements in the registers and lanes of one warp.
    """
    mask, stride = _mask(shape, axis), math.prod(shape[axis + 1 :])
    if not _is_apart(layout, mask):
        layout = in_lanes(shape, axis, layout.num_warps)
    in_warps = _held(layout.warps, mask)
    if not in_warps:
        return layout, (Stage((), shape, axis),)
    before, after = shape[:axis], shape[axis + 1 :]
    runs = _runs(sum(in_warps) // stride, bits_of(shape[axis]))  # Bits that warps hold, and bits that they do not.
    count = 1 << len(in_warps)
    small = (*before, count, *after)
    gathered = layout.dropped(shape, axis).widened((*before, 1, *after), small, in_warps=False)
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


def scans_within_warps(layout: Layout, shape: Sequence[int], axis: int) -> bool:
    """Whether a scan can run in a layout: from the lowest bit, the axis is in registers, then lanes, then registers."""
    mask = _mask(shape, axis)
    if not _is_apart(layout, mask) or _held(layout.warps, mask):
        return False
    lanes = _held(layout.lanes, mask)
    # No register bit is between two lane bits.
    between = (basis for basis in _held(layout.registers, mask) if lanes and lanes[0] < basis < lanes[-1])
    return lanes == sorted(lanes) and not any(between)


def _in_order(layout: Layout, mask: int) -> Layout:
    """The layout with the same elements in each warp, and the lowest bits of the axis in registers, then in lanes."""
    along = sorted(_held((*layout.registers, *layout.lanes), mask))
    count = len(_held(layout.registers, mask))
    rest = iter(along[count:])
    lanes = tuple(next(rest) if basis & mask else basis for basis in layout.lanes)
    # Registers with the lowest bits come first, as in vectors.
    others = [basis for basis in layout.registers if not basis & mask]
    first = layout.registers and layout.registers[0] & mask
    registers = [*along[:count], *others] if first else [*others, *along[:count]]
    return Layout(tuple(registers), lanes, layout.warps)


def run_of_warps(layout: Layout, shape: Sequence[int], axis: int) -> int:
    """The length of the aligned runs along an axis that one warp holds: those of a scan's first stage.

    1 if neighbours are in different warps, or if each warp holds the whole axis.
    """
    mask = _mask(shape, axis)
    in_warps = _held(layout.warps, mask)
    return min(in_warps) // math.prod(shape[axis + 1 :]) if in_warps and _is_apart(layout, mask) else 1


def scan_layout(layout: Layout, shape: tuple[int, ...], axis: int) -> Layout:
    """A layout, close to the given one, in which a scan along the axis can run."""
    if scans_within_warps(layout, shape, axis):
        return layout
    mask = _mask(shape, axis)
    if not _is_apart(layout, mask):
        return in_lanes(shape, axis, layout.num_warps)
    # Bits of the axis go from warps to registers, and bits of other axes from registers to warps in exchange.
    registers, warps = list(layout.registers), list(layout.warps)
    for at, basis in enumerate(warps):
        if basis & mask:
            warps[at] = next((r for r in reversed(registers) if r and not r & mask), 0)
            if warps[at]:
                registers.remove(warps[at])
            registers.append(basis)
    near = Layout(tuple(registers), layout.lanes, tuple(warps))
    return near if scans_within_warps(near, shape, axis) else _in_order(near, mask)
