"""The meaning of each elementwise op, written once over domains of values.

A domain is a way to hold numbers: NumPy arrays (`scalars.ARRAYS`), Python's numbers (`numbers.Numbers`), the terms of a
solver and fingerprints in a finite field (`backend/proof`). Its integers have Python's operators + - * & | ^; the other
operations of integers are methods of the domain. What the floats of a domain are differs more: it computes the ops on
them itself.

    MEANINGS[op](domain, op, *values)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, scalar_element

Value = Any


class Domain(Protocol):
    """Values of one kind that stand for numbers. `signed` is how the bits of integers are read."""

    def integers(self, function: Callable[..., Value], scalar: ScalarType, *values: Value) -> Value:
        """A function of integers, made of operators and of the methods below, with its result wrapped to the type."""
        ...

    def constant(self, number: int, scalar: ScalarType) -> Value:
        """An integer of a type."""
        ...

    def choose(self, condition: Value, then: Value, otherwise: Value) -> Value:
        """`then` where an i1 holds, `otherwise` elsewhere."""
        ...

    def compare(self, relation: str, a: Value, b: Value, *, signed: bool) -> Value:
        """An i1 for two integers: `relation` is eq, ne, lt, le, gt or ge."""
        ...

    def shift(self, a: Value, b: Value, *, upward: bool, signed: bool) -> Value:
        """A shift, to higher bits or to lower ones; one by the width or more shifts everything out."""
        ...

    def quotient(self, a: Value, b: Value, *, signed: bool) -> Value:
        """The quotient rounded toward zero, as in C; the smallest integer divided by -1 is itself."""
        ...

    def remainder(self, a: Value, b: Value, *, signed: bool) -> Value:
        """The remainder with the sign of the dividend, as in C."""
        ...

    def high_product(self, a: Value, b: Value, scalar: ScalarType) -> Value:
        """The upper half of the product of two unsigned integers."""
        ...

    def resize(self, a: Value, source: ScalarType, target: ScalarType, *, signed: bool) -> Value:
        """The low bits of an integer, or the integer with more bits."""
        ...

    def reinterpret(self, a: Value, source: ScalarType, target: ScalarType) -> Value:
        """The number of another type with the same bits."""
        ...

    def floats(self, op: Op, *values: Value) -> Value:
        """The result of an op that takes or gives floats."""
        ...


Rule = Callable[..., Value]  # (domain, op, *values) -> result

MEANINGS = OpTable[Rule]("meaning over domains")

# By op class: the integer that an op makes of two.
INTEGERS: dict[type[Op], Callable[[Domain, Value, Value], Value]] = {
    arith.AddI: lambda domain, a, b: a + b,
    arith.SubI: lambda domain, a, b: a - b,
    arith.MulI: lambda domain, a, b: a * b,
    arith.AndI: lambda domain, a, b: a & b,
    arith.OrI: lambda domain, a, b: a | b,
    arith.XOrI: lambda domain, a, b: a ^ b,
    arith.ShlI: lambda domain, a, b: domain.shift(a, b, upward=True, signed=False),
    arith.ShrSI: lambda domain, a, b: domain.shift(a, b, upward=False, signed=True),
    arith.ShrUI: lambda domain, a, b: domain.shift(a, b, upward=False, signed=False),
    arith.DivSI: lambda domain, a, b: domain.quotient(a, b, signed=True),
    arith.DivUI: lambda domain, a, b: domain.quotient(a, b, signed=False),
    arith.RemSI: lambda domain, a, b: domain.remainder(a, b, signed=True),
    arith.RemUI: lambda domain, a, b: domain.remainder(a, b, signed=False),
    arith.MaxSI: lambda domain, a, b: domain.choose(domain.compare("lt", a, b, signed=True), b, a),
    arith.MaxUI: lambda domain, a, b: domain.choose(domain.compare("lt", a, b, signed=False), b, a),
    arith.MinSI: lambda domain, a, b: domain.choose(domain.compare("lt", b, a, signed=True), b, a),
    arith.MinUI: lambda domain, a, b: domain.choose(domain.compare("lt", b, a, signed=False), b, a),
}


@MEANINGS.of(arith.IntBinary)
def _integer(domain: Domain, op: arith.IntBinary, a: Value, b: Value) -> Value:
    return domain.integers(partial(INTEGERS[type(op)], domain), scalar_element(op.result.type), a, b)


@MEANINGS.of(tt.MulHiUI)
def _high_product(domain: Domain, op: tt.MulHiUI, a: Value, b: Value) -> Value:
    return domain.high_product(a, b, scalar_element(op.result.type))


@MEANINGS.of(maths.AbsI)
def _magnitude(domain: Domain, op: maths.AbsI, a: Value) -> Value:
    scalar = scalar_element(op.result.type)
    if not scalar.signed:
        return a
    zero = domain.constant(0, scalar)
    return domain.choose(domain.compare("lt", a, zero, signed=True), domain.integers(operator.neg, scalar, a), a)


class _Bits:
    """Unsigned integers of a type in a domain, with shifts by numbers."""

    def __init__(self, domain: Domain, scalar: ScalarType) -> None:
        self.domain = domain
        self.scalar = scalar

    def mask(self, of: int) -> Value:
        """A constant in which `of` low bits of each 2 · `of` bits are set."""
        return self.domain.constant(
            sum(((1 << of) - 1) << at for at in range(0, self.scalar.bits, 2 * of)), self.scalar
        )

    def shifted(self, a: Value, count: int) -> Value:
        """The bits moved up by `count`, or down where it is negative."""
        return self.domain.shift(a, self.domain.constant(abs(count), self.scalar), upward=count > 0, signed=False)

    def count(self, a: Value) -> Value:
        """How many bits are set: in each two bits, in each four, and so on."""
        width = 1
        while width < self.scalar.bits:
            mask = self.mask(width)
            a = (a & mask) + (self.shifted(a, -width) & mask)
            width *= 2
        return a

    def filled(self, a: Value) -> Value:
        """The bits with all those below the highest set as well."""
        width = 1
        while width < self.scalar.bits:
            a = a | self.shifted(a, -width)
            width *= 2
        return a

    def reversed(self, a: Value) -> Value:
        """The bits in the opposite order: neighbours exchanged, then pairs, and so on."""
        width = 1
        while width < self.scalar.bits:
            mask = self.mask(width)
            a = self.shifted(a & mask, width) | (self.shifted(a, -width) & mask)
            width *= 2
        return a


def of_bits(domain: Domain, cls: type[Op], scalar: ScalarType, a: Value) -> Value:
    """What a class of `BitUnary` gives for an unsigned integer."""
    bits = _Bits(domain, scalar)
    if cls is maths.CtPop:
        return bits.count(a)
    if cls is maths.CtLz:
        return domain.constant(scalar.bits, scalar) - bits.count(bits.filled(a))
    return bits.reversed(a)


@MEANINGS.of(maths.CtPop, maths.CtLz, maths.BitReverse)
def _of_bits(domain: Domain, op: maths.BitUnary, a: Value) -> Value:
    scalar = scalar_element(op.result.type)
    unsigned = domain.reinterpret(a, scalar, scalar.unsigned)
    result = domain.integers(partial(of_bits, domain, type(op), scalar.unsigned), scalar.unsigned, unsigned)
    return domain.reinterpret(result, scalar.unsigned, scalar)


@MEANINGS.of(arith.CmpI)
def _compared(domain: Domain, op: arith.CmpI, a: Value, b: Value) -> Value:
    sign, relation = op.predicate.value[:-2], op.predicate.value[-2:]
    return domain.compare(relation, a, b, signed=sign == "s")


@MEANINGS.of(arith.Select)
def _selected(domain: Domain, op: arith.Select, condition: Value, then: Value, otherwise: Value) -> Value:
    return domain.choose(condition, then, otherwise)


@MEANINGS.of(arith.ExtSI, arith.ExtUI, arith.TruncI)
def _resized(domain: Domain, op: arith.Cast, a: Value) -> Value:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    return domain.resize(a, source, target, signed=isinstance(op, arith.ExtSI))


@MEANINGS.of(arith.Bitcast)
def _reinterpreted(domain: Domain, op: arith.Bitcast, a: Value) -> Value:
    return domain.reinterpret(a, scalar_element(op.operand.type), scalar_element(op.type))


@MEANINGS.of(
    arith.FloatBinary, maths.FloatUnary, arith.NegF, maths.AbsF, maths.Fma, maths.Directed, arith.CmpF,
    arith.ExtF, arith.TruncF, arith.SIToFP, arith.UIToFP, arith.FPToSI, arith.FPToUI,
)  # fmt: skip
def _float(domain: Domain, op: Op, *values: Value) -> Value:
    return domain.floats(op, *values)
