"""Elements of arrays that may be unknown, as terms of a solver: integers, i1s, and pointers.

* A `Sum` is an integer as a constant plus multiples of unknown integers. So index arithmetic has one form, whatever
  order it is written in, and equal indices are found equal without the solver.
* A `Bit` is an i1.
* A `Pointer` is a place in one of the arrays.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import attrs

from ziggurat.backend.proof.solver import z3

Term = Any  # The package of the solver has no types.
_OPERATOR: Any = operator  # The stubs of `operator` leave types unknown.
Element = Any  # A `Sum`, a `Bit`, a `Pointer`, or a float of the theory.


_MOST_TERMS = 1_000  # Of a formula that is looked at term by term.
_MOST_PRODUCTS = 16  # Atoms that the product of two sums is written with.


class NotDecided(Exception):
    """A model does something that proofs do not cover; the message says what."""


@attrs.frozen(eq=False)
class Sum:
    """constant + Σ factor · atom, modulo 2 to the power of `bits`. `atoms` are by the solver's number of each."""

    bits: int
    constant: int
    atoms: dict[int, tuple[int, Term]]

    @staticmethod
    @functools.cache
    def number(value: int, bits: int) -> Sum:
        """A known integer."""
        return Sum(bits, value % (1 << bits), {})

    @staticmethod
    def of(atom: Term) -> Sum:
        """A term of the solver."""
        if z3.is_bv_value(atom):
            return Sum(atom.size(), atom.as_long(), {})
        return Sum(atom.size(), 0, {atom.get_id(): (1, atom)})

    @property
    def known(self) -> int | None:
        """The number, without a sign; None if it is not known."""
        return None if self.atoms else self.constant

    def multiples(self) -> tuple[tuple[int, int], ...]:
        """The atoms' numbers with their factors, in one order."""
        return tuple(sorted((number, factor) for number, (factor, _) in self.atoms.items()))

    @functools.cached_property
    def identity(self) -> tuple[Any, ...]:
        """Two sums with the same one are equal."""
        return self.bits, self.constant, *self.multiples()

    @functools.cached_property
    def term(self) -> Term:
        """The term of the solver."""
        parts = [atom if factor == 1 else atom * factor for _, (factor, atom) in sorted(self.atoms.items())]
        if self.constant or not parts:
            parts.append(z3.BitVecVal(self.constant, self.bits))
        return functools.reduce(operator.add, parts)

    def _made(self, constant: int, atoms: Iterable[tuple[int, tuple[int, Term]]]) -> Sum:
        modulus = 1 << self.bits
        nonzero = {number: (factor % modulus, atom) for number, (factor, atom) in atoms if factor % modulus}
        return Sum(self.bits, constant % modulus, nonzero)

    def scaled(self, factor: int) -> Sum:
        """The product with a number."""
        multiples = [(number, (own * factor, atom)) for number, (own, atom) in self.atoms.items()]
        return self._made(self.constant * factor, multiples)

    def joined(self, function: Callable[[Term, Term], Term], other: Sum) -> Sum:
        """A function of two terms."""
        result = function(self.term, other.term)
        return Sum.of(result if self.atoms or other.atoms else z3.simplify(result))

    def _in_order(self, function: Callable[[Term, Term], Term], other: Sum) -> Sum:
        """A commutative function of two terms."""
        first, second = sorted((self, other), key=lambda side: side.identity)
        return first.joined(function, second)

    def __add__(self, other: Sum) -> Sum:
        atoms = dict(self.atoms)
        for number, (factor, atom) in other.atoms.items():
            atoms[number] = atoms[number][0] + factor if number in atoms else factor, atom
        return self._made(self.constant + other.constant, atoms.items())

    def __neg__(self) -> Sum:
        return self.scaled(-1)

    def __sub__(self, other: Sum) -> Sum:
        return self + -other

    def __mul__(self, other: Sum) -> Sum:
        if not other.atoms:
            return self.scaled(other.constant)
        if not self.atoms:
            return other.scaled(self.constant)
        if len(self.atoms) * len(other.atoms) > _MOST_PRODUCTS:
            return self._in_order(operator.mul, other)
        result = self.scaled(other.constant) + other.scaled(self.constant)
        result = result - Sum.number(self.constant * other.constant, self.bits)
        for factor, atom in self.atoms.values():
            for by, also in other.atoms.values():
                factors = sorted((*factors_of(atom), *factors_of(also)), key=lambda term: term.get_id())
                result = result + Sum.of(functools.reduce(operator.mul, factors)).scaled(factor * by)
        return result

    def __and__(self, other: Sum) -> Sum:
        return self._in_order(_OPERATOR.and_, other)

    def __or__(self, other: Sum) -> Sum:
        return self._in_order(_OPERATOR.or_, other)

    def __xor__(self, other: Sum) -> Sum:
        return self._in_order(_OPERATOR.xor, other)


def signed_number(number: int, bits: int) -> int:
    """The integer that some bits are as a signed one."""
    return number - (1 << bits if number >> bits - 1 else 0)


def factors_of(atom: Term) -> list[Term]:
    """The atoms of which an atom is the product, or the atom."""
    if atom.decl().kind() != z3.Z3_OP_BMUL:
        return [atom]
    return [factor for part in atom.children() for factor in factors_of(part)]


_DIVISIONS = {
    z3.Z3_OP_BSDIV: True, z3.Z3_OP_BSREM: True, z3.Z3_OP_BUDIV: False, z3.Z3_OP_BUREM: False
}  # fmt: skip


def facts_of_divisions(formula: Term) -> list[Term] | None:
    """What holds of the quotients and remainders in a formula: q · b + r = a, and a number below the divisor is the
    remainder. None for a long formula."""
    facts: dict[tuple[int, int, bool], Term] = {}
    visited, waiting = set[int](), [formula]
    while waiting:
        term = waiting.pop()
        if term.get_id() in visited:
            continue
        visited.add(term.get_id())
        if len(visited) > _MOST_TERMS:
            return None
        waiting += term.children()
        signed = _DIVISIONS.get(term.decl().kind()) if z3.is_app(term) else None
        if signed is not None:
            a, b = term.children()
            q, r = (a / b, z3.SRem(a, b)) if signed else (z3.UDiv(a, b), z3.URem(a, b))
            below = z3.And(a >= 0, a < b) if signed else z3.ULT(a, b)
            whole = (Sum.of(q) * Sum.of(b)).term + r == a
            fact = z3.And(z3.Implies(b != 0, whole), z3.Implies(below, z3.And(q == 0, r == a)))
            facts[a.get_id(), b.get_id(), signed] = fact
    return list(facts.values())


_TRUE, _FALSE = z3.BoolVal(True), z3.BoolVal(False)  # Kept, as their numbers are.
_TRUTHS: dict[int, int] = {_TRUE.get_id(): 1, _FALSE.get_id(): 0}


@attrs.frozen(eq=False)
class Bit:
    """An i1: a formula of the solver. Sums and products are modulo 2. Two bits with the same identity are equal."""

    term: Term
    identity: int = attrs.field(init=False, default=attrs.Factory(lambda self: self.term.get_id(), takes_self=True))

    @property
    def known(self) -> int | None:
        """0 or 1; None if it is not known."""
        return _TRUTHS.get(self.identity)

    @functools.cached_property
    def parts(self) -> frozenset[int]:
        """The numbers of formulas that hold together if and only if this one does."""
        return frozenset(term.get_id() for term in conjuncts(self.term))

    def __bool__(self) -> bool:
        if self.known is None:
            raise NotDecided("a decision that depends on what is not known")
        return bool(self.known)

    def __neg__(self) -> Bit:
        return self

    def __invert__(self) -> Bit:
        return self._opposite

    @functools.cached_property
    def _opposite(self) -> Bit:
        if self.known is not None:
            return FALSE if self.known else TRUE
        return Bit(self.term.arg(0) if z3.is_not(self.term) else z3.Not(self.term))

    def __and__(self, other: Bit) -> Bit:
        if self.known is not None:
            return other if self.known else self
        return other & self if other.known is not None else _both(self, other)

    def __or__(self, other: Bit) -> Bit:
        return ~(~self & ~other)

    def __xor__(self, other: Bit) -> Bit:
        if self.known is not None:
            return ~other if self.known else other
        return (
            other ^ self
            if other.known is not None
            else FALSE
            if same(self, other)
            else Bit(z3.Xor(self.term, other.term))
        )

    __add__ = __sub__ = __xor__
    __mul__ = __and__


def conjuncts(term: Term) -> list[Term]:
    """Formulas that hold together if and only if another one holds."""
    return list(term.children()) if z3.is_and(term) else [term]


@functools.lru_cache(1 << 14)  # Runs of models make the same terms again.
def _both(a: Bit, b: Bit) -> Bit:
    if same(a, b):
        return a
    terms = {term.get_id(): term for side in (a, b) for term in conjuncts(side.term)}
    return Bit(z3.And(*(term for _, term in sorted(terms.items()))))


TRUE, FALSE = Bit(_TRUE), Bit(_FALSE)


@attrs.frozen(eq=False)
class Pointer:
    """A byte of an array: the number of the array among the parameters, and the offset from its first byte."""

    origin: int
    offset: Sum

    @property
    def known(self) -> None:
        """No place is known: an array may be anywhere."""
        return None

    @property
    def identity(self) -> Hashable:
        """Two pointers with the same one are equal."""
        return self.origin, self.offset.identity


def identity_of(element: Element) -> Hashable:
    """Elements of one type with the same one are equal."""
    return element.get_id() if z3.is_ast(element) else element.identity


def same(a: Element, b: Element) -> bool:
    """Whether two elements of one type are written alike: then they are equal."""
    return a is b or (z3.is_fp(a) == z3.is_fp(b) and identity_of(a) == identity_of(b))


def bits_of(element: Element) -> Term:
    """An integer, an i1, or the bits of a float, as an integer of the solver."""
    if isinstance(element, Bit):
        return z3.If(element.term, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))
    return z3.fpToIEEEBV(element) if z3.is_fp(element) else element.term
