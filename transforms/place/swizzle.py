"""Where the elements of a tensor go in shared memory, so that writing in one layout and reading in another is quick.

A place in a buffer is a string of bits, from the lowest: the bits of a vector, which one thread moves at once; the rest
of the 32 banks of 4 bytes, a line of 128 bytes; and the number of the line. The map from place bits to element bits is
linear, and threads that access at the same time conflict when they touch different lines of the same bank.

Let S be the elements that are at the start of the lines, a subspace. Threads that access together differ by a subspace
Q (made of the bits within a word and the lowest lanes), and never conflict when S and Q meet only in 0. For two layouts
there is such an S for both: choose Q₁ and Q₂ of the same size; what they share stays out of S; the rest of Q₁ and the
rest of Q₂ are paired, the sums of the pairs go into S, and with them all that neither has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from ziggurat.codemodel.layout import LANE_BITS, Layout, bits_of, combine, inverted

LINE = 128  # Bytes: 32 banks of 4.
VECTOR = 16  # Bytes of the widest access.


class Span:
    """A subspace of F2^n, grown vector by vector."""

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._rows: list[int] = []  # Each has a leading bit that later ones do not have.
        for vector in vectors:
            self.add(vector)

    def reduced(self, vector: int) -> int:
        """The vector without what the subspace has of it; 0 exactly for its members."""
        for row in self._rows:
            if vector ^ row < vector:
                vector ^= row
        return vector

    def add(self, vector: int) -> bool:
        """Grow by a vector. False where it is a member."""
        vector = self.reduced(vector)
        if not vector:
            return False
        self._rows.append(vector)
        return True

    def __len__(self) -> int:
        return len(self._rows)


def extended(basis: Iterable[int], candidates: Iterable[int]) -> list[int]:
    """Those of the candidates that extend the span of `basis`, one after the other."""
    span = Span(basis)
    return [candidate for candidate in candidates if span.add(candidate)]


def intersection(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """A basis of what two subspaces, each given by a basis, share."""
    rows: list[tuple[int, int]] = []  # (vector, the part of it that is from `first`)
    shared: list[int] = []
    for vector, part in [*((v, v) for v in first), *((v, 0) for v in second)]:
        for row, of_row in rows:
            if vector ^ row < vector:
                vector, part = vector ^ row, part ^ of_row
        if vector:
            rows.append((vector, part))
            rows.sort(reverse=True)
        elif part:
            shared.append(part)
    return shared


def _within(vectors: Sequence[int], duals: Sequence[int]) -> list[int]:
    """A basis of the members of a span on which the linear functions `duals` (masks of bits) are all 0."""
    kept = extended((), vectors)
    for dual in duals:
        odd = next((v for v in kept if (v & dual).bit_count() & 1), None)
        if odd is not None:
            kept = [v ^ odd if (v & dual).bit_count() & 1 else v for v in kept if v != odd]
    return kept


def _register_duals(layout: Layout, numel: int) -> dict[int, int]:
    """For each basis of a register: the mask of element bits whose parity says whether that register bit is set."""
    inverse = layout.inverse(numel)
    return {
        basis: sum(1 << bit for bit, (register, _, _) in enumerate(inverse) if register >> at & 1)
        for at, basis in enumerate(layout.registers)
        if basis
    }


def _tile(layout: Layout, vector_bytes: int) -> list[int]:
    """The bases of the lanes that access together when each moves so many bytes."""
    count = LANE_BITS - bits_of(max(1, vector_bytes // 4))
    return extended((), layout.lanes[:count])


def _arranged(
    sides: tuple[Layout, Layout],
    widths: tuple[int, int],
    vector: Sequence[int],
    duals: Sequence[int],
    bits: int,
    size: int,
) -> tuple[int, ...] | None:
    """The bases of a buffer that begin with `vector`, of which each side moves so many bits at once; None where these
    cannot be free of conflicts."""
    line = min(bits, bits_of(LINE // size))
    everything = [1 << bit for bit in range(bits)]
    kernel = _within(everything, duals)
    word = bits_of(max(1, 4 // size))
    # A word is filled up with what both can do without: nothing of it moves together.
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
    # Both grow to the size of a line: first by what the other has, so that they share as much as they can.
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
    bits = bits_of(numel)
    widest = bits_of(VECTOR // size)
    duals = [_register_duals(side, numel) for side in (source, target)]
    common = [v for v, dual in duals[0].items() if duals[1].get(v) == dual][:widest]
    of_common = [duals[0][v] for v in common]
    found = _arranged((source, target), (len(common), len(common)), common, of_common, bits, size)
    assert found is not None, "for one vector there is always an arrangement"
    best = 0
    # One side may be able to move more at once than both.
    for side in (0, 1):
        vector, functions = list(common), list(of_common)
        for basis, dual in duals[side].items():
            if len(vector) == widest:
                break
            if basis in vector:
                continue
            widths = (len(vector) + 1, len(common)) if side == 0 else (len(common), len(vector) + 1)
            made = _arranged((source, target), widths, [*vector, basis], [*functions, dual], bits, size)
            if made is not None:
                vector.append(basis)
                functions.append(dual)
                if len(vector) - len(common) > best:
                    best, found = len(vector) - len(common), made
    return found


def row_major(numel: int) -> tuple[int, ...]:
    """The `offsets` of a buffer whose elements are in order."""
    return tuple(1 << bit for bit in range(bits_of(numel)))


def vector_bits(layout: Layout, offsets: Sequence[int], size: int) -> tuple[int, ...]:
    """The register bits that move together when a tensor goes to a buffer or comes from it, from the lowest place.

    These registers have neighbouring places, and the places of a thread's vectors are aligned.
    """
    inverse = inverted(offsets)
    places = [combine(inverse, basis) for basis in layout.bases]
    found: list[int] = []
    while len(found) < bits_of(VECTOR // size):
        wanted = 1 << len(found)
        holders = [at for at, place in enumerate(places) if place & wanted]
        if len(holders) != 1 or holders[0] >= len(layout.registers) or places[holders[0]] != wanted:
            break
        found.append(holders[0])
    return tuple(found)
