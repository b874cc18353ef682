"""The meanings of ops on terms of z3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from ziggurat.codemodel.elementwise import MEANINGS
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType

_COMPARISONS = {
    "eq": (lambda a, b: a == b,) * 2, "ne": (lambda a, b: a != b,) * 2, "lt": (z3.ULT, lambda a, b: a < b),
    "le": (z3.ULE, lambda a, b: a <= b), "gt": (z3.UGT, lambda a, b: a > b), "ge": (z3.UGE, lambda a, b: a >= b),
}  # fmt: skip


class Bits:
    """Bit-vectors of z3 as a domain of integers."""

    def integers(self, function: Callable[..., Any], scalar: ScalarType, *values: Any) -> Any:
        return function(*values)

    def constant(self, number: int, scalar: ScalarType) -> Any:
        return z3.BitVecVal(number, scalar.bits)

    def choose(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return z3.If(condition == 1, then, otherwise)

    def compare(self, relation: str, a: Any, b: Any, *, signed: bool) -> Any:
        return z3.If(_COMPARISONS[relation][signed](a, b), z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))

    def shift(self, a: Any, b: Any, *, left: bool, signed: bool) -> Any:
        return a << b if left else a >> b if signed else z3.LShR(a, b)

    def quotient(self, a: Any, b: Any, *, signed: bool) -> Any:
        return a / b if signed else z3.UDiv(a, b)

    def remainder(self, a: Any, b: Any, *, signed: bool) -> Any:
        return z3.SRem(a, b) if signed else z3.URem(a, b)

    def high_product(self, a: Any, b: Any, scalar: ScalarType) -> Any:
        x, y = (z3.ZeroExt(scalar.bits, value) for value in (a, b))
        return z3.Extract(2 * scalar.bits - 1, scalar.bits, x * y)

    def resize(self, a: Any, source: ScalarType, target: ScalarType, *, signed: bool) -> Any:
        if target.bits <= source.bits:
            return z3.Extract(target.bits - 1, 0, a)
        return (z3.SignExt if signed else z3.ZeroExt)(target.bits - source.bits, a)

    def reinterpret(self, a: Any, source: ScalarType, target: ScalarType) -> Any:
        return a

    def floats(self, op: Op, *values: Any) -> Any:
        raise NotImplementedError(op.NAME)


class Divisions(Bits):
    """Bit-vectors with other functions for quotients and remainders of signed numbers."""

    def __init__(self, quotient: Callable[..., Any], remainder: Callable[..., Any]) -> None:
        self._quotient, self._remainder = quotient, remainder

    def quotient(self, a: Any, b: Any, *, signed: bool) -> Any:
        return self._quotient(a, b)

    def remainder(self, a: Any, b: Any, *, signed: bool) -> Any:
        return self._remainder(a, b)


def meaning(op: Op, *values: Any, domain: Bits | None = None) -> Any:
    """The result of an elementwise op."""
    return MEANINGS[op](domain or Bits(), op, *values)
