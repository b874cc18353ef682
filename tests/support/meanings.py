"""The meanings of ops on terms of z3: bit-vectors, of which those of one bit are i1, and floats of its theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from ziggurat.backend.proof.elements import Bit, Sum, bits_of
from ziggurat.backend.proof.terms import Terms
from ziggurat.codemodel.elementwise import MEANINGS
from ziggurat.codemodel.op import Op


class Divisions(Terms):
    """Terms with other functions for quotients and remainders."""

    def __init__(self, quotient: Callable[..., Any], remainder: Callable[..., Any]) -> None:
        super().__init__()
        self._quotient, self._remainder = quotient, remainder

    def quotient(self, a: Sum, b: Sum, *, signed: bool) -> Sum:
        return Sum.of(self._quotient(a.term, b.term))

    def remainder(self, a: Sum, b: Sum, *, signed: bool) -> Sum:
        return Sum.of(self._remainder(a.term, b.term))


def meaning(op: Op, *values: Any, domain: Terms | None = None) -> Any:
    """The result of an elementwise op."""
    elements = [
        value if z3.is_fp(value) else Bit(value == 1) if value.size() == 1 else Sum.of(value) for value in values
    ]
    result = MEANINGS[op](domain or Terms(exact=True), op, *elements)
    return result if z3.is_fp(result) else bits_of(result)
