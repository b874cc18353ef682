"""Layouts: they say which thread holds which element of a tensor, as linear maps over F2.

Sizes are powers of two, so the row-major number of an element is a string of bits, and so are the number of a
register of a thread, of a lane of a warp, and of a warp of a program. A layout maps the latter to the former
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
from functools import lru_cache

import attrs

LANE_BITS = 5


def bits_of(size: int) -> int:
    """The number of bits that number `size` things, a power of two."""
    return size.bit_length() - 1


def combine(bases: Sequence[int], index: int) -> int:
    """The xor of the bases of the bits that are set in `index`."""
    found = 0
    for bit, basis in enumerate(bases):
        if index >> bit & 1:
            found ^= basis
    return found


def _zeros(bases: Sequence[int]) -> int:
    """The mask of the bits whose basis is 0."""
    return sum(1 << bit for bit, basis in enumerate(bases) if basis == 0)


def independent(bases: Iterable[int]) -> bool:
    """True when no basis is the xor of others."""
    reduced: list[int] = []
    for basis in bases:
        for other in reduced:
            basis = min(basis, basis ^ other)
        if basis == 0:
            return False
        reduced.append(basis)
    return True


def inverted(bases: Sequence[int]) -> tuple[int, ...]:
    """The inverse of the linear map that takes bit i to `bases[i]`: for each bit of the image, what is mapped there.

    Raises `ValueError` where the bases are not a basis of their `len(bases)` bits.
    """
    rows = [(basis, 1 << bit) for bit, basis in enumerate(bases)]
    for lead in range(len(rows)):
        found = next((at for at in range(lead, len(rows)) if rows[at][0] >> lead & 1), None)
        if found is None:
            raise ValueError(f"not a basis: {list(bases)}")
        rows[lead], rows[found] = rows[found], rows[lead]
        image, source = rows[lead]
        for at, (other, inputs) in enumerate(rows):
            if at != lead and other >> lead & 1:
                rows[at] = (other ^ image, inputs ^ source)
    if any(image != 1 << bit for bit, (image, _) in enumerate(rows)):
        raise ValueError(f"not a basis: {list(bases)}")
    return tuple(source for _, source in rows)


def composed(outer: Sequence[int], inner: Sequence[int]) -> tuple[int, ...]:
    """The bases of the map that applies `inner` first, then `outer`."""
    return tuple(combine(outer, basis) for basis in inner)


def product(inner: Sequence[int], outer: Sequence[int], bits: int) -> tuple[int, ...]:
    """The bases of two maps side by side: `inner` maps the low inputs to the low `bits` bits, `outer` the others to
    those above. `inner` is a tile, `outer` places the tiles."""
    return (*inner, *(basis << bits for basis in outer))


def divided(whole: Sequence[int], inner: Sequence[int], bits: int) -> tuple[int, ...] | None:
    """The `outer` with `product(inner, outer, bits) == whole`; None where there is none."""
    rest = whole[len(inner) :]
    if tuple(whole[: len(inner)]) != tuple(inner) or any(basis & ((1 << bits) - 1) for basis in rest):
        return None
    return tuple(basis >> bits for basis in rest) if all(basis < 1 << bits for basis in inner) else None


def transposed(bases: Sequence[int], shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Bases of elements of a tensor of this shape, as those of the tensor whose axis i is axis `order[i]` of it."""
    return tuple(map(_transposition(shape, order), bases))


def _transposition(shape: Sequence[int], order: Sequence[int]) -> Callable[[int], int]:
    return _bit_map(shape, [shape[axis] for axis in order], {axis: at for at, axis in enumerate(order)})


@attrs.frozen(cache_hash=True)
class Layout:
    """The bases of the register bits, of the five lane bits, and of the warp bits, each list from the lowest bit."""

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        if len(self.lanes) != LANE_BITS:
            raise ValueError(f"a layout must have {LANE_BITS} lane bits; got {len(self.lanes)}")
        if not independent(basis for basis in self.bases if basis):
            raise ValueError(f"the bases of a layout must be independent or zero; got {self}")

    @property
    def bases(self) -> tuple[int, ...]:
        """All bases: of registers, lanes, warps."""
        return (*self.registers, *self.lanes, *self.warps)

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

    @property
    def free(self) -> tuple[int, int, int]:
        """Masks of the register, lane and warp bits that only tell copies apart."""
        return _free(self)

    def inverse(self, numel: int) -> tuple[tuple[int, int, int], ...]:
        """For each bit of the element's number, the (register, lane, warp) to xor together to find it, copies aside.

        Raises `ValueError` where the layout does not cover `numel` elements.
        """
        return _inverse(self, numel)

    def locate(self, element: int, numel: int) -> tuple[int, int, int]:
        """A (register, lane, warp) that holds the element."""
        register = lane = warp = 0
        for bit, (in_register, in_lane, in_warp) in enumerate(_inverse(self, numel)):
            if element >> bit & 1:
                register, lane, warp = register ^ in_register, lane ^ in_lane, warp ^ in_warp
        return register, lane, warp

    def map(self, image: Callable[[int], int]) -> Layout:
        """The layout whose bases are the images of this one's under a linear map of element numbers."""
        return Layout(tuple(map(image, self.registers)), tuple(map(image, self.lanes)), tuple(map(image, self.warps)))

    # Layouts of tensors that are made from a tensor with this layout.

    def transposed(self, shape: Sequence[int], order: Sequence[int]) -> Layout:
        """The layout after a transposition: axis i of the result is axis `order[i]` of a tensor of this shape."""
        return self.map(_transposition(shape, order))

    def dropped(self, shape: Sequence[int], axis: int) -> Layout:
        """The layout without an axis: threads whose elements differed along it hold copies."""
        rest = [*shape[:axis], *shape[axis + 1 :]]
        kept = {a: a if a < axis else a - 1 for a in range(len(shape)) if a != axis}
        return self.map(_bit_map(shape, rest, kept))

    def narrowed(self, shape: Sequence[int], axis: int) -> Layout:
        """The layout with size 1 along an axis: threads whose elements differed along it hold copies."""
        narrow = [1 if a == axis else size for a, size in enumerate(shape)]
        return self.map(_bit_map(shape, narrow, {a: a for a in range(len(shape)) if a != axis}))

    def joined(self) -> Layout:
        """The layout of two such tensors side by side along a new last axis, which is the lowest register bit."""
        wide = self.map(lambda basis: basis << 1)
        return Layout((1, *wide.registers), wide.lanes, wide.warps)

    def split(self) -> Layout | None:
        """The layout of a half along the last axis, of size 2; None where a thread does not hold both halves."""
        if 1 not in self.registers or any(basis & 1 for basis in self.bases if basis != 1):
            return None
        rest = tuple(basis >> 1 for basis in self.registers if basis != 1)
        return Layout(rest, tuple(b >> 1 for b in self.lanes), tuple(b >> 1 for b in self.warps))

    def contiguous(self, shape: Sequence[int], axis: int) -> int:
        """The number of neighbours along an axis that the lowest registers hold in order."""
        offset = bits_of(math.prod(shape[axis + 1 :]))
        count = 0
        while (
            count < len(self.registers)
            and count < bits_of(shape[axis])
            and self.registers[count] == 1 << (offset + count)
        ):
            count += 1
        return 1 << count

    def picture(self, shape: Sequence[int]) -> str:
        """A table with the holder of each element: `w0 l3 r1`. A tensor of more than two axes has a table for each
        index of the first axes. Of several copies, the table shows the one with the lowest numbers."""
        tables: list[str] = []
        for index, rows in self._tables(shape):
            cells = [["w{2} l{1} r{0}".format(*place) for place in row] for row in rows]
            width = max(len(cell) for row in cells for cell in row)
            lines = ["  ".join(cell.ljust(width) for cell in row).rstrip() for row in cells]
            tables.append("\n".join([f"[{', '.join(map(str, index))}, :, :]", *lines] if index else lines))
        return "\n".join(tables)

    def html(self, shape: Sequence[int]) -> str:
        """The picture in HTML for notebooks, with a colour for each warp."""
        parts: list[str] = []
        for index, rows in self._tables(shape):
            caption = f"<caption>[{', '.join(map(str, index))}, :, :]</caption>" if index else ""
            body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
            parts.append(f"<table>{caption}{body}</table>")
        return "".join(parts)

    def _tables(self, shape: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[list[tuple[int, int, int]]]]]:
        """For each index of all axes but two, the places of the elements by row and column."""
        rows, columns = (1, 1, *shape)[-2:]
        numel = math.prod(shape)
        for number, index in enumerate(itertools.product(*map(range, shape[:-2]))):
            first = number * rows * columns
            yield index, [[self.locate(first + i * columns + j, numel) for j in range(columns)] for i in range(rows)]

    def __str__(self) -> str:
        return " | ".join(" ".join(map(str, bases)) for bases in (self.registers, self.lanes, self.warps))


@lru_cache(maxsize=4096)
def _free(layout: Layout) -> tuple[int, int, int]:
    return _zeros(layout.registers), _zeros(layout.lanes), _zeros(layout.warps)


@lru_cache(maxsize=4096)
def _inverse(layout: Layout, numel: int) -> tuple[tuple[int, int, int], ...]:
    if not layout.covers(numel):
        raise ValueError(f"{layout} does not cover {numel} elements")
    positions = [position for position, basis in enumerate(layout.bases) if basis]
    registers, lanes = len(layout.registers), len(layout.lanes)
    found: list[tuple[int, int, int]] = []
    for mask in inverted([basis for basis in layout.bases if basis]):
        inputs = sum(1 << position for at, position in enumerate(positions) if mask >> at & 1)
        thread = inputs >> registers
        found.append((inputs & ((1 << registers) - 1), thread & ((1 << lanes) - 1), thread >> lanes))
    return tuple(found)


@lru_cache(maxsize=1024)
def moved(source: Layout, target: Layout, numel: int) -> tuple[int, ...] | None:
    """For each register of the target layout, the register of the same thread that holds the element in the source.

    None where some elements are in other threads, so that they must be exchanged.
    """
    if source == target:
        return tuple(range(source.num_registers))
    _, free_lanes, free_warps = source.free
    # A bit of the thread's number must lead to the same thread, or to one that holds a copy; what it moves in the
    # registers would differ from thread to thread.
    for bit, basis in enumerate(target.lanes):
        register, lane, warp = source.locate(basis, numel)
        if register or lane & ~free_lanes != (1 << bit) & ~free_lanes or warp & ~free_warps:
            return None
    for bit, basis in enumerate(target.warps):
        register, lane, warp = source.locate(basis, numel)
        if register or lane & ~free_lanes or warp & ~free_warps != (1 << bit) & ~free_warps:
            return None
    result: list[int] = []
    for number in range(target.num_registers):
        register, lane, warp = source.locate(target.element(number), numel)
        if lane & ~free_lanes or warp & ~free_warps:
            return None
        result.append(register)
    return tuple(result)


def _cell(place: tuple[int, int, int]) -> str:
    """A cell of a table in HTML."""
    register, lane, warp = place
    # Neighbouring warps get colours that are far apart.
    return f'<td style="background: hsl({warp * 137 % 360} 70% 85%)">w{warp} l{lane} r{register}</td>'


def parse_layout(text: str) -> Layout:
    """A layout from its text, the bases of registers, lanes, warps: `1 2 | 4 8 16 32 64 | 128`. Raises `ValueError`."""
    parts = text.split("|")
    if len(parts) != 3:
        raise ValueError(f"a layout has three lists of bases, separated by '|': {text!r}")
    lists = [tuple(int(word) for word in part.split()) for part in parts]
    return Layout(lists[0], lists[1], lists[2])


def _bit_map(shape: Sequence[int], target: Sequence[int], axes: dict[int, int]) -> Callable[[int], int]:
    """The map of element numbers that moves axis a of `shape` to axis `axes[a]` of `target`, and forgets the others."""

    def image(element: int) -> int:
        result = 0
        offset = 0
        for axis in reversed(range(len(shape))):
            bits = bits_of(shape[axis])
            part = element >> offset & ((1 << bits) - 1)
            offset += bits
            at = axes.get(axis)
            if at is not None:
                result |= part << bits_of(math.prod(target[at + 1 :]))
        return result

    return image


def blocked(
    shape: Sequence[int], order: Sequence[int], vector: int, num_warps: int, *, warps_last: bool = False
) -> Layout:
    """Each thread holds `vector` neighbours along `order[0]`; lanes, then warps go on along the axes in order.

    The rest of the tensor is held in further registers; with more threads than elements, threads hold copies. With
    `warps_last` these registers come before the warps, so that each warp has one contiguous part of the tensor.
    """
    free: list[int] = []
    for axis in order:
        offset = bits_of(math.prod(shape[axis + 1 :]))
        free += [1 << (offset + bit) for bit in range(bits_of(shape[axis]))]
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
