"""Numbers as a domain in which floats are real numbers: residues modulo a prime.

The sums, products and quotients of a program are the same whatever their order and rounding; so models that differ in
these alone give equal residues, and others do not but for a chance of about one in the prime. Integers are known, so
control flow is one of many.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.proof.elements import FALSE, TRUE, Element, Sum
from ziggurat.backend.proof.terms import Terms
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.numbers import COMPARISONS, number_of_bits, wrapped
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, scalar_element

PRIME = (1 << 61) - 1
Array = Any


@attrs.frozen(eq=False)
class Residue(Sum):
    """A float. Its sign is that of the residue nearest to zero, for comparisons."""

    @property
    def known(self) -> None:
        """No float is known: ops on it are those of the domain."""
        return None

    @staticmethod
    def of_number(value: int) -> Residue:
        """The residue of an integer."""
        return Residue(64, value % PRIME, {})

    @property
    def signed(self) -> int:
        """The residue between -PRIME / 2 and PRIME / 2."""
        return self.constant - PRIME if self.constant > PRIME // 2 else self.constant


@attrs.frozen(eq=False)
class Stored(Sum):
    """An element of an array as it is at first: a small integer, or the float `residue`."""

    residue: int = 0


class Fingerprints(Terms):
    """Known integers, and floats as residues. `seed` chooses what is unknown elsewhere."""

    symbolic = False

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed

    def chance(self, *about: object) -> int:
        """A number of 61 bits that depends on the seed and on what it is about."""
        digest = hashlib.blake2b(repr((self.seed, *about)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % PRIME

    def unknown(self, name: str, scalar: ScalarType) -> Element:
        if scalar.is_float:
            return Residue.of_number(self.chance(name))
        limits = {"program": 2, "programs": 3}
        word = name.partition(" ")[0]
        number = 3 if word == "programs" else self.chance(name) % limits.get(word, 64)
        return self.constant(number, scalar)

    def selected(self, contents: Any, name: str, offset: Sum, size: int) -> Sum:
        residue = self.chance(name, offset.constant)
        return Stored(8 * size, residue % 8, {}, residue)

    def loaded(self, bits: Sum, scalar: ScalarType) -> Element:
        if not scalar.is_float:
            return bits
        return Residue.of_number(bits.residue) if isinstance(bits, Stored) else self.residue(bits, scalar)

    def residue(self, element: Element, scalar: ScalarType) -> Residue:
        """A float, which may be known by its bits."""
        if isinstance(element, Residue):
            return element
        number = number_of_bits(element.constant, scalar)
        if not math.isfinite(number):
            return Residue.of_number(self.chance(str(number)))
        above, below = number.as_integer_ratio()
        return Residue.of_number(above * pow(below, -1, PRIME))

    def reinterpret(self, a: Element, source: ScalarType, target: ScalarType) -> Element:
        if source.is_float and not target.is_float:
            return self.constant(self.chance("bits", self.residue(a, source).constant), target)
        return a if target.is_float == source.is_float else self.residue(a, target)

    def floats(self, op: Op, *values: Element) -> Element:
        types = [scalar_element(value.type) for value in op.operands]
        target = scalar_element(op.result.type)
        if isinstance(op, arith.SIToFP | arith.UIToFP):
            signed = isinstance(op, arith.SIToFP)
            wide = attrs.evolve(types[0], signed=signed) if types[0].bits > 1 else types[0]
            return Residue.of_number(int(wrapped(values[0].known, wide)))
        numbers = [self.residue(value, scalar) for value, scalar in zip(values, types, strict=True)]
        if isinstance(op, arith.CmpF):
            holds = COMPARISONS[op.predicate.value[-2:]](*(number.signed for number in numbers))
            return TRUE if holds else FALSE
        if isinstance(op, arith.FPToSI | arith.FPToUI):
            return self.constant(self.chance(op.NAME, numbers[0].constant) % 16, target)
        return Residue.of_number(self._real(op, *(number.signed for number in numbers)))

    def _real(self, op: Op, *values: int) -> int:
        """An op on real numbers."""
        match op, values:
            case (arith.AddF(), (a, b)):
                return a + b
            case (arith.SubF(), (a, b)):
                return a - b
            case (arith.MulF(), (a, b)):
                return a * b
            case (arith.DivF() | tt.PreciseDivF(), (a, b)):
                return a * pow(b, -1, PRIME) if b else self.chance("quotient by zero", a)
            case (maths.Fma(), (a, b, c)):
                return a * b + c
            case (arith.MaximumF() | arith.MaxNumF(), (a, b)):
                return max(a, b)
            case (arith.MinimumF() | arith.MinNumF(), (a, b)):
                return min(a, b)
            case (arith.NegF(), (a,)):
                return -a
            case (maths.AbsF(), (a,)):
                return abs(a)
            case (arith.ExtF() | arith.TruncF(), (a,)):
                return a
            case (maths.Rsqrt(), (a,)):
                return pow(self.chance(maths.Sqrt.NAME, a), -1, PRIME)
            case _:
                return self.chance(maths.Sqrt.NAME if isinstance(op, tt.PreciseSqrt) else op.NAME, *values)

    def function(self, name: str, terms: list[Any], target: ScalarType) -> Element:
        if name.startswith("atomic") and target.is_float:
            old, value = (term.as_long() for term in terms)
            return Residue.of_number(old + value if name.endswith("fadd") else self.chance(name, old, value))
        return super().function(name, terms, target)

    def products(self, a: Array, b: Array, c: Array, source: ScalarType, target: ScalarType, precision: str) -> Array:
        def values(array: Array, scalar: ScalarType) -> Array:
            if not scalar.is_float:
                return np.frompyfunc(lambda e: int(wrapped(e.known, scalar)), 1, 1)(array)
            return np.frompyfunc(lambda e: self.residue(e, scalar).constant, 1, 1)(array)

        total = np.matmul(values(a, source), values(b, source)) + values(c, target)
        if not target.is_float:
            return np.frompyfunc(lambda number: self.constant(number, target), 1, 1)(total)
        return np.frompyfunc(Residue.of_number, 1, 1)(total)
