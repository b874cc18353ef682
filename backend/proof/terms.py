"""Numbers that may be unknown: the terms of a solver as a domain of elementwise meanings.

A float is the integer of its bits. Of a function of floats the name is known: equal operands give equal results. The
facts that passes rely on besides are few, and proved in tests/proofs. With `exact`, floats that are computed are those
of the solver's theory.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ziggurat.backend.proof.elements import (
    FALSE,
    TRUE,
    Bit,
    Element,
    NotDecided,
    Pointer,
    Sum,
    Term,
    bits_of,
    factors_of,
    identity_of,
    same,
    signed_number,
)
from ziggurat.backend.proof.solver import z3
from ziggurat.codemodel import elementwise
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.numbers import bits_of_number, number_of_bits, on_numbers, wrapped
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import Commutative
from ziggurat.codemodel.types import ScalarType, scalar_element

Array = Any  # Of elements.
_OPERATOR: Any = operator  # The stubs of `operator` leave types unknown.


# The theory of floats.

# The solver takes a tenth of the time for floats and unknown functions as bits.
_TACTICS = "simplify", "fpa2bv", "simplify", "solve-eqs", "ackermannize_bv", "max-bv-sharing", "bit-blast", "sat"


def float_answer(formulas: Iterable[Term], effort: int) -> tuple[Any, Any]:
    """What the solver says to formulas with floats, with so much work; and the solver."""
    solver = z3.Then(*_TACTICS).solver()
    solver.set("rlimit", effort)
    solver.add(*formulas)
    return solver.check(), solver


_NEAREST, _TOWARD_ZERO = z3.RNE(), z3.RTZ()
_ORDERINGS: dict[str, Callable[[Term, Term], Term]] = {
    "oeq": z3.fpEQ, "une": lambda a, b: z3.Not(z3.fpEQ(a, b)), "olt": z3.fpLT, "ole": z3.fpLEQ, "ogt": z3.fpGT,
    "oge": z3.fpGEQ,
}  # fmt: skip


def _extreme(larger: bool, nan: bool) -> Callable[[Term, Term], Term]:
    """The larger or the smaller of two floats; with a NaN, NaN or the other one. -0.0 is below 0.0."""

    def choose(a: Term, b: Term) -> Term:
        below = z3.Or(z3.fpLT(a, b), z3.And(z3.fpIsZero(a), z3.fpIsZero(b), z3.fpIsNegative(a)))
        pick = z3.If(below, b, a) if larger else z3.If(below, a, b)
        of_a, of_b = (a, b) if nan else (b, a)
        return z3.If(z3.fpIsNaN(a), of_a, z3.If(z3.fpIsNaN(b), of_b, pick))

    return choose


# By op class, with the rounding of those that round.
_THEORY: dict[type[Op], Callable[..., Term]] = {
    arith.AddF: partial(z3.fpAdd, _NEAREST), arith.SubF: partial(z3.fpSub, _NEAREST),
    arith.MulF: partial(z3.fpMul, _NEAREST), arith.DivF: partial(z3.fpDiv, _NEAREST),
    tt.PreciseDivF: partial(z3.fpDiv, _NEAREST), arith.NegF: z3.fpNeg, maths.AbsF: z3.fpAbs,
    arith.MaximumF: _extreme(True, True), arith.MinimumF: _extreme(False, True),
    arith.MaxNumF: _extreme(True, False), arith.MinNumF: _extreme(False, False),
    maths.Fma: partial(z3.fpFMA, _NEAREST), maths.Sqrt: partial(z3.fpSqrt, _NEAREST),
    tt.PreciseSqrt: partial(z3.fpSqrt, _NEAREST), maths.Floor: partial(z3.fpRoundToIntegral, z3.RTN()),
    maths.Ceil: partial(z3.fpRoundToIntegral, z3.RTP()), maths.Trunc: partial(z3.fpRoundToIntegral, _TOWARD_ZERO),
    maths.RoundEven: partial(z3.fpRoundToIntegral, _NEAREST),
}  # fmt: skip


def sort_of(scalar: ScalarType) -> Term:
    """The floats of a type in the solver's theory. Raises `NotDecided` for those of 8 bits, which saturate."""
    if scalar.saturates or not scalar.format.has_infinity:
        raise NotDecided(f"the theory of floats has no {scalar}")
    return z3.FPSort(scalar.format.exponent_bits, scalar.format.precision)


def _theory(op: Op, *values: Term) -> Term:
    """The result of an op on floats of the theory; and on integers, for casts of them."""
    target = scalar_element(op.result.type)
    match op:
        case arith.CmpF():
            return _ORDERINGS[op.predicate.value](*values)
        case arith.ExtF() | arith.TruncF():
            toward_zero = isinstance(op, arith.TruncF) and op.rounding is arith.Rounding.ZERO
            return z3.fpFPToFP(_TOWARD_ZERO if toward_zero else _NEAREST, values[0], sort_of(target))
        case arith.SIToFP():
            return z3.fpSignedToFP(_NEAREST, values[0], sort_of(target))
        case arith.UIToFP():
            return z3.fpUnsignedToFP(_NEAREST, values[0], sort_of(target))
        case _ if type(op) in _THEORY:
            return _THEORY[type(op)](*values)
        case _:
            raise NotDecided(f"the theory of floats has no {op.NAME}")


# The number with which a float is what it was: x + -0.0, x - 0.0, x · 1, x / 1. Not of a type that saturates.
_NEUTRAL: dict[type[Op], float] = {
    arith.AddF: -0.0, arith.SubF: 0.0, arith.MulF: 1.0, arith.DivF: 1.0, tt.PreciseDivF: 1.0
}  # fmt: skip
_REVERSED = {
    arith.FloatPredicate.OGT: arith.FloatPredicate.OLT, arith.FloatPredicate.OGE: arith.FloatPredicate.OLE
}  # fmt: skip
_EXTREMES = (arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF)


_TOKEN = ScalarType("token", "int", 64)  # A row or a column of a matrix.


class Terms(elementwise.Domain):
    """Numbers of which some are unknown, one at a time."""

    symbolic: ClassVar[bool] = True  # Whether there are unknown ones.

    def __init__(self, *, exact: bool = False, wraps: bool = True) -> None:
        self.exact = exact
        self.wraps = wraps  # Whether 32-bit indices of pointers wrap around before they are extended to 64.
        # By the number of an atom: the integer that was extended to it, and whether as a signed one. The atom is kept,
        # so that no other term gets its number.
        self.extended: dict[int, tuple[Sum, bool, Sum]] = {}
        # By the number of an atom that is a choice: the condition, the integers, and the choice, kept likewise.
        self.choices: dict[int, tuple[Bit, Sum, Sum, Sum]] = {}
        # By the number of an atom that is a remainder of integers with signs: these, and the remainder, kept likewise.
        self.remainders: dict[int, tuple[Sum, Sum, Sum]] = {}
        self.facts: dict[int, Term] = {}  # What holds of unknown numbers, by the numbers of terms.
        self.functions: dict[tuple[str, ScalarType, int], Term] = {}
        self._unknowns: dict[tuple[str, int], Element] = {}
        # By the relation and the numbers, which are kept likewise.
        self._comparisons: dict[Hashable, tuple[Bit, Element, Element]] = {}
        self._relations: dict[int, tuple[str, Sum, Sum]] = {}  # Of integers of 32 bits with signs, by the formula.

    def integers(self, function: Callable[..., Element], scalar: ScalarType, *values: Element) -> Element:
        return function(*values)

    def constant(self, number: int, scalar: ScalarType) -> Element:
        """A known integer, or the float with these bits."""
        return Sum.number(number, scalar.bits) if scalar.bits > 1 else TRUE if number & 1 else FALSE

    def choose(self, condition: Element, then: Element, otherwise: Element) -> Element:
        if condition.known is not None:
            return then if condition.known else otherwise
        if same(then, otherwise):
            return then
        match then:
            case Pointer():
                if then.origin != otherwise.origin:
                    raise NotDecided("a choice between pointers to two arrays")
                return Pointer(then.origin, self.choose(condition, then.offset, otherwise.offset))
            case Bit():
                return Bit(z3.If(condition.term, then.term, otherwise.term))
            case Sum() if isinstance(otherwise, Sum):
                choice = Sum.of(z3.If(condition.term, then.term, otherwise.term))
                for number in choice.atoms:
                    self.choices[number] = condition, then, otherwise, choice
                return choice
            case _:
                sort = (then if z3.is_fp(then) else otherwise).sort()
                return z3.If(
                    condition.term, *(e if z3.is_fp(e) else z3.fpBVToFP(e.term, sort) for e in (then, otherwise))
                )

    def compare(self, relation: str, a: Element, b: Element, *, signed: bool) -> Bit:
        if same(a, b):
            return TRUE if relation in ("eq", "le", "ge") else FALSE
        key = relation, signed, identity_of(a), identity_of(b)
        if key not in self._comparisons:
            bit = self._compared(relation, a, b, signed=signed)
            self._comparisons[key] = bit, a, b
            if signed and isinstance(a, Sum) and a.bits == 32:
                self._relations[bit.identity] = relation, a, b
        return self._comparisons[key][0]

    def _compared(self, relation: str, a: Element, b: Element, *, signed: bool) -> Bit:
        first, second = bits_of(a), bits_of(b)
        signed = signed and not isinstance(a, Bit)
        if relation in ("gt", "ge"):
            first, second = second, first
        match relation:
            case "eq":
                formula = first == second
            case "ne":
                formula = first != second
            case "lt" | "gt":
                formula = first < second if signed else z3.ULT(first, second)
            case _:
                formula = first <= second if signed else z3.ULE(first, second)
        return Bit(formula if a.known is None or b.known is None else z3.simplify(formula))

    def shift(self, a: Element, b: Element, *, upward: bool, signed: bool) -> Element:
        if isinstance(a, Bit):
            return a & ~b
        if upward and b.known is not None:
            return a.scaled(1 << min(b.known, a.bits))
        return a.joined(_OPERATOR.lshift if upward else _OPERATOR.rshift if signed else z3.LShR, b)

    def quotient(self, a: Element, b: Element, *, signed: bool) -> Element:
        return a if isinstance(a, Bit) or b.known == 1 else a.joined(_OPERATOR.truediv if signed else z3.UDiv, b)

    def remainder(self, a: Element, b: Element, *, signed: bool) -> Element:
        if isinstance(a, Bit):
            return FALSE
        remainder = a.joined(z3.SRem if signed else z3.URem, b)
        for number in remainder.atoms if signed else ():
            self.remainders[number] = a, b, remainder
        return remainder

    def high_product(self, a: Element, b: Element, scalar: ScalarType) -> Element:
        if isinstance(a, Bit):
            return FALSE
        bits = scalar.bits
        wide = [z3.ZeroExt(bits, side.term) for side in (a, b)]
        upper = z3.Extract(2 * bits - 1, bits, wide[0] * wide[1])
        return Sum.of(upper if a.atoms or b.atoms else z3.simplify(upper))

    def resize(self, a: Element, source: ScalarType, target: ScalarType, *, signed: bool) -> Element:
        if isinstance(a, Bit):
            return self.choose(a, Sum.number(-1 if signed else 1, target.bits), Sum.number(0, target.bits))
        if target.bits == 1:
            return Bit(z3.simplify(z3.Extract(0, 0, a.term) == 1))
        if target.bits <= source.bits:
            low = [self._low(atom, target.bits).scaled(factor) for factor, atom in a.atoms.values()]
            return sum(low, start=Sum.number(a.constant, target.bits))
        if a.known is not None:
            return Sum.number(signed_number(a.known, a.bits) if signed else a.known, target.bits)
        return self.extended_to(a, target.bits, signed=signed)

    def offset(self, a: Sum) -> Sum:
        """An offset of a pointer: if 32-bit indices do not wrap around, the sum of what they are sums of."""
        if self.wraps:
            return a
        total = Sum.number(a.constant, a.bits)
        for number, (factor, atom) in a.atoms.items():
            part = Sum.number(1, a.bits)
            if number in self.choices:
                condition, then, otherwise, _ = self.choices[number]
                part = self.choose(condition, self.offset(then), self.offset(otherwise))
            else:
                for term in factors_of(atom):
                    inner, signed, _ = self.extended.get(term.get_id(), (None, False, None))
                    if inner is None or not signed or inner.bits != 32:
                        part = part * Sum.of(term)
                    else:
                        part = part * self.exactly(inner, a.bits)
            total = total + part.scaled(factor)
        return total

    def exactly(self, a: Sum, bits: int) -> Sum:
        """A sum with more bits, as if neither it nor its parts had wrapped around."""
        total = Sum.number(signed_number(a.constant, a.bits), bits)
        for number, (factor, atom) in a.atoms.items():
            if number in self.choices:
                condition, then, otherwise, _ = self.choices[number]
                part = self.choose(condition, self.exactly(then, bits), self.exactly(otherwise, bits))
            else:
                part = Sum.number(1, bits)
                for term in factors_of(atom):
                    part = part * self._exact_factor(term, bits)
            total = total + part.scaled(signed_number(factor, a.bits))
        return total

    def _exact_factor(self, term: Term, bits: int) -> Sum:
        if not self.wraps and term.get_id() in self.remainders:
            a, b, _ = self.remainders[term.get_id()]
            return self.remainder(self.exactly(a, bits), self.exactly(b, bits), signed=True)
        return self.extended_to(Sum.of(term), bits, signed=True)

    def unwrapped(self, condition: Bit) -> Bit:
        """A condition; if 32-bit indices do not wrap around, as one of what the integers in it are sums of."""
        exact: list[tuple[Term, Term]] = []
        waiting = [] if self.wraps else [condition.term]
        while waiting:
            term = waiting.pop()
            if term.get_id() in self._relations:
                relation, *sides = self._relations[term.get_id()]
                wide = [self.exactly(side, 64) for side in sides]
                for number, (_, atom) in (pair for side in wide for pair in side.atoms.items()):
                    if len(factors := factors_of(atom)) > 1:  # The product has not wrapped around either.
                        whole = z3.Implies(z3.And(*(factor >= 0 for factor in factors)), atom >= 0)
                        self.facts[number] = z3.And(whole, atom >= -(1 << 31), atom < 1 << 31)
                exact.append((term, self.compare(relation, *wide, signed=True).term))
            elif z3.is_not(term) or z3.is_and(term) or z3.is_or(term):
                waiting += term.children()
        return Bit(z3.substitute(condition.term, *exact)) if exact else condition

    def extended_to(self, a: Sum, bits: int, *, signed: bool) -> Sum:
        """An integer with more bits."""
        if not a.constant and len(a.atoms) == 1 and next(iter(a.atoms.values()))[0] == 1:
            inner, inner_signed, _ = self.extended.get(next(iter(a.atoms)), (a, False, a))
            if inner is not a and (signed or not inner_signed):
                a, signed = inner, inner_signed
        extra = bits - a.bits
        extended = Sum.of(z3.SignExt(extra, a.term) if signed else z3.ZeroExt(extra, a.term))
        self.extended[next(iter(extended.atoms))] = a, signed, extended
        return extended

    def _low(self, atom: Term, bits: int) -> Sum:
        """The low bits of an atom."""
        inner, signed, _ = self.extended.get(atom.get_id(), (None, False, None))
        if len(factors := factors_of(atom)) > 1:
            return functools.reduce(operator.mul, (self._low(factor, bits) for factor in factors))
        if inner is None or inner.bits > bits:
            return Sum.of(z3.Extract(bits - 1, 0, atom) if bits < atom.size() else atom)
        return inner if inner.bits == bits else self.extended_to(inner, bits, signed=signed)

    def reinterpret(self, a: Element, source: ScalarType, target: ScalarType) -> Element:
        return Sum.of(z3.fpToIEEEBV(a)) if z3.is_fp(a) and not target.is_float else a

    def floating(self, a: Element, scalar: ScalarType) -> Term:
        """A float as one of the theory."""
        return a if z3.is_fp(a) else z3.fpBVToFP(a.term, sort_of(scalar))

    def equal(self, a: Element, b: Element, scalar: ScalarType) -> Term:
        """That two numbers of a type are the same; all NaNs are, if floats are those of the theory."""
        if self.exact and scalar.is_float:
            return self.floating(a, scalar) == self.floating(b, scalar)
        return bits_of(a) == bits_of(b)

    def floats(self, op: Op, *values: Element) -> Element:
        types = [scalar_element(value.type) for value in op.operands]
        target = scalar_element(op.result.type)
        if not any(z3.is_fp(value) or value.known is None for value in values):
            numbers = [number_of(value, scalar) for value, scalar in zip(values, types, strict=True)]
            result = on_numbers(op, numbers)
            return self.constant(bits_of_number(result, target) if target.is_float else int(result), target)
        if not self.exact:
            return self._by_name(op, target, types, values)
        operands = zip(values, types, strict=True)
        result = _theory(op, *(self.floating(v, scalar) if scalar.is_float else bits_of(v) for v, scalar in operands))
        return Bit(result) if target.bits == 1 else result

    def _by_name(self, op: Op, target: ScalarType, types: list[ScalarType], values: tuple[Element, ...]) -> Element:
        """The result of a function of floats of which the name is known, and a few facts."""
        sign = self.constant(1 << target.bits - 1, target)
        if isinstance(op, arith.NegF):
            return values[0] ^ sign
        if isinstance(op, maths.AbsF):
            return values[0] & (sign - self.constant(1, target))
        if isinstance(op, _EXTREMES) and same(*values):
            return values[0]
        commutes = isinstance(op, Commutative)
        if type(op) in _NEUTRAL and not target.saturates:
            neutral = bits_of_number(_NEUTRAL[type(op)], target)
            for value, other in (values, values[::-1])[: 1 + commutes]:
                if other.known == neutral:
                    return value
        if isinstance(op, arith.CmpF):
            predicate = _REVERSED.get(op.predicate)
            if predicate is not None:
                return self._by_name(arith.CmpF(op.lhs, op.rhs, predicate=predicate), target, types, values[::-1])
            if op.predicate is arith.FloatPredicate.UNE:
                return ~self._by_name(
                    arith.CmpF(op.lhs, op.rhs, predicate=arith.FloatPredicate.OEQ), target, types, values
                )
            commutes = op.predicate is arith.FloatPredicate.OEQ
        terms = [bits_of(value) for value in values]
        if commutes:
            terms.sort(key=lambda term: term.get_id())
        details = [f"{name}={value}" for name, value in op.attributes.items() if name != "type"]
        return self.function(" ".join((op.NAME, *details, *map(str, types))), terms, target)

    def unknown(self, name: str, scalar: ScalarType) -> Element:
        """A number of a type of which only the name is known."""
        key = name, scalar.bits
        if key not in self._unknowns:
            self._unknowns[key] = Bit(z3.Bool(name)) if scalar.bits == 1 else Sum.of(z3.BitVec(name, scalar.bits))
        return self._unknowns[key]

    def selected(self, contents: Term, name: str, offset: Sum, size: int) -> Sum:
        """The bits of an element of an array of a name, which now has these contents."""
        return Sum.of(z3.Select(contents, offset.term))

    def loaded(self, bits: Sum, scalar: ScalarType) -> Element:
        """A number by its bits in memory."""
        return self.floating(bits, scalar) if self.exact and scalar.is_float else bits

    def products(self, a: Array, b: Array, c: Array, source: ScalarType, target: ScalarType, precision: str) -> Array:
        """c + a · b, of matrices of elements. A sum is taken over as many products at a time as a matrix unit takes: it
        is a function of a row, a column, and the sum up to there, of which the name is known."""
        if self.exact:
            raise NotDecided("products of matrices in the theory of floats")
        chunk, depth = max(1, 256 // source.bits), a.shape[-1]
        name = f"dot {source} {precision}"

        def token(elements: Array) -> Any:
            box = np.empty((), object)  # Else NumPy takes the term for an array.
            box[()] = bits_of(self.function(f"{name} {len(elements)}", [bits_of(e) for e in elements], _TOKEN))
            return box

        result = np.broadcast_to(c, (1, *c.shape[1:])).copy()
        for start in range(0, depth, chunk):
            part = slice(start, start + chunk)
            rows = np.apply_along_axis(token, -1, a[..., part])
            columns = np.apply_along_axis(token, -2, b[..., part, :])
            for place in np.ndindex(*result.shape):
                terms = [rows[place[:-1]], columns[(*place[:-2], place[-1])], bits_of(result[place])]
                result[place] = self.function(name, terms, target)
        return result

    def product(self, a: Element, b: Element, scalar: ScalarType) -> Element:
        """The product of two floats."""
        factors = tt.Poison(scalar).result, tt.Poison(scalar).result
        return self.floats(arith.MulF(*factors), a, b)

    def function(self, name: str, terms: list[Term], target: ScalarType) -> Element:
        """The result of a function of which the name is known."""
        symbol = self.functions.get((name, target, len(terms)))
        if symbol is None:
            result = z3.BoolSort() if target.bits == 1 else z3.BitVecSort(target.bits)
            symbol = z3.Function(f"{name} -> {target}", *(term.sort() for term in terms), result)
            self.functions[name, target, len(terms)] = symbol
        term = symbol(*terms)
        return Bit(term) if target.bits == 1 else Sum.of(term)


def number_of(element: Element, scalar: ScalarType) -> Any:
    """The Python number of a known element."""
    return number_of_bits(element.known, scalar) if scalar.is_float else wrapped(element.known, scalar)
