"""Layouts: linear maps over F2 from the registers of threads to the elements of a tensor that they hold.

Sizes are powers of two, so the row-major number of an element is a string of bits, and so are the number of a
register of a thread, of a lane of a warp, and of a warp of a CTA. A layout maps the latter to the former
linearly: each bit of register, lane and warp has a *basis*, a number; the element held in (register, lane, warp) is
the xor of the bases of the bits that are set.

    blocked = Layout((1, 2), (4, 8, 16, 32, 64), (128, 256))      # 512 elements: 4 in a row to each thread of 4 warps
    blocked.element(register=3, lane=1, warp=0)                   # 7

A basis of zero says that both values of the bit hold the same element: a copy. The other bases are independent.
Reshaping does not change a layout; transposing permutes the bits of its bases; dropping an axis removes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

import attrs

LANE_BITS = 5


def bits_of(size: int) -> int:
    """The number of bits that number `size` things, a power of two."""
    return size.bit_length() - 1


def combine(bases: Sequence[int], index: int) -> int:
    """The xor of the bases of the bits that are set in `index`."""
    offset = 0
    for basis in bases:
        if not index:
            break
        if index & 1:
            offset ^= basis
        index >>= 1
    return offset


class Span:
    """A subspace of F2^n, grown vector by vector.

    A combination is a mask: the vectors by which the subspace grew, in order, of which the xor is taken.
    """

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        # Reduced vectors, each with the combination that gives it. No later row has the leading bit of an earlier one.
        self._rows: list[tuple[int, int]] = []
        for vector in vectors:
            self.add(vector)

    def reduced(self, vector: int) -> tuple[int, int]:
        """The vector reduced by the subspace, which is 0 exactly for members, and the combination that reduced it."""
        parts = 0
        for row, of_row in self._rows:
            if vector ^ row < vector:
                vector, parts = vector ^ row, parts ^ of_row
        return vector, parts

    def add(self, vector: int) -> bool:
        """Grow by a vector; return False if it is a member already."""
        rest, parts = self.reduced(vector)
        if rest:
            self._rows.append((rest, parts ^ 1 << len(self._rows)))
        return rest != 0

    def __len__(self) -> int:
        return len(self._rows)


@lru_cache(maxsize=4096)
def inverted(bases: tuple[int, ...]) -> tuple[int, ...]:
    """The inverse of the linear map that takes bit i to `bases[i]`: for each bit of the image, the number mapped to it.

    Raises `ValueError` where the bases are not a basis of their `len(bases)` bits.
    """
    span = Span(bases)
    rows = [span.reduced(1 << bit) for bit in range(len(bases))]
    if any(rest for rest, _ in rows):
        raise ValueError(f"not a basis: {list(bases)}")
    return tuple(parts for _, parts in rows)


@lru_cache(maxsize=4096)
def _are_independent(bases: tuple[int, ...]) -> bool:
    """Whether the bases that are not zero are independent."""
    others = [basis for basis in bases if basis]
    return len(Span(others)) == len(others)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The stride of each axis of a row-major array, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def axis_bases(shape: Sequence[int], axis: int) -> list[int]:
    """The bits of an element's number that belong to an axis, from the lowest."""
    stride = math.prod(shape[axis + 1 :])
    return [stride << bit for bit in range(bits_of(shape[axis]))]


def _renumbering(shape: Sequence[int], strides: Sequence[int]) -> Callable[[int], int]:
    """The map of element numbers of a shape to those with other strides; a stride of 0 drops the axis."""

    def image(element: int) -> int:
        result = 0
        for size, stride in zip(reversed(shape), reversed(strides), strict=True):
            element, index = divmod(element, size)
            result += index * stride
        return result

    return image


def transposition(shape: Sequence[int], order: Sequence[int]) -> Callable[[int], int]:
    """The map of element numbers of a tensor to those of the tensor whose axis i is axis `order[i]` of it."""
    strides = row_major([shape[axis] for axis in order])
    return _renumbering(shape, [strides[order.index(axis)] for axis in range(len(shape))])


@attrs.frozen(cache_hash=True)
class Layout:
    """The bases of the register bits, of the five lane bits, and of the warp bits, each list from the lowest bit."""

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        if len(self.lanes) != LANE_BITS:
            raise ValueError(f"a layout must have {LANE_BITS} lane bits; got {len(self.lanes)}")
        if not _are_independent(self.bases):
            raise ValueError(f"the bases of a layout must be independent or zero; got {self}")

    @property
    def threads(self) -> tuple[int, ...]:
        """The bases of lanes and warps: one for each bit of a thread's number."""
        return (*self.lanes, *self.warps)

    @property
    def bases(self) -> tuple[int, ...]:
        """All bases: of registers, lanes, warps."""
        return (*self.registers, *self.threads)

    @property
    def num_warps(self) -> int:
        return 1 << len(self.warps)

    @property
    def num_registers(self) -> int:
        """The number of elements in each thread, copies counted."""
        return 1 << len(self.registers)

    @property
    def numel(self) -> int:
        """The number of elements in all threads together, copies not counted."""
        return 1 << sum(1 for basis in self.bases if basis)

    def element(self, register: int, lane: int = 0, warp: int = 0) -> int:
        """The number of the element in this place."""
        return combine(self.registers, register) ^ combine(self.lanes, lane) ^ combine(self.warps, warp)

    def covers(self, numel: int) -> bool:
        """True when every one of `numel` elements is held, and no other."""
        return self.numel == numel and all(basis < numel for basis in self.bases)

    @cached_property
    def free(self) -> tuple[int, int, int]:
        """Masks of the register, lane and warp bits that only tell copies apart."""
        registers, lanes, warps = (
            sum(1 << bit for bit, basis in enumerate(bases) if not basis)
            for bases in (self.registers, self.lanes, self.warps)
        )
        return registers, lanes, warps

    @property
    def unique_registers(self) -> list[int]:
        """The registers that are not copies of lower ones."""
        return [register for register in range(self.num_registers) if not register & self.free[0]]

    def locate(self, element: int, numel: int) -> tuple[int, int, int]:
        """A (register, lane, warp) that holds the element. Raises `ValueError` where the layout does not cover `numel`
        elements."""
        register = lane = warp = 0
        for bit, (in_register, in_lane, in_warp) in enumerate(inverse(self, numel)):
            if element >> bit & 1:
                register, lane, warp = register ^ in_register, lane ^ in_lane, warp ^ in_warp
        return register, lane, warp

    def map(self, image: Callable[[int], int]) -> Layout:
        """The layout whose bases are the images of this one's under a linear map of element numbers."""
        return Layout(tuple(map(image, self.registers)), tuple(map(image, self.lanes)), tuple(map(image, self.warps)))

    # Layouts of tensors that are made from a tensor with this layout.

    def transposed(self, shape: Sequence[int], order: Sequence[int]) -> Layout:
        """The layout after a transposition: axis i of the result is axis `order[i]` of a tensor of this shape."""
        return self.map(transposition(shape, order))

    def narrowed(self, wide: Sequence[int], narrow: Sequence[int]) -> Layout:
        """The layout with size 1 along some axes: threads whose elements differed along them hold copies.

        Raises `ValueError` where there is none, because the bases that are left are not independent.
        """
        strides = zip(row_major(narrow), narrow, wide, strict=True)
        return self.map(_renumbering(wide, [stride if size == old else 0 for stride, size, old in strides]))

    def dropped(self, shape: Sequence[int], axis: int) -> Layout:
        """The layout without an axis: threads whose elements differed along it hold copies."""
        return self.narrowed(shape, [*shape[:axis], 1, *shape[axis + 1 :]])

    def in_runs(self, shape: Sequence[int], axis: int) -> Layout:
        """The layout with the bits of an axis in order: the lowest in registers, then in lanes, the highest in warps.

        So a thread holds a run along the axis, and a warp a longer one. Each basis must be one bit.
        """
        along = set(axis_bases(shape, axis))
        bits = iter(sorted(along.intersection(self.bases)))

        def ordered(bases: Sequence[int]) -> tuple[int, ...]:
            return tuple(next(bits) if basis in along else basis for basis in bases)

        return Layout(ordered(self.registers), ordered(self.lanes), ordered(self.warps))

    def widened(self, narrow: Sequence[int], wide: Sequence[int], *, in_warps: bool = True) -> Layout:
        """A layout of a broadcast tensor, from that of its narrow form: lanes with copies take the new axes, then warps
        if `in_warps`, and registers those that are left."""
        axes = [axis for axis in reversed(range(len(wide))) if narrow[axis] != wide[axis]]
        free = iter([basis for axis in axes for basis in axis_bases(wide, axis)])
        spread = self.without_copies().map(_renumbering(narrow, row_major(wide)))
        lanes = tuple(basis or next(free, 0) for basis in spread.lanes)
        warps = tuple(basis or next(free, 0) for basis in spread.warps) if in_warps else spread.warps
        return Layout((*free, *spread.registers), lanes, warps)

    def without_copies(self) -> Layout:
        """The layout without registers that hold copies of others."""
        return Layout(tuple(filter(None, self.registers)), self.lanes, self.warps)

    def joined(self) -> Layout:
        """The layout of two such tensors side by side along a new last axis, which is the lowest register bit."""
        wide = self.map(lambda basis: basis << 1)
        return Layout((1, *wide.registers), wide.lanes, wide.warps)

    def split(self) -> Layout | None:
        """The layout of a half along the last axis, of size 2; None where a thread does not hold both halves."""
        if 1 not in self.registers or any(basis & 1 for basis in self.bases if basis != 1):
            return None
        rest = tuple(basis for basis in self.registers if basis != 1)
        return Layout(rest, self.lanes, self.warps).map(lambda basis: basis >> 1)

    def contiguous(self, shape: Sequence[int], axis: int) -> int:
        """The number of neighbours along an axis that the lowest registers hold in order."""
        count = 0
        for register, basis in zip(self.registers, axis_bases(shape, axis), strict=False):
            if register != basis:
                break
            count += 1
        return 1 << count

    def picture(self, shape: Sequence[int]) -> str:
        """A table with the holder of each element: `w0 l3 r1`. A tensor of more than two axes has a table for each
        index of the first axes. Of several copies, the table shows the one with the lowest numbers."""
        tables: list[str] = []
        for caption, rows in self._tables(shape):
            cells = [["w{2} l{1} r{0}".format(*place) for place in row] for row in rows]
            width = max(len(cell) for row in cells for cell in row)
            lines = ["  ".join(cell.ljust(width) for cell in row).rstrip() for row in cells]
            tables.append("\n".join([caption, *lines] if caption else lines))
        return "\n".join(tables)

    def html(self, shape: Sequence[int]) -> str:
        """The picture in HTML for notebooks, with a colour for each warp."""

        def cell(place: tuple[int, int, int]) -> str:
            register, lane, warp = place
            return f'<td style="background: {_colour(warp)}">w{warp} l{lane} r{register}</td>'

        parts: list[str] = []
        for caption, rows in self._tables(shape):
            body = "".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows)
            parts.append(f"<table>{caption and f'<caption>{caption}</caption>'}{body}</table>")
        return "".join(parts)

    def svg(self, shape: Sequence[int]) -> str:
        """The picture as a drawing in SVG, with a colour for each warp: a row of squares for each row of the tensor."""
        width, height = 62, 20
        columns = (1, *shape)[-1]
        parts: list[str] = []
        top = 0
        for caption, rows in self._tables(shape):
            if caption:
                parts.append(f'<text x="{columns * width // 2}" y="{top + height // 2}">{caption}</text>')
                top += height
            for row in rows:
                for column, (register, lane, warp) in enumerate(row):
                    start, label = column * width, f"w{warp} l{lane} r{register}"
                    parts.append(
                        f'<rect x="{start}" y="{top}" width="{width}" height="{height}" fill="{_colour(warp)}"/>'
                    )
                    parts.append(f'<text x="{start + width // 2}" y="{top + height // 2}">{label}</text>')
                top += height
        style = "rect { stroke: white } text { font: 10px monospace; text-anchor: middle; dominant-baseline: central }"
        size = f'width="{columns * width}" height="{top}" viewBox="0 0 {columns * width} {top}"'
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{style}</style>", *parts, "</svg>", ""]
        return "\n".join(lines)

    def _tables(self, shape: Sequence[int]) -> Iterator[tuple[str, list[list[tuple[int, int, int]]]]]:
        """For each index of all axes but two, the places of the elements by row and column, after a caption."""
        rows, columns = (1, 1, *shape)[-2:]
        numel = math.prod(shape)
        for number, index in enumerate(itertools.product(*map(range, shape[:-2]))):
            first = number * rows * columns
            caption = f"[{', '.join(map(str, index))}, :, :]" if index else ""
            yield caption, [[self.locate(first + i * columns + j, numel) for j in range(columns)] for i in range(rows)]

    def __str__(self) -> str:
        return " | ".join(" ".join(map(str, bases)) for bases in (self.registers, self.lanes, self.warps))


def _colour(warp: int) -> str:
    """The background of a warp's elements. Neighbouring warps get colours that are far apart."""
    return f"hsl({warp * 137 % 360}, 70%, 85%)"


@lru_cache(maxsize=4096)
def inverse(layout: Layout, numel: int) -> tuple[tuple[int, int, int], ...]:
    """For each bit of an element's number, the (register, lane, warp) to xor together to find it, copies aside.

    Raises `ValueError` where the layout does not cover `numel` elements.
    """
    if not layout.covers(numel):
        raise ValueError(f"{layout} does not cover {numel} elements")
    positions = [position for position, basis in enumerate(layout.bases) if basis]
    registers, lanes = len(layout.registers), len(layout.lanes)
    pivots: list[tuple[int, int, int]] = []
    for mask in inverted(tuple(filter(None, layout.bases))):
        inputs = sum(1 << position for at, position in enumerate(positions) if mask >> at & 1)
        thread = inputs >> registers
        pivots.append((inputs & ((1 << registers) - 1), thread & ((1 << lanes) - 1), thread >> lanes))
    return tuple(pivots)


@lru_cache(maxsize=1024)
def moved(source: Layout, target: Layout, numel: int) -> tuple[int, ...] | None:
    """For each register of the target layout, the register of the same thread that holds the element in the source.

    None where some elements are in other threads, so that they must be exchanged.
    """
    if source == target:
        return tuple(range(source.num_registers))
    _, free_lanes, free_warps = source.free

    def place(element: int) -> tuple[int, int, int]:
        register, lane, warp = source.locate(element, numel)
        return register, lane & ~free_lanes, warp & ~free_warps

    # A bit of the thread's number must lead to the same thread, or to one that holds a copy. A register that such a bit
    # leads to would differ from thread to thread.
    lanes = [(0, 1 << bit & ~free_lanes, 0) for bit in range(len(target.lanes))]
    warps = [(0, 0, 1 << bit & ~free_warps) for bit in range(len(target.warps))]
    registers = [place(basis) for basis in target.registers]
    if [place(basis) for basis in target.threads] != [*lanes, *warps]:
        return None
    if any(lane or warp for _, lane, warp in registers):
        return None
    moves = [register for register, _, _ in registers]
    return tuple(combine(moves, number) for number in range(target.num_registers))


def parse_layout(text: str) -> Layout:
    """A layout from its text, the bases of registers, lanes, warps: `1 2 | 4 8 16 32 64 | 128`. Raises `ValueError`."""
    parts = text.split("|")
    if len(parts) != 3:
        raise ValueError(f"a layout has three lists of bases, separated by '|': {text!r}")
    lists = [tuple(int(word) for word in part.split()) for part in parts]
    return Layout(lists[0], lists[1], lists[2])


def blocked(
    shape: Sequence[int], order: Sequence[int], vector: int, num_warps: int, *, warps_last: bool = False
) -> Layout:
    """Each thread holds `vector` neighbours along `order[0]`; lanes, then warps go on along the axes in order.

    The rest of the tensor is held in further registers; with more threads than elements, threads hold copies. With
    `warps_last` these registers come before the warps, so that each warp has one contiguous part of the tensor.
    """
    free = [basis for axis in order for basis in axis_bases(shape, axis)]
    count = min(bits_of(vector), bits_of(shape[order[0]]) if order else 0)
    registers, threads = free[:count], free[count:]
    first = max(LANE_BITS, len(threads) - bits_of(num_warps)) if warps_last else LANE_BITS
    between = threads[LANE_BITS:first]
    return filled([*registers, *between], [*threads[:LANE_BITS], *threads[first:]], num_warps)


def filled(registers: Sequence[int], threads: Sequence[int], num_warps: int) -> Layout:
    """The layout whose lanes, then warps have the bases `threads`; those that are left follow the `registers`.

    Bits of lanes and warps for which there are no bases tell copies apart.
    """
    last = LANE_BITS + bits_of(num_warps)
    bases = (*threads[:last], *([0] * (last - len(threads))))
    return Layout((*registers, *threads[last:]), bases[:LANE_BITS], bases[LANE_BITS:])


def replicated(numel: int, num_warps: int) -> Layout:
    """Every thread holds all elements."""
    return Layout(tuple(1 << bit for bit in range(bits_of(numel))), (0,) * LANE_BITS, (0,) * bits_of(num_warps))
