"""Buffers in shared memory for writes in one layout and reads in another: swizzled places, and moves of matrices.

A place in a buffer is a string of bits, from the lowest: those within a vector, which one thread moves at once; the
other bits of a line of 128 bytes, which has 32 banks of 4 bytes; and those of the line's number. The map from place
bits to element bits is linear. Threads that access at the same time conflict if they touch different lines of a bank.

Let S be the subspace of the elements at the start of the lines. Threads that access together differ by a subspace Q,
made of the bits within a word and the lowest lanes; they never conflict if S and Q meet only in 0. For two layouts
there is one S for both: choose Q₁ and Q₂ of the same size; their intersection stays out of S; the rest of Q₁ and the
rest of Q₂ are paired, the sums of the pairs go into S, and so do all vectors that neither of them has.

A tensor moves to a buffer and back vector by vector, or matrix by matrix. `stmatrix` and `ldmatrix` (PTX manual) move
matrices of 8 rows of 16 bytes. Each of 8 lanes gives the address of a row; lane l holds word l % 4 (of 4 bytes) of row
l / 4, or, transposed, two elements of 16 bits of column l / 4 from row 2 (l % 4) on. So if the bits within a word and
of the lowest lanes are neighbours in the buffer, the tensor moves as if it were in another layout, the *view*, in which
each lane has a row in its registers. Fragments of the matrix units are of this kind; a coalesced layout has the same 16
bytes as a vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import permutations, product

import attrs

from ziggurat.codemodel.layout import LANE_BITS, Layout, Span, bits_of, combine, inverse, inverted

LINE = 128  # Bytes: 32 banks of 4.
VECTOR = 16  # Bytes of the widest access.


def extended(basis: Iterable[int], candidates: Iterable[int]) -> list[int]:
    """The candidates that extend the span of `basis`, one after the other."""
    span = Span(basis)
    return [candidate for candidate in candidates if span.add(candidate)]


def intersection(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """A basis of the intersection of two subspaces, each given by a basis."""
    span = Span(first)
    return [combine(first, span.reduced(vector)[1]) for vector in second if not span.add(vector)]


def _within(vectors: Sequence[int], duals: Sequence[int]) -> list[int]:
    """A basis of the members of a span on which the linear functions `duals` (masks of bits) are all 0."""
    basis = extended((), vectors)
    for dual in duals:
        odd = next((v for v in basis if (v & dual).bit_count() & 1), None)
        if odd is not None:
            basis = [v ^ odd if (v & dual).bit_count() & 1 else v for v in basis if v != odd]
    return basis


def _register_duals(layout: Layout, numel: int) -> dict[int, int]:
    """For each basis of a register, the mask of element bits whose parity says whether that register bit is set."""
    return {
        basis: sum(1 << bit for bit, (register, _, _) in enumerate(inverse(layout, numel)) if register >> at & 1)
        for at, basis in enumerate(layout.registers)
        if basis
    }


def _tile(layout: Layout, vector_bytes: int) -> list[int]:
    """The bases of the lanes that access together if each moves so many bytes."""
    count = LANE_BITS - bits_of(max(1, vector_bytes // 4))
    return extended((), layout.lanes[:count])


def _arranged(
    sides: tuple[Layout, Layout], widths: tuple[int, int], vector: Sequence[int], duals: Sequence[int], size: int
) -> tuple[int, ...] | None:
    """The bases of a buffer that begin with `vector`; None if conflicts cannot be avoided.

    Each side moves as many bits of the vector at once as `widths` says.
    """
    everything = row_major(sides[0].numel)
    line = min(len(everything), bits_of(LINE // size))
    kernel = _within(everything, duals)
    word = bits_of(max(1, 4 // size))
    # A word is filled up with vectors that move together on neither side.
    fill = extended(vector, [*(v for v in sides[0].bases if v in kernel), *kernel])[
        : max(0, min(word, line) - len(vector))
    ]
    together: list[list[int]] = []
    for side, width in zip(sides, widths, strict=True):
        inner = [*vector, *fill][: max(width, word)]
        together.append(_within([*inner, *_tile(side, size << width)], duals))
    room = line - len(vector)
    lists = [extended((), [*fill, *part]) for part in together]
    if max(map(len, lists)) > room:
        return None
    # Both grow to the size of a line: first by vectors of the other, so that they share as many as possible.
    grown: list[list[int]] = []
    for own, other in (lists, lists[::-1]):
        grown.append([*own, *extended(own, [*other, *kernel])[: room - len(own)]])
    shared = intersection(*grown)
    rests = [extended(shared, part) for part in grown]
    both = [*shared, *rests[0], *rests[1]]
    lines = [a ^ b for a, b in zip(*rests, strict=True)] + extended(both, kernel)
    banks = extended([*vector, *fill, *lines], [*grown[0], *kernel])
    return (*vector, *fill, *banks, *lines)


@lru_cache(maxsize=1024)
def buffer_bases(source: Layout, target: Layout, numel: int, size: int) -> tuple[int, ...]:
    """The `offsets` of a buffer for elements of `size` bytes that are written in one layout and read in another.

    Both sides move vectors as wide as they can (up to 16 bytes), without bank conflicts.
    """
    widest = bits_of(VECTOR // size)
    duals = [_register_duals(side, numel) for side in (source, target)]
    common = [v for v, dual in duals[0].items() if duals[1].get(v) == dual][:widest]
    of_common = [duals[0][v] for v in common]
    arrangement = _arranged((source, target), (len(common), len(common)), common, of_common, size)
    assert arrangement is not None, "for one vector there is always an arrangement"
    best = 0
    # One side may be able to move wider vectors than both together.
    for side in (0, 1):
        vector, functions = list(common), list(of_common)
        for basis, dual in duals[side].items():
            if len(vector) == widest:
                break
            if basis in vector:
                continue
            widths = (len(vector) + 1, len(common)) if side == 0 else (len(common), len(vector) + 1)
            candidate = _arranged((source, target), widths, [*vector, basis], [*functions, dual], size)
            if candidate is not None:
                vector.append(basis)
                functions.append(dual)
                if len(vector) - len(common) > best:
                    best, arrangement = len(vector) - len(common), candidate
    return arrangement


@lru_cache(maxsize=1024)
def copied_bases(source: Layout, target: Layout, numel: int, size: int, width: int) -> tuple[int, ...]:
    """The `offsets` of a buffer that copies of `width` elements fill in one layout, and threads read in another for the
    least cost."""
    vector = source.registers[: bits_of(width)]
    sides = (source, target, *(view.layout for view in views(target, size)))
    choices = (buffer_bases(source, side, numel, size) for side in sides)
    return min(
        (offsets for offsets in choices if offsets[: len(vector)] == vector),
        key=lambda offsets: moves(target, offsets, size, True).cost,
    )


def row_major(numel: int) -> tuple[int, ...]:
    """The `offsets` of a buffer whose elements are in order."""
    return tuple(1 << bit for bit in range(bits_of(numel)))


def vector_bits(layout: Layout, offsets: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The register bits that move together between a tensor and a buffer, from the lowest place.

    These registers have neighbouring places, and the places of a thread's vectors are aligned.
    """
    into = inverted(offsets)
    places = [combine(into, basis) for basis in layout.bases]
    bits: list[int] = []
    while len(bits) < bits_of(VECTOR // size):
        bit = 1 << len(bits)
        holders = [at for at, place in enumerate(places) if place & bit]
        if len(holders) != 1 or holders[0] >= len(layout.registers) or places[holders[0]] != bit:
            break
        bits.append(holders[0])
    return tuple(bits)


# Moves by vectors and by matrices.


@attrs.frozen
class MatrixView:
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


def views(layout: Layout, size: int) -> Iterator[MatrixView]:
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
    forms = [(False, word, [*words, *layout.lanes[:2]], layout.lanes[2:])]
    if size == 2:
        forms.append((True, word, [*layout.lanes[2:]], (*words, *layout.lanes[:2])))
    if size == 1:  # Two bytes of two rows each.
        for (bit, first), (other, second) in permutations(zip(word, words, strict=True)):
            forms.append((True, (bit, other), [first, *layout.lanes[2:]], (second, *layout.lanes[:2])))
    for trans, bits_of_word, row, lanes in forms:
        if all(row):
            view = Layout((*row, *further), (*lanes, *numbers), layout.warps)
            yield MatrixView(view, trans, bits_of_word, matrices, rest)


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


@attrs.frozen
class Moves:
    """The moves of a tensor to or from a buffer by a warp: instructions, and the bytes that each moves for a lane.

    A wavefront is a cycle in which each bank serves one word.
    """

    instructions: int
    bytes: int
    wavefronts: int

    @property
    def least(self) -> int:
        """The wavefronts without bank conflicts."""
        return self.instructions * max(1, self.bytes // 4)

    @property
    def cost(self) -> float:
        """The cycles of the banks, and half of one for each instruction."""
        return self.wavefronts + self.instructions / 2


def vector_moves(layout: Layout, offsets: tuple[int, ...], size: int, width: int | None = None) -> Moves:
    """The moves in vectors of 2^`width` elements, or as wide as they can be."""
    width = len(vector_bits(layout, offsets, size)) if width is None else width
    count = (1 << sum(map(bool, layout.registers))) >> width
    cycles = max(1, (size << width) // 4) * _conflicts(layout, offsets, size, width)
    return Moves(count, size << width, count * cycles)


def _matrix_moves(view: MatrixView, offsets: tuple[int, ...], size: int) -> Moves:
    count = 1 << len(view.rest)
    cycles = view.count * _conflicts(view.layout, offsets, size, bits_of(VECTOR // size))
    return Moves(count, 4 * view.count, count * cycles)


# Bytes with neighbours along m become words of 4 along k: a transposing ldmatrix moves pairs of rows at 2 depths, and
# two of them make the 4 depths of a word. The depths of the buffer's rows are 0, 1, 4, 5, 10, 11, 14, 15 and the others
# below 16, each of them in another chunk of the swizzle: lanes with l & 2 get the two in the opposite order.
BYTE_DEPTHS = (1, 4, 8 | 2, 2, 16)  # The depths of the rows whose addresses the lanes give, by the lanes' bits.


@lru_cache(maxsize=1024)
def turned_bytes(layout: Layout, offsets: tuple[int, ...], size: int) -> tuple[int, ...] | None:
    """The places of the rows whose addresses threads give, by the bits of a thread's number, if bytes move so.

    A thread's first registers are the words of two rows, which lanes l & 16 hold in the opposite order, at depths 0 to
    3 and 16 to 19.
    """
    if size != 1 or len(layout.registers) < 4 or not all(layout.registers[:4]):
        return None
    into = inverted(offsets)
    first, two, row, sixteen = layout.registers[:4]
    four, eight, *lines = layout.lanes
    depths = {1: first, 2: two, 4: four, 8 | 2: eight ^ two, 16: sixteen}
    places = [combine(into, basis) for basis in (*map(depths.__getitem__, BYTE_DEPTHS), *layout.warps)]
    across = [combine(into, line) for line in (row, *lines[:2], lines[2] ^ row)]
    return tuple(places) if across == [1, 2, 4, 8] and not any(place % VECTOR for place in places) else None


def moves(layout: Layout, offsets: tuple[int, ...], size: int, matrices: bool) -> Moves:
    """The cheapest moves, in vectors or, with `matrices`, as matrices."""
    if matrices and turned_bytes(layout, offsets, size) is not None:
        count = 1 << sum(map(bool, layout.registers[4:]))
        return Moves(count, VECTOR, count * VECTOR // 4)
    view = matrix_view(layout, offsets, size) if matrices else None
    return vector_moves(layout, offsets, size) if view is None else _matrix_moves(view, offsets, size)


@attrs.frozen
class WarpAccess:
    """The first instruction by which warp 0 moves a tensor to or from a buffer: the `address` in the buffer from which
    each lane moves, in bytes, and the `bytes` that it moves."""

    addresses: tuple[int, ...]
    bytes: int


def first_access(layout: Layout, offsets: tuple[int, ...], size: int, matrices: bool) -> WarpAccess | None:
    """The first instruction of `moves`; None for bytes that are turned on the way."""
    if matrices and turned_bytes(layout, offsets, size) is not None:
        return None
    view = matrix_view(layout, offsets, size) if matrices else None
    lanes, inverse = (layout if view is None else view.layout), inverted(offsets)
    addresses = tuple(combine(inverse, lanes.element(0, lane)) * size for lane in range(1 << len(lanes.lanes)))
    return WarpAccess(addresses, VECTOR if view is not None else size << len(vector_bits(layout, offsets, size)))


def _least_cost(layout: Layout, size: int) -> float:
    """The least cost of moving a tensor for a warp: 16 bytes a lane and instruction, without conflicts."""
    count = 1 << sum(map(bool, layout.registers))
    return count * size / 4 + count * size / VECTOR * 0.5


@lru_cache(maxsize=1024)
def matrix_view(layout: Layout, offsets: tuple[int, ...], size: int) -> MatrixView | None:
    """The view in which a tensor moves as matrices; None if vectors are cheaper."""
    bits = tuple(range(bits_of(VECTOR // size)))
    costs = {
        view: _matrix_moves(view, offsets, size).cost
        for view in views(layout, size)
        if vector_bits(view.layout, offsets, size)[: len(bits)] == bits
    }
    best = min(costs, key=costs.__getitem__, default=None)
    return best if best is not None and costs[best] < vector_moves(layout, offsets, size).cost else None


def stores_matrices(layout: Layout) -> bool:
    """Whether each element is held once, so that no two threads store to the same place."""
    return not any(layout.free[1:])


@lru_cache(maxsize=1024)
def conversion_buffer(source: Layout, target: Layout, numel: int, size: int, stmatrix: bool) -> tuple[int, ...]:
    """The `offsets` of the cheapest buffer for a conversion, by vectors or by matrices.

    `stmatrix` says whether the target has that instruction; all targets have `ldmatrix`.
    """
    # A source, or a target, with whether it may move by matrices.
    sides = ((source, stmatrix and stores_matrices(source)), (target, True))
    best: tuple[int, ...] = ()
    cheapest, least = math.inf, _least_cost(source, size) + _least_cost(target, size)
    choices = ([side, *(view.layout for view in views(side, size) if matrices)] for side, matrices in sides)
    for first, second in product(*choices):
        offsets = buffer_bases(first, second, numel, size)
        cost = 0.0
        for layout, matrices in sides:
            cost += moves(layout, offsets, size, matrices).cost
        if cost < cheapest:
            best, cheapest = offsets, cost
        if cheapest <= least:
            break
    return best
