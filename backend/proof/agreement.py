"""Elements that are equal where a condition holds, though not all elements of their tensors are: as those of two
products in the rows that a mask stores.

Two elements at one index are compared as terms. Where these take an element of a product of matrices, the row and the
column of its factors are compared likewise, at an unknown index along k; where they take one of memory, its place.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from ziggurat.backend.proof.elements import Bit, Sum, Term, bits_of, factors_of, same
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.tensors import Index, PartialProduct, key_of
from ziggurat.backend.proof.universe import Universe
from ziggurat.codemodel.types import TensorType


def agree(universe: Universe, where: Bit, x: Any, y: Any, type_: TensorType, index: Index) -> bool:
    """Whether the elements of two tensors of a type at an index are found equal where a condition holds."""
    key = where.identity, key_of(x), key_of(y), *(place.identity for place in index)
    if key not in universe.agreements:
        universe.agreements[key] = _agree(universe, where, x, y, type_, index)
    return universe.agreements[key]


def _agree(universe: Universe, where: Bit, x: Any, y: Any, type_: TensorType, index: Index) -> bool:
    a, b = (universe.element(value, type_, index) for value in (x, y))
    if same(a, b):
        return True
    first, second = bits_of(a), bits_of(b)
    leaves, others = _leaves(universe, first), _leaves(universe, second)
    if len(leaves) != len(others) or not leaves:
        return False
    pairs = list(zip(others, leaves, strict=True))
    if not all(_alike(universe, where, universe.leaves[p.get_id()], universe.leaves[q.get_id()]) for p, q in pairs):
        return False
    return universe.holds(where, Bit(first == z3.substitute(second, *pairs)), much=False)


def _leaves(universe: Universe, term: Term) -> list[Term]:
    """The elements of products and of memory that a term takes, in one order."""
    leaves: dict[int, Term] = {}
    visited, waiting = set[int](), [term]
    while waiting:
        part = waiting.pop()
        if part.get_id() in universe.leaves:
            leaves[part.get_id()] = part
        elif part.get_id() not in visited:
            visited.add(part.get_id())
            waiting += part.children()
    return list(leaves.values())


def _alike(universe: Universe, where: Bit, leaf: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    (content, place), (also, its_place) = leaf, other
    if not isinstance(content, PartialProduct):
        return content is also and same(*(_reduced(universe, where, each) for each in (place, its_place)))
    if not isinstance(also, PartialProduct) or not all(map(same, place, its_place)):
        return False
    if (content.kind, content.start, content.end, content.type) != (also.kind, also.start, also.end, also.type):
        return False
    *batch, row, column = place
    (a, left), (b, right) = content.operands
    (c, _), (d, types) = also.operands
    if types != right or len(place) != len(left.shape):
        return False
    along = universe.along(f"k of {row.identity} {column.identity}", left.shape[-1])  # None of an outer product.
    return (
        agree(universe, where, content.addend, also.addend, content.type, place)
        and agree(universe, where, a, c, left, (*batch, row, along))
        and agree(universe, where, b, d, right, (*batch, along, column))
    )


def _reduced(universe: Universe, where: Bit, offset: Sum) -> Sum:
    """An offset without the remainders of numbers that are below the divisor where a condition holds."""
    total = Sum.number(offset.constant, offset.bits)
    for factor, atom in offset.atoms.values():
        factors = (_factor(universe, where, term) for term in factors_of(atom))
        total = total + functools.reduce(operator.mul, factors).scaled(factor)
    return total


def _factor(universe: Universe, where: Bit, term: Term) -> Sum:
    if term.get_id() in universe.domain.remainders:
        a, b, _ = universe.domain.remainders[term.get_id()]
        domain, zero = universe.domain, Sum.number(0, a.bits)
        below = domain.compare("le", zero, a, signed=True) & domain.compare("lt", a, b, signed=True)
        if universe.holds(where, below, much=False):
            return _reduced(universe, where, a)
    return Sum.of(term)
