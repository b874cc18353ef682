"""The moves of a tensor to a buffer in shared memory and back: vector by vector, or matrix by matrix.

`stmatrix` and `ldmatrix` (PTX manual) move matrices of 8 rows of 16 bytes. Each of 8 lanes gives the address of a row;
lane l holds word l % 4 (of 4 bytes) of row l / 4, or, transposed, two elements of 16 bits of column l / 4 from row
2 (l % 4) on. So if the bits within a word and of the lowest lanes are neighbours in the buffer, the tensor moves as if
it were in another layout, the *view*, in which each lane has a row in its registers. Fragments of the matrix units are
of this kind; a coalesced layout has the same 16 bytes as a vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import attrs

from ziggurat.codemodel.layout import Layout, Span, bits_of, combine, inverted
from ziggurat.transforms.place.swizzle import LINE, VECTOR, buffer_bases, vector_bits


@attrs.frozen
class View:
    """A tensor as matrices. `layout` says which lane gives the address of which row.

    Its lowest registers are the elements of a row; its others are the bits `rest` of the registers of the tensor's
    layout. `word` has the register bits within a word, `matrices` those that number the matrices of one instruction.
    """

    layout: Layout
    trans: bool
    word: tuple[int, ...]
    matrices: tuple[int, ...]
    rest: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of matrices that an instruction moves."""
        return 1 << len(self.matrices)


def views(layout: Layout, size: int) -> Iterator[View]:
    """The views of a layout of elements of `size` bytes as rows."""
    bits = [bit for bit, basis in enumerate(layout.registers) if basis]
    within = 2 - bits_of(size)
    if within < 0 or len(bits) < within:
        return
    word, others = tuple(bits[:within]), bits[within:]
    matrices, rest = tuple(others[:2]), tuple(others[2:])
    numbers = [layout.registers[bit] for bit in matrices] + [0] * (2 - len(matrices))
    words = [layout.registers[bit] for bit in word]
    further = tuple(layout.registers[bit] for bit in rest)
    for trans in (False, True) if size == 2 else (False,):
        row, lanes = [*words, *layout.lanes[:2]], layout.lanes[2:]
        if trans:
            row, lanes = list(layout.lanes[2:]), (*words, *layout.lanes[:2])
        if all(row):
            yield View(Layout((*row, *further), (*lanes, *numbers), layout.warps), trans, word, matrices, rest)


def _conflicts(layout: Layout, offsets: tuple[int, ...], size: int, width: int) -> int:
    """The number of accesses to one bank at once, at most, if vectors have 2^`width` elements."""
    inverse = inverted(offsets)
    together = max(0, 5 - bits_of(max(1, (size << width) // 4)))
    words, banks = Span(), Span()
    for basis in layout.lanes[:together]:
        place = combine(inverse, basis) * size // 4 * 4
        words.add(place)
        # Vectors begin at multiples of their size: places within them do not matter for conflicts.
        banks.add(place % LINE)
    return 1 << (len(words) - len(banks))


def vector_cost(layout: Layout, offsets: tuple[int, ...], size: int) -> float:
    """The cost of moving a tensor in vectors for a warp: cycles of the banks, and half of one for each instruction."""
    width = len(vector_bits(layout, offsets, size))
    count = 1 << sum(map(bool, layout.registers))
    cycles = max(1, (size << width) // 4) * _conflicts(layout, offsets, size, width)
    return (count >> width) * (cycles + 0.5)


def _matrix_cost(view: View, offsets: tuple[int, ...], size: int) -> float:
    return (1 << len(view.rest)) * (view.count * _conflicts(view.layout, offsets, size, bits_of(VECTOR // size)) + 0.5)


def _least_cost(layout: Layout, size: int) -> float:
    """The least cost of moving a tensor for a warp: 16 bytes a lane and instruction, without conflicts."""
    count = 1 << sum(map(bool, layout.registers))
    return count * size / 4 + count * size / VECTOR * 0.5


@lru_cache(maxsize=1024)
def matrix_view(layout: Layout, offsets: tuple[int, ...], size: int) -> View | None:
    """The view in which a tensor moves as matrices; None if vectors are cheaper."""
    best, cheapest = None, vector_cost(layout, offsets, size)
    wanted = tuple(range(bits_of(VECTOR // size)))
    for view in views(layout, size):
        if vector_bits(view.layout, offsets, size)[: len(wanted)] != wanted:
            continue
        cost = _matrix_cost(view, offsets, size)
        if cost < cheapest:
            best, cheapest = view, cost
    return best


def stores_matrices(layout: Layout) -> bool:
    """Whether each element is held once, so that no two threads store to the same place."""
    return not any(layout.free[1:])


@lru_cache(maxsize=1024)
def conversion_buffer(source: Layout, target: Layout, numel: int, size: int, stmatrix: bool) -> tuple[int, ...]:
    """The `offsets` of the cheapest buffer for a conversion, by vectors or by matrices.

    `stmatrix` says whether the target has that instruction; all targets have `ldmatrix`.
    """
    sides = [[source], [target]]
    if stmatrix and stores_matrices(source):
        sides[0] += [view.layout for view in views(source, size)]
    sides[1] += [view.layout for view in views(target, size)]
    best: tuple[int, ...] | None = None
    cheapest, least = 0.0, _least_cost(source, size) + _least_cost(target, size)
    for first, second in product(*sides):
        offsets = buffer_bases(first, second, numel, size)
        cost = 0.0
        for layout, matrices in ((source, stmatrix and stores_matrices(source)), (target, True)):
            view = matrix_view(layout, offsets, size) if matrices else None
            cost += vector_cost(layout, offsets, size) if view is None else _matrix_cost(view, offsets, size)
        if best is None or cost < cheapest:
            best, cheapest = offsets, cost
        if cheapest <= least:
            break
    assert best is not None
    return best
