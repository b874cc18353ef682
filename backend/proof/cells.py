"""The memory of an array whose contents and places of access are unknown.

Elements that were written are kept as cells by their offsets, as long as these differ in numbers only: then a load
finds its cell without the solver. An access at an offset of another form may be of the same element as any cell: the
cells then go into an array of the solver's theory, from which loads are selections.
"""

from __future__ import annotations

from typing import Any

from ziggurat.backend.proof.elements import Bit, NotDecided, Sum, Term, same
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.terms import Terms

_FARTHEST = 1 << 32  # A multiple of a 32-bit integer that is extended to 64 bits is another for another integer.
Place = tuple[Any, ...]


class Cells:
    """The elements of an array, of `size` bytes each, by their offsets in bytes."""

    def __init__(self, domain: Terms, name: str, size: int) -> None:
        self.domain = domain
        self.name = name
        self.size = size
        self.contents = self.before = z3.Array(name, z3.BitVecSort(64), z3.BitVecSort(8 * size))
        self.accessed: list[Sum] = []  # The offsets of all accesses.
        self._form: Place | None = None
        self._cells: dict[int, tuple[Sum, Sum]] = {}  # the offset and the content, by the part that differs

    def copy(self) -> Cells:
        """The same contents, to be written apart from these."""
        copy = Cells(self.domain, self.name, self.size)
        copy.contents, copy.accessed, copy._form, copy._cells = (
            self.contents,
            self.accessed,
            self._form,
            dict(self._cells),
        )
        return copy

    def _is_whole(self, offset: Sum) -> bool:
        """Whether an offset is a multiple of the size, whatever its unknown numbers are."""
        choices = (
            self.domain.choices.get(number) for number, (factor, _) in offset.atoms.items() if factor % self.size
        )
        return not offset.constant % self.size and all(
            choice is not None and all(map(self._is_whole, choice[1:3])) for choice in choices
        )

    def _place(self, offset: Sum) -> tuple[Place, int]:
        """The form of an offset and a number: offsets of one form are those of elements that differ if and only if the
        numbers do. Raises `NotDecided` for an offset of which it is not known that it is that of an element."""
        if not self._is_whole(offset):
            raise NotDecided("accesses of one array at offsets that are no multiples of an element's size")
        multiples = offset.multiples()
        for number, factor in multiples:
            inner, signed, _ = self.domain.extended.get(number, (None, False, None))
            if inner is not None and min(factor, (1 << 64) - factor) < _FARTHEST and not factor % self.size:
                others = tuple(pair for pair in multiples if pair[0] != number)
                form = offset.constant, others, factor, signed, inner.bits, inner.multiples()
                return form, inner.constant * self.size  # As far apart as elements are.
        return multiples, offset.constant

    def _enter(self, form: Place) -> None:
        """Make the cells those of a form."""
        if form != self._form:
            self.flush()
            self._form = form

    def flush(self) -> None:
        """Move the cells to the solver's array."""
        for _, (offset, content) in sorted(self._cells.items()):
            self.contents = z3.Store(self.contents, offset.term, content.term)
        self._cells = {}

    def load(self, offset: Sum) -> Sum:
        """The bits of the element at an offset."""
        self.accessed.append(offset)
        form, number = self._place(offset)
        if form != self._form and self._cells:
            self._enter(form)
        if form == self._form and number in self._cells:
            return self._cells[number][1]
        return self.domain.selected(self.contents, self.name, offset, self.size)

    def store(self, offset: Sum, content: Sum, condition: Bit) -> None:
        """Write the bits of an element where a condition holds."""
        if condition.known == 0:
            return
        self.accessed.append(offset)
        form, number = self._place(offset)
        self._enter(form)
        if condition.known is None:
            content = self.domain.choose(condition, content, self.load(offset))
        self._cells[number] = offset, content

    def differences(self, other: Cells) -> list[Term]:
        """Formulas of which one holds if the contents differ from those of the same array in another run."""
        if self._form == other._form and self.contents.eq(other.contents):
            terms: list[Term] = []
            for number in self._cells.keys() | other._cells.keys():
                (offset, _) = self._cells.get(number) or other._cells[number]
                a, b = self.load(offset), other.load(offset)
                if not same(a, b):
                    terms.append(a.term != b.term if a.bits == b.bits else z3.BoolVal(True))
            return terms
        self.flush()
        other.flush()
        if self.contents.eq(other.contents):
            return []
        anywhere = z3.BitVec(f"place in {self.name}", 64)
        return [z3.Select(self.contents, anywhere) != z3.Select(other.contents, anywhere)]
